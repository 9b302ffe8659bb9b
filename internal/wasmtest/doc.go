// Package wasmtest builds WebAssembly modules for tests from Go values, so that tests show
// the contents of their modules and need no binary files. Modules may be invalid.
//
// [Generate] makes random modules for differential tests:
// valid by construction, executable, and of every feature that the gate of
// host/internal/rewrite accepts.
//
// It is a pure function of its seed. Each choice consumes a byte, and when the seed is used
// up each block ends, so that every seed gives a module, a longer seed gives a larger one,
// and a mutation of one byte changes one choice and its consequences, as fuzzers need.
// Functions have equal parts of the seed.
//
// Code is generated the way it is validated: a body keeps the types of the
// operand stack and the open blocks, and each step either consumes operands
// that are there or pushes the ones that it lacks. So values stay below blocks
// and branches, blocks have parameters and results, and code behind a branch
// takes operands from nowhere, as it may.
//
// Most modules end on their own, with values that depend on much of the code: each loop
// counts down a local that nothing else writes, addresses are masked to lie in memory,
// divisors are rarely zero, and what is left on the stack goes into locals, globals and
// memory. Some modules trap, and recursion or loops in many functions at once may take
// long: run them with bounds on fuel and depth.
package wasmtest
