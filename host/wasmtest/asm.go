package wasmtest

import "github.com/starling-host/starling/host/internal/wasm"

// Asm writes the code of functions, for modules that tests make.
type Asm = wasm.Asm

// What such modules are made of.
const (
	ExternMemory  = wasm.ExternMemory
	BlockEmpty    = wasm.BlockEmpty
	OpBr          = wasm.OpBr
	OpCall        = wasm.OpCall
	OpDrop        = wasm.OpDrop
	OpEnd         = wasm.OpEnd
	OpLoop        = wasm.OpLoop
	OpUnreachable = wasm.OpUnreachable
)
