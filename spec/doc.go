// Package spec has the vectors of this folder, for tests, the schemas of the files
// that people write, and the contract of the HTTP API, which a host serves.
//
// The folder holds the normative texts. Its folder vectors holds what the
// texts mean in bytes: one JSON object on each line, ready for an
// implementation in any language. vectors/README.md names the fields of each
// file and says how a file may change.
package spec
