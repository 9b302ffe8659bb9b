// Package dap serves a debug session by the Debug Adapter Protocol, which editors speak
// (https://microsoft.github.io/debug-adapter-protocol).
//
// The call has been recorded, so the client sees one thread that has stopped already, where the
// session begins. It moves in both directions by the requests of the protocol. Four requests are
// this server's own, because no editor has buttons for them: reverseStepIn, reverseStepOut,
// lastWrite with an expression, and untilFuel with a number. Nothing that a client sends changes
// the call, the log or a file.
package dap
