package rewrite

import (
	"strings"
	"testing"

	"github.com/starling-host/starling/internal/wasm"
	"github.com/starling-host/starling/internal/wasmtest"
)

func code() *wasm.Asm { return new(wasm.Asm) }

// TestGoldenFuel has programs small enough to add up by hand from the table in
// spec/determinism.md. A number that changes here is a new cost table version.
func TestGoldenFuel(t *testing.T) {
	leaf := wasmtest.Func{Type: wasmtest.Type(":i"), Code: code().I32(7)} // entry 1, const 1
	tests := []struct {
		name  string
		funcs []wasmtest.Func // the first is called
		args  []uint64
		want  uint64
	}{
		{
			// entry 1; loop 1, two constants 2, div 10, drop 1, and after the end const 1, drop 1
			"a trap has paid for its whole block, which goes on behind the end of a loop",
			[]wasmtest.Func{{Code: code().Block(wasm.OpLoop, wasm.BlockEmpty).
				I32(1).I32(0).Op(wasm.OpI32DivS, wasm.OpDrop, wasm.OpEnd).I32(1).Op(wasm.OpDrop)}},
			nil, 1 + 14 + 2,
		},
		{
			// entry 1, get 1, br_if 1, and in the next block the trap 1
			"a trap has not paid for what is behind the end of a block that a branch goes to",
			[]wasmtest.Func{{Type: wasmtest.Type("i:"), Code: code().Block(wasm.OpBlock, wasm.BlockEmpty).
				Index(wasm.OpLocalGet, 0).Index(wasm.OpBrIf, 0).Op(wasm.OpUnreachable, wasm.OpEnd).I32(1).Op(wasm.OpDrop)}},
			[]uint64{0}, 3 + 1,
		},
		{"an empty function costs its entry", []wasmtest.Func{{}}, nil, 1},
		{
			"straight code costs one per instruction",
			[]wasmtest.Func{{Type: wasmtest.Type("i:i"), Code: code().Index(wasm.OpLocalGet, 0).I32(1).Op(wasm.OpI32Add)}},
			[]uint64{41}, 1 + 3,
		},
		{
			"nop, block and end are free",
			[]wasmtest.Func{{Code: code().Op(wasm.OpNop).Block(wasm.OpBlock, wasm.BlockEmpty).Op(wasm.OpNop, wasm.OpEnd)}},
			nil, 1,
		},
		{
			"a division costs ten",
			[]wasmtest.Func{{Type: wasmtest.Type(":i"), Code: code().I32(6).I32(3).Op(wasm.OpI32DivS)}},
			nil, 1 + 2 + 10,
		},
		{
			"a call costs five and the entry of the callee",
			[]wasmtest.Func{{Code: code().Index(wasm.OpCall, 1).Op(wasm.OpDrop)}, leaf},
			nil, 1 + 5 + 1 + 2,
		},
		{
			// entry 1; n times: loop 1, get 1, const 1, sub 1, tee 1, br_if 1
			"a loop pays for each round",
			[]wasmtest.Func{{Type: wasmtest.Type("i:"), Code: code().
				Block(wasm.OpLoop, wasm.BlockEmpty).
				Index(wasm.OpLocalGet, 0).I32(1).Op(wasm.OpI32Sub).Index(wasm.OpLocalTee, 0).
				Index(wasm.OpBrIf, 0).Op(wasm.OpEnd)}},
			[]uint64{100}, 1 + 100*6,
		},
		{
			// entry 1, get 1, if 1; then: const 1, drop 1
			"the arm that runs pays: then",
			[]wasmtest.Func{{Type: wasmtest.Type("i:"), Code: ifElse()}}, []uint64{1}, 3 + 2,
		},
		{
			"the arm that runs pays: else",
			[]wasmtest.Func{{Type: wasmtest.Type("i:"), Code: ifElse()}}, []uint64{0}, 3 + 4,
		},
		{
			// entry 1, get 1, br_if 1, and const and drop unless it branches
			"code that a branch skips is free",
			[]wasmtest.Func{{Type: wasmtest.Type("i:"), Code: code().
				Block(wasm.OpBlock, wasm.BlockEmpty).Index(wasm.OpLocalGet, 0).Index(wasm.OpBrIf, 0).
				I32(1).Op(wasm.OpDrop, wasm.OpEnd)}},
			[]uint64{1}, 3,
		},
		{
			"code behind a return is free",
			[]wasmtest.Func{{Code: code().Op(wasm.OpReturn).I32(1).Op(wasm.OpDrop)}}, nil, 2,
		},
		{
			// entry 1, three constants 3; 8 and 1,000/8
			"memory.fill pays for eight bytes each",
			[]wasmtest.Func{{Code: code().I32(0).I32(1).I32(1000).Memory(wasm.OpMemoryFill)}},
			nil, 4 + 8 + 125,
		},
		{
			// entry 1, three constants 3; two pieces of 1 MiB, 8 and 24/8
			"memory.copy over the piece size pays the same",
			[]wasmtest.Func{{Code: code().I32(0).I32(64).I32(2<<20 + 24).Memory(wasm.OpMemoryCopy)}},
			nil, 4 + 2*131072 + 8 + 3,
		},
		{
			// entry 1, const 1, drop 1; 300 and 2 pages
			"memory.grow pays for pages",
			[]wasmtest.Func{{Code: code().I32(2).Memory(wasm.OpMemoryGrow).Op(wasm.OpDrop)}},
			nil, 3 + 300 + 2*4096,
		},
		{
			"memory.grow that must fail pays its base",
			[]wasmtest.Func{{Code: code().I32(-1).Memory(wasm.OpMemoryGrow).Op(wasm.OpDrop)}},
			nil, 3 + 300,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			tt.funcs[0].Export = "run"
			m := wasmtest.Module{Memory: wasmtest.Pages(64), Funcs: tt.funcs}
			metered := mustRewrite(t, m.Bytes(), Options{})
			for engine := range engines {
				g := start(t, engine, metered)
				if _, err := g.call("run", tt.args...); (err != nil) != strings.HasPrefix(tt.name, "a trap") {
					t.Fatal(err)
				}
				if got := g.fuel.Get(); got != tt.want {
					t.Errorf("%s: fuel %d, want %d", engine, got, tt.want)
				}
			}
		})
	}
}

func ifElse() *wasm.Asm {
	return code().Index(wasm.OpLocalGet, 0).Block(wasm.OpIf, wasm.BlockEmpty).
		I32(1).Op(wasm.OpDrop).
		Op(wasm.OpElse).I32(1).I32(1).Op(wasm.OpDrop, wasm.OpDrop, wasm.OpEnd)
}
