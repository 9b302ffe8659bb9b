// Package tool says what a tool is.
//
// A [Tool] is a name, a description and a JSON Schema for a model to read, and
// a function from a JSON document to a JSON document. Two kinds exist. A native
// tool is Go code that the operator trusts; it reaches the world through
// package step, or replay will not be able to answer for it. A [Sandboxed] tool
// is a WebAssembly module; it has no other way to reach the world.
//
// A tool fails by returning an error. What kind of failure it was is told by
// the sentinels of this package, which callers test with [errors.Is] and which
// package step writes into the log as the error type of a ToolCallFailed event.
// An error that wraps none of them is simply the tool's own.
package tool
