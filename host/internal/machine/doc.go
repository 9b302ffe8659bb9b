// Package machine executes a module that host/internal/rewrite has written, one operation at a time,
// and can go back.
//
// # How it executes
//
// [Translate] turns each body once from the stack form into operations on the slots of a frame:
// parameters and locals first, then the operand stack, whose height at each instruction is known. So
// local.get, drop and constants become operands and cost nothing, and a comparison before a branch
// becomes part of it. Two and a half words are an operation: its number, three slots, and a constant
// or a target.
//
//	local.get 0
//	i32.const 10
//	i32.lt_s
//	br_if 0          one operation: if slot 0 < 10, go to ...
//
// The loop that executes operations is a switch that generate.go writes, with the tables of
// instructions that translation and validation use. It uses no unsafe code. State is plain slices: the
// slots, the frames, the globals and the memory.
//
// Translation validates a body by the algorithm of the core specification's appendix, since the
// rewriter checks indices and leaves types to the engine.
//
// # How it goes back
//
// A [Machine] that records keeps, every so many operations, a snapshot: frames, slots, globals, and
// the pages of memory that were written since the snapshot before. It also keeps a journal of what
// the host answered. The position of a state is the number of operations that were executed before it.
// To go anywhere, a [Recording] restores the snapshot before and executes from there, with
// answers from the journal. To find the last write to an address, it looks at the intervals between
// two snapshots, the last first, and skips those in which the page was not written.
//
// A store finds out that its page is written for the first time, or watched, by a byte for each page,
// the barrier, which is zero otherwise. So an execution that is not recorded pays a load and a branch.
package machine

//go:generate go run generate.go
