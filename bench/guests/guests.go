// Package guests has the committed guests of the benchmark, as programs.
package guests

import "embed"

// Wasm holds NAME.wasm, which speaks starling:v1, and NAME-extism.wasm.
//
//go:embed *.wasm
var Wasm embed.FS
