package wasmtest

import "github.com/starling-host/starling/host/internal/wasm"

// Asm writes the code of functions, for modules that tests make.
type Asm = wasm.Asm

// Parts of such modules.
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

// Forever computes without end; code after it is never reached. It rounds the number at
// address 0 again and again, each time depending on the last. So a unit of fuel takes five
// times as long as in an empty loop, which spends the default budget in three seconds, too
// fast for a test on a busy machine.
func Forever() *Asm {
	code := new(Asm).Block(OpLoop, BlockEmpty).I32(0).I32(0).Access(wasm.OpF64Load, 0)
	for range 50 {
		code.Op(wasm.OpF64Nearest)
	}
	return code.Access(wasm.OpF64Store, 0).Index(OpBr, 0).Op(OpEnd).Op(OpUnreachable)
}
