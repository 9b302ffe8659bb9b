// Package hostcall has the three imports of starling:v1, on the guest's side.
//
// In a module (GOOS=wasip1) its functions are the imports, and the linker keeps
// only the ones that are called: a tool that never asks for HTTP has no http
// import, so the import section of a module lists its abilities.
//
// On every other system there is no host. A test installs a stand-in with
// [Use], and reaches the tools of the program under test through the functions
// that package starling hands over with [Export]. Authors of tools use packages
// starling and starlingtest, which stand on the two sides of this one.
package hostcall
