package rewrite

import (
	"testing"

	"github.com/starling-host/starling/internal/wasm"
	"github.com/starling-host/starling/internal/wasmtest"
)

// TestTrapHasPaid traps in every possible way, behind blocks that cannot trap
// and in a function other than a leaf: the counter must have the cost of the
// blocks before, and all of the block that trapped.
func TestTrapHasPaid(t *testing.T) {
	// loop 1, const 1, br_if 1; then the block that traps
	const before = costEntry + 1 + 2
	binary := func(op wasm.Op) *wasm.Asm { return code().I32(1).I32(0).Op(op, wasm.OpDrop) }
	wide := func(op wasm.Op) *wasm.Asm { return code().I64(1).I64(0).Op(op, wasm.OpDrop) }
	nan32 := func(op wasm.Op) *wasm.Asm {
		return code().I32(-1).Op(wasm.OpF32ReinterpretI32, op, wasm.OpDrop)
	}
	nan64 := func(op wasm.Op) *wasm.Asm {
		return code().I64(-1).Op(wasm.OpF64ReinterpretI64, op, wasm.OpDrop)
	}
	tests := []struct {
		name string
		code *wasm.Asm
		want uint64
	}{
		{"unreachable", code().Op(wasm.OpUnreachable), 1},
		{"call of a function that traps", code().Index(wasm.OpCall, 1), costCall + 2},
		{"call of no function of the table", code().I32(0).Index(wasm.OpCallIndirect, 0), 1 + costIndirect},
		{"i32.div_s", binary(wasm.OpI32DivS), 3 + costDivide},
		{"i32.div_u", binary(wasm.OpI32DivU), 3 + costDivide},
		{"i32.rem_s", binary(wasm.OpI32RemS), 3 + costDivide},
		{"i32.rem_u", binary(wasm.OpI32RemU), 3 + costDivide},
		{"i64.div_s", wide(wasm.OpI64DivS), 3 + costDivide},
		{"i64.div_u", wide(wasm.OpI64DivU), 3 + costDivide},
		{"i64.rem_s", wide(wasm.OpI64RemS), 3 + costDivide},
		{"i64.rem_u", wide(wasm.OpI64RemU), 3 + costDivide},
		// outside of memory it traps before it is charged
		{"memory.fill", code().I32(-1).I32(0).I32(1).Memory(wasm.OpMemoryFill), 3},
		{"memory.copy", code().I32(-1).I32(0).I32(1).Memory(wasm.OpMemoryCopy), 3},
	}
	add := func(op wasm.Op, a *wasm.Asm, want uint64) {
		tests = append(tests, struct {
			name string
			code *wasm.Asm
			want uint64
		}{op.String(), a, want})
	}
	for op := wasm.OpI32Load; op <= wasm.OpI64Load32U; op++ {
		add(op, code().I32(-1).Access(op, 0).Op(wasm.OpDrop), 3)
	}
	for op, value := range map[wasm.Op]*wasm.Asm{
		wasm.OpI32Store: code().I32(0), wasm.OpI32Store8: code().I32(0), wasm.OpI32Store16: code().I32(0),
		wasm.OpI64Store: code().I64(0), wasm.OpI64Store8: code().I64(0), wasm.OpI64Store16: code().I64(0), wasm.OpI64Store32: code().I64(0),
		wasm.OpF32Store: code().I32(0).Op(wasm.OpF32ReinterpretI32), wasm.OpF64Store: code().I64(0).Op(wasm.OpF64ReinterpretI64),
	} {
		a := code().I32(-1)
		*a = append(*a, *value...)
		want := uint64(3)
		if op == wasm.OpF32Store || op == wasm.OpF64Store {
			want = 4
		}
		add(op, a.Access(op, 0), want)
	}
	for _, op := range []wasm.Op{wasm.OpI32TruncF32S, wasm.OpI32TruncF32U, wasm.OpI64TruncF32S, wasm.OpI64TruncF32U} {
		add(op, nan32(op), 4)
	}
	for _, op := range []wasm.Op{wasm.OpI32TruncF64S, wasm.OpI32TruncF64U, wasm.OpI64TruncF64S, wasm.OpI64TruncF64U} {
		add(op, nan64(op), 4)
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			a := code().Block(wasm.OpLoop, wasm.BlockEmpty).I32(0).Index(wasm.OpBrIf, 0)
			*a = append(*a, *tt.code...)
			m := wasmtest.Module{Memory: wasmtest.Pages(1), Table: wasmtest.Pages(1), Funcs: []wasmtest.Func{
				{Export: "run", Code: a.Op(wasm.OpEnd)}, {Code: code().Op(wasm.OpUnreachable)},
			}}
			metered := mustRewrite(t, m.Bytes(), Options{})
			for engine := range engines {
				g := start(t, engine, metered)
				if _, err := g.call("run"); err == nil {
					t.Fatalf("%s: no trap", engine)
				}
				if got := g.fuel.Get(); got != before+tt.want {
					t.Errorf("%s: fuel %d, want %d", engine, got, before+tt.want)
				}
			}
		})
	}
}
