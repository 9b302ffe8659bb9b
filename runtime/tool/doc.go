// Package tool says what a tool is.
//
// A [Tool] is a name, a description and a JSON Schema for a model to read, and
// a function from a JSON document to a JSON document. Two kinds exist. A native
// tool is Go code that the operator trusts; it reaches the world through
// package step, or replay will not be able to answer for it. A [Sandboxed] tool
// is a WebAssembly module; it has no other way to reach the world.
//
// # Making one
//
// [Typed] makes a tool of a function whose input is a struct, and is the way to
// take when nothing speaks against it. [NewFuncTool] takes a schema that is said
// in Go values, for parameters that are known only when the program runs.
// [Adapt] makes a tool of a struct with state. A [Registry] takes plain
// functions that know nothing of this package. [Wrap] puts something around any
// of them. All of these hold their input to the schema: what does not match is
// refused with a list of all mismatches, which a model can act on, and what is
// left out and has a default is filled in.
//
// # Failing
//
// A tool fails by returning an error. What kind of failure it was is told by
// the sentinels of this package, which callers test with [errors.Is] and which
// package step writes into the log as the error type of a ToolCallFailed event.
// An error that wraps none of them is simply the tool's own.
//
// A tool can also say what to do about its own errors. The caller asks with [KindOf], and
// follows a [RetryConfig] where one is set:
//
//	a plain error  the call is made again, up to MaxAttempts
//	[ErrTransient] likewise, and also for calls that are only marked idempotent
//	[ToolCancel]   the call is over; nothing was wrong with the input
//	[ToolDiscard]  the call is over; this input can never succeed
//	[ToolSnooze]   the call is made again after a while, and no attempt is consumed
//
// An input that does not match the schema is a ToolDiscard.
//
// # Knowing
//
// What the caller of a run knows and the model is not to decide, such as the
// tenant, reaches tools as variables: [WithVariables], [GetVariable]. They are
// recorded with the start of the run.
package tool
