// Package spec has the vectors of this folder, for tests, and the schema of
// agent.yaml, for whoever asks a program for it.
//
// The folder holds the normative texts. Its folder vectors holds what the
// texts mean in bytes: one JSON object on each line, ready for an
// implementation in any language. vectors/README.md names the fields of each
// file and says how a file may change.
package spec
