package wasmtest

import "github.com/starling-host/starling/internal/wasm"

// Forever computes without end; code after it is never reached. It rounds the number at
// address 0 again and again, each time depending on the last. So a unit of fuel takes five
// times as long as in an empty loop, which spends the default budget in three seconds, too
// fast for a test on a busy machine.
func Forever() *wasm.Asm {
	code := new(wasm.Asm).Block(wasm.OpLoop, wasm.BlockEmpty).I32(0).I32(0).Access(wasm.OpF64Load, 0)
	for range 50 {
		code.Op(wasm.OpF64Nearest)
	}
	return code.Access(wasm.OpF64Store, 0).Index(wasm.OpBr, 0).Op(wasm.OpEnd).Op(wasm.OpUnreachable)
}
