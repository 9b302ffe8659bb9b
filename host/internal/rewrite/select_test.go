package rewrite

import (
	"context"
	"testing"

	"github.com/starling-host/starling/internal/wasm"
	"github.com/starling-host/starling/internal/wasmtest"
	"github.com/starling-host/starling/internal/work"
)

// TestSelectOfFloatsAcrossACall is a program found by random search: in its
// original form wazero's compiler returns another value of the guest, or one of
// the host, for a select whose operands live across a call.
func TestSelectOfFloatsAcrossACall(t *testing.T) {
	if _, err := newComparison(t).check(generate(randomSeed(67833))); err != nil {
		t.Error(err)
	}
}

// TestNoSelectOfFloatsIsLeft looks for selects of floats in rewritten modules,
// however they arose: plain, typed, after locals, loads, calls and blocks, and
// after the canonicalisation of very many NaNs.
func TestNoSelectOfFloatsIsLeft(t *testing.T) {
	x := func() *wasm.Asm { return code().Index(wasm.OpLocalGet, 0) }
	many := code()
	for range mostBranches + 1 {
		many.I32(0).Index(wasm.OpLocalGet, 0).Op(wasm.OpF64Sqrt).Access(wasm.OpF64Store, 0)
	}
	block := code().Block(wasm.OpBlock, wasm.BlockOf(wasm.F64)).Index(wasm.OpLocalGet, 0).Op(wasm.OpEnd)
	tests := []struct {
		name string
		code *wasm.Asm // (F64, F32) -> ()
	}{
		{"locals", x().Index(wasm.OpLocalGet, 0).I32(1).Op(wasm.OpSelect, wasm.OpDrop)},
		{"narrow", code().Index(wasm.OpLocalGet, 1).Index(wasm.OpLocalGet, 1).I32(1).Op(wasm.OpSelect, wasm.OpDrop)},
		{"typed", asmAfter(x().Index(wasm.OpLocalGet, 0).I32(1).Op(wasm.OpSelectTyped), &wasm.Asm{1, byte(wasm.F64), byte(wasm.OpDrop)})},
		{"of a load and a global", code().I32(0).Access(wasm.OpF64Load, 0).Index(wasm.OpGlobalGet, 0).I32(0).Op(wasm.OpSelect, wasm.OpDrop)},
		{"of the results of calls", code().Index(wasm.OpCall, 1).Index(wasm.OpCall, 1).I32(0).Op(wasm.OpSelect, wasm.OpDrop)},
		{"of the result of a block", asmAfter(block, x().I32(0).Op(wasm.OpSelect, wasm.OpDrop))},
		{"of selects", x().Index(wasm.OpLocalGet, 0).I32(1).Op(wasm.OpSelect).Index(wasm.OpLocalGet, 0).I32(0).Op(wasm.OpSelect, wasm.OpDrop)},
		{"of conversions", code().I32(1).Op(wasm.OpF64ConvertI32S).Index(wasm.OpLocalGet, 1).Op(wasm.OpF64PromoteF32).I32(0).Op(wasm.OpSelect, wasm.OpDrop)},
		{"under a value", code().I32(5).Index(wasm.OpLocalGet, 0).Index(wasm.OpLocalTee, 0).Index(wasm.OpLocalGet, 0).I32(1).Op(wasm.OpSelect, wasm.OpDrop, wasm.OpDrop)},
		{"of very many NaNs", many},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			m := wasmtest.Module{
				Memory:  wasmtest.Pages(1),
				Globals: []wasmtest.Global{{Type: wasm.F64, Mutable: true}},
				Funcs:   []wasmtest.Func{{Type: wasmtest.Type("Ff:"), Code: tt.code}, {Type: wasmtest.Type(":F"), Code: asmAfter(code().Op(wasm.OpF64Const), &wasm.Asm{0, 0, 0, 0, 0, 0, 0, 0})}},
			}
			res := mustRewrite(t, m.Bytes(), Options{})
			start(t, "compiler", res) // it is valid
			out, err := wasm.Decode(work.Trusted(context.Background()), res.Wasm)
			if err != nil {
				t.Fatal(err)
			}
			groups, it, err := out.Body(0, nil)
			if err != nil {
				t.Fatal(err)
			}
			var s operandScan
			s.scan(out, it, out.Types[out.Funcs[0]].Params, groups, true)
			if len(s.selects) != 0 {
				t.Errorf("%d selects of floats are left", len(s.selects))
			}
		})
	}
}

// TestSelectBits compares the outcome of every float and condition with that of
// the interpreter on the original.
func TestSelectBits(t *testing.T) {
	for letter, reinterpret := range map[byte]wasm.Op{'f': wasm.OpI32ReinterpretF32, 'F': wasm.OpI64ReinterpretF64} {
		back := reinterpret + 2
		integer := map[byte]string{'f': "i", 'F': "I"}[letter]
		m := wasmtest.Module{Funcs: []wasmtest.Func{{Export: "select", Type: wasmtest.Type(integer + integer + "i:" + integer), Code: code().
			Index(wasm.OpLocalGet, 0).Op(back).Index(wasm.OpLocalGet, 1).Op(back).Index(wasm.OpLocalGet, 2).Op(wasm.OpSelect, reinterpret)}}}
		g := start(t, "compiler", mustRewrite(t, m.Bytes(), Options{}))
		for _, a := range operands[letter] {
			for _, b := range operands[letter] {
				for condition, want := range map[uint64]uint64{0: b, 1: a, 1 << 31: a} {
					got, err := g.call("select", a, b, condition)
					if err != nil {
						t.Fatal(err)
					}
					if letter == 'f' {
						got[0] = uint64(uint32(got[0]))
					}
					if got[0] != want {
						t.Errorf("select of %#x and %#x by %d is %#x", a, b, condition, got[0])
					}
				}
			}
		}
	}
}
