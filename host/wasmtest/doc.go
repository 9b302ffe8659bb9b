// Package wasmtest builds WebAssembly modules for tests from Go values, so that
// a test says what its module contains and needs no binary file. It writes what
// it is told, valid or not.
//
// [Generate] makes random modules for differential tests:
// valid by construction, executable, and of every feature that the gate of
// host/internal/rewrite accepts.
//
// It is a pure function of its seed. Each choice consumes a byte, and when
// the seed is used up each block ends, so that every seed gives a module, a
// longer seed gives a larger one, and a mutation of one byte changes one
// choice and what follows from it. That is what a fuzzer needs. Functions have
// equal parts of the seed.
//
// Code is generated the way it is validated: a body keeps the types of the
// operand stack and the open blocks, and each step either consumes operands
// that are there or pushes the ones that it lacks. So values stay below blocks
// and branches, blocks have parameters and results, and code behind a branch
// takes operands from nowhere, as it may.
//
// Most modules end on their own, with values that depend on much of the code:
// each loop counts down a local that nothing else writes, addresses are masked
// to lie in memory, divisors are rarely zero, and what is left on the stack
// goes into locals, globals and memory. Now and then one does trap, and
// recursion or loops in many functions at once may take long: whoever runs a
// module needs a bound on fuel and depth.
package wasmtest
