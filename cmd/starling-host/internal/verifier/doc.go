// Package verifier executes runs on a third engine: V8, or another engine of JavaScript. It
// shares no code with wazero, neither a line of the compiler nor of the interpreter.
//
// verifier.wasm is the program in ./program: the checks of a bundle, the rewriter, and
// package sandbox as it is built for js, which executes the rewritten modules on the engine
// beside it. build.sh makes it. wasm_exec.js is Go's own glue for such programs, and
// LICENSE.golang its licence.
//
//	Node      the program in a process of Node, for replay and verify with --engine v8
//	Page      the program in a page, with the runs of a bundle, for bundle --html
package verifier

import _ "embed"

//go:generate ./build.sh

// program is the program, compressed with gzip.
//
//go:embed verifier.wasm.gz
var program []byte

//go:embed wasm_exec.js
var glue string
