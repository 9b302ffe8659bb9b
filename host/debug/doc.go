// Package debug executes one recorded call again and moves in it, forwards and backwards.
//
// [Open] replays a run with its log in place of the world, as package agent does, and records the
// chosen call instruction by instruction. A [Session] then stands at one instruction of that call
// and shows its stack, variables, memory and effects there. [Session.Move] goes to another
// instruction: by lines, calls or breakpoints, in both directions.
//
// A session reads. It cannot change the call, it makes no request, and it needs only the events
// and the module. Every motion ends when its context does, and then leaves the session where it
// was.
package debug
