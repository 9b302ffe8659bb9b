// Package hostcall has the three imports of starling:v1, on the guest's side, and
// the names and numbers that go with them. The normative text is spec/abi.md in the
// repository of the host.
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

// EffectHeader is the header of a request with the tool's name for the effect in
// the record. The host removes it before it sends the request.
const EffectHeader = "Starling-Effect"

// TimeoutHeader is the header of a request with the maximum time in milliseconds to
// wait for the response. The host removes it too.
const TimeoutHeader = "Starling-Timeout"

// The negative results of the http import: the exchange failed in a way that the
// tool can handle. Its text is fetched like a response.
const (
	StatusDenied      = -1
	StatusNetwork     = -2
	StatusTimeout     = -3
	StatusTooLarge    = -4
	StatusMalformed   = -5
	StatusNothingHeld = -6 // a response was fetched and none is held
)
