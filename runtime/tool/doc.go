// Package tool defines tools.
//
// A [Tool] is a name, a description and a JSON Schema for a model to read, and a function
// from a JSON document to a JSON document. Two kinds exist. A native tool is Go code that
// the operator trusts; it must reach the world through package step, or replays will
// differ. A [Sandboxed] tool is a WebAssembly module, which has no other way to reach the
// world.
//
// # Making one
//
// Prefer [Typed], which makes a tool from a function whose input is a struct. [NewFuncTool]
// takes a schema as Go values, for parameters known only at run time. [Adapt] makes a tool
// from a struct with state. A [Registry] takes plain functions that do not depend on this
// package. [Wrap] adds middleware to any of them. All of these check the input: a mismatch
// is refused with a list of all mismatches, which a model can act on, and missing members
// get their defaults.
//
// # Failing
//
// A tool fails by returning an error. The sentinels of this package classify it: callers
// test for them with [errors.Is], and package step records them as the error type of a
// ToolCallFailed event. An error that wraps none of them is the tool's own.
//
// A tool can also advise how to handle its errors. The caller reads the advice with
// [KindOf], and follows a [RetryConfig] if set:
//
//	a plain error  the call is made again, up to MaxAttempts
//	[ErrTransient] likewise, and also for calls that are only marked idempotent
//	[ToolCancel]   the call is over; nothing was wrong with the input
//	[ToolDiscard]  the call is over; this input can never succeed
//	[ToolSnooze]   the call is made again after a while, and no attempt is consumed
//
// An input that does not match the schema is a ToolDiscard.
//
// # Variables
//
// Values that the caller of a run supplies and the model must not choose, such as the
// tenant, reach tools as variables: [WithVariables], [GetVariable]. They are recorded with
// the start of the run.
package tool
