// Package spec gives tests the vectors of this folder.
//
// The folder holds the normative texts. Its folder vectors holds what the
// texts mean in bytes: one JSON object on each line, ready for an
// implementation in any language. vectors/README.md names the fields of each
// file and says how a file may change.
package spec
