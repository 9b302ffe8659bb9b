package rewrite

import (
	"context"
	"fmt"
	"testing"

	"github.com/starling-host/starling/internal/wasm"
	"github.com/starling-host/starling/internal/wasmtest"
)

// zeroOnTheLeft compares zero with x & y, in every way, and jumps by the
// outcome. Each function returns 1 when the comparison holds, else 2; its name
// is the comparison and how the operands come.
func zeroOnTheLeft() []byte {
	ways := map[string]func(a *wasm.Asm, and *wasm.Asm, compare wasm.Op){
		"stack": func(a, and *wasm.Asm, compare wasm.Op) {
			*a = append(append(*a, *zero(compare)...), *and...)
		},
		"locals": func(a, and *wasm.Asm, compare wasm.Op) { // the left one has never been written
			*a = append(*a, *and...)
			a.Index(wasm.OpLocalSet, 3).Index(wasm.OpLocalGet, 2).Index(wasm.OpLocalGet, 3)
		},
		"shift": func(a, and *wasm.Asm, compare wasm.Op) { // the compiler drops a shift by zero
			*a = append(append(append(*a, *zero(compare)...), *and...), *zero(compare)...)
			a.Op(map[bool]wasm.Op{true: wasm.OpI32Shl, false: wasm.OpI64Shl}[compare <= wasm.OpI32GeU])
		},
	}
	var m wasmtest.Module
	for compare := wasm.OpI32LtS; compare <= wasm.OpI64GeU; compare++ {
		if !isOrdered(compare) {
			continue
		}
		and, t := wasm.OpI32And, wasm.I32
		if compare > wasm.OpI32GeU {
			and, t = wasm.OpI64And, wasm.I64
		}
		for way, operands := range ways {
			a := code()
			operands(a, code().Index(wasm.OpLocalGet, 0).Index(wasm.OpLocalGet, 1).Op(and), compare)
			a.Op(compare).Block(wasm.OpIf, wasm.BlockOf(wasm.I32)).I32(1).Op(wasm.OpElse).I32(2).Op(wasm.OpEnd)
			m.Funcs = append(m.Funcs, wasmtest.Func{
				Export: fmt.Sprintf("%#x %s", uint16(compare), way), Code: a,
				Type:   wasm.FuncType{Params: []wasm.ValType{t, t}, Results: []wasm.ValType{wasm.I32}},
				Locals: []wasm.LocalGroup{{Count: 2, Type: t}},
			})
		}
	}
	return m.Bytes()
}

func zero(compare wasm.Op) *wasm.Asm {
	if compare <= wasm.OpI32GeU {
		return code().I32(0)
	}
	return code().I64(0)
}

// outcomes calls every function with masks that are negative, zero and positive.
func outcomes(t *testing.T, g *guest, res *Result) map[string]uint64 {
	t.Helper()
	got := map[string]uint64{}
	for _, e := range res.Info.Exports {
		for _, mask := range []int64{-1 << 63, -1 << 31, -1, 0, 1, 1 << 20} {
			results, err := g.ExportedFunction(e.Name).Call(context.Background(), uint64(mask), ^uint64(0))
			if err != nil {
				t.Fatal(err)
			}
			got[fmt.Sprintf("%s %d", e.Name, mask)] = uint64(uint32(results[0]))
		}
	}
	return got
}

// TestZeroOnTheLeft: metered, the engines agree on comparisons of zero with an
// "and". When they agree on the original too, wazero's defect is fixed, and
// fusion.go should be removed.
func TestZeroOnTheLeft(t *testing.T) {
	b := zeroOnTheLeft()
	metered := mustRewrite(t, b, Options{})
	want := outcomes(t, start(t, "interpreter", metered), metered)
	for name, got := range outcomes(t, start(t, "compiler", metered), metered) {
		if got != want[name] {
			t.Errorf("%s: compiler %d, interpreter %d", name, got, want[name])
		}
	}
	wrong := 0
	for name, got := range outcomes(t, &guest{Module: startPlain(t, b)}, metered) {
		if got != want[name] {
			wrong++
		}
	}
	if wrong == 0 {
		t.Error("the compiler does not get a single original wrong: its defect is gone")
	}
	t.Logf("the compiler gets %d of %d originals wrong", wrong, len(want))
}
