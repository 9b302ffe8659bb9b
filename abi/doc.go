// Package abi is the contract between the host and a guest tool, in Go.
//
// The normative text is spec/abi.md; this package holds its names, numbers and
// document shapes for the host. It imports the standard library only. SDKs restate
// what they need, and the conformance kit in spec/tck compares.
//
// A guest sees exactly three imports, all in module "starling:v1":
//
//	now    : () -> i64
//	random : () -> i64
//	http   : (req i32, req_len i32, buf i32, cap i32) -> i64
//
// and offers memory, starling_alloc, starling_describe and starling_execute.
// A new version of the contract is a new module name, so that a mismatch fails
// when the module is loaded and never in the middle of a call.
package abi
