// Package starling is the SDK for tools written in Go.
//
// A tool is a program that starling-host loads as a WebAssembly module. It
// registers its tools in init and has an empty main, which is never run:
//
//	package main
//
//	import starling "github.com/starling-host/starling/guest-sdk/go"
//
//	func init() {
//		starling.Register(starling.Tool{
//			Name:        "echo",
//			Description: "Answers with its input.",
//			Execute: func(call *starling.Call, input []byte) ([]byte, error) {
//				return input, nil
//			},
//		})
//	}
//
//	func main() {}
//
// The package owns the exports that the host calls (starling_alloc,
// starling_describe, starling_execute), and handles the envelopes around input and
// output. The tool is the part in between, from JSON bytes to JSON bytes.
//
// # Host calls
//
// A tool can make three host calls: [Now], [Random] and HTTP ([Get], [Do], and
// [HTTP] for the bytes themselves). The host records each one, and replay answers
// from the record. A tool can read nothing else, so every tool replays, without any
// care of its author. [SideEffect] names the HTTP exchanges of a function in the
// record.
//
// They work only during a call: the host refuses to load a tool that makes one
// in init or in a variable's initialiser.
//
// # Failing
//
// An error from Execute ends the call, not the run: the model reads its text.
// [Transient], [Cancel], [Discard] and [Snooze] tell the host how to continue. A
// panic is not caught. It ends the module instance, as a trap, and the host records
// it as such with the trace.
//
// # Size
//
// The host compiles every megabyte of a module before the first call. This package
// therefore stays away from encoding/json, fmt, reflect and net/http: a tool that
// uses no more than this is smaller than 2 MB. Two packages beside it trade size
// for comfort. Package typed makes a tool from a Go function (3 MB, like all that
// imports encoding/json), and package starlinghttp makes net/http work (10 MB).
// Package starlingtest calls tools in ordinary Go tests.
package starling
