package rewrite

import (
	"context"
	"fmt"
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/starling-host/starling/internal/wasm"
	"github.com/starling-host/starling/internal/wasmtest"
)

// floatOp is a float instruction: f for f32, F for f64, as in wasmtest.Type.
type floatOp struct {
	name      string
	op        wasm.Op
	signature string
}

// floatOps are all instructions that take or give a float and are neither
// comparison nor conversion of an integer.
func floatOps() []floatOp {
	var all []floatOp
	for _, t := range []struct {
		letter string
		first  wasm.Op
	}{{"f", wasm.OpF32Abs}, {"F", wasm.OpF64Abs}} {
		for i, name := range []string{"abs", "neg", "ceil", "floor", "trunc", "nearest", "sqrt"} {
			all = append(all, floatOp{t.letter + "." + name, t.first + wasm.Op(i), t.letter + ":" + t.letter})
		}
		for i, name := range []string{"add", "sub", "mul", "div", "min", "max", "copysign"} {
			all = append(all, floatOp{t.letter + "." + name, t.first + 7 + wasm.Op(i), t.letter + t.letter + ":" + t.letter})
		}
	}
	return append(all,
		floatOp{"demote", wasm.OpF32DemoteF64, "F:f"},
		floatOp{"promote", wasm.OpF64PromoteF32, "f:F"})
}

// operands are the bits of a value of every kind, of every kind of NaN above all.
var operands = map[byte][]uint64{
	'f': {0, 1 << 31, 0x3f800000, 0xbf800000, 0x00000001, 0x7f800000, 0xff800000, 0x7f7fffff,
		0x7fc00000, 0xffc00000, 0x7fc12345, 0xffc54321, 0x7f800001, 0xff800001, 0x7fa00000, 0xffbfffff, 0x7fffffff},
	'F': {0, 1 << 63, 0x3ff0000000000000, 0xbff0000000000000, 1, 0x7ff0000000000000, 0xfff0000000000000, 0x7fefffffffffffff,
		0x7ff8000000000000, 0xfff8000000000000, 0x7ff8000000012345, 0xfff8000054321000, 0x7ff0000000000001, 0xfff0000000000001,
		0x7ff4000000000000, 0xfff7ffffffffffff, 0x7fffffffffffffff},
}

// floatModule exports every float instruction, as a function of bits.
func floatModule() []byte {
	var m wasmtest.Module
	integer := map[byte]string{'f': "i", 'F': "I"}
	toFloat := map[byte]wasm.Op{'f': wasm.OpF32ReinterpretI32, 'F': wasm.OpF64ReinterpretI64}
	toBits := map[byte]wasm.Op{'f': wasm.OpI32ReinterpretF32, 'F': wasm.OpI64ReinterpretF64}
	for _, f := range floatOps() {
		params, result := f.signature[:len(f.signature)-2], f.signature[len(f.signature)-1]
		code, signature := code(), ""
		for i := range params {
			code.Index(wasm.OpLocalGet, uint32(i)).Op(toFloat[params[i]])
			signature += integer[params[i]]
		}
		code.Op(f.op, toBits[result])
		m.Funcs = append(m.Funcs, wasmtest.Func{Export: f.name, Type: wasmtest.Type(signature + ":" + integer[result]), Code: code})
	}
	return m.Bytes()
}

// TestNaNsAreCanonical runs every float instruction on every pair of operands,
// on both engines: the bits are the same, arithmetic NaNs are canonical, and
// instructions that only move bits move NaNs unchanged.
func TestNaNsAreCanonical(t *testing.T) {
	metered := mustRewrite(t, floatModule(), Options{})
	results := map[string][]string{}
	for engine := range engines {
		g := start(t, engine, metered)
		for _, f := range floatOps() {
			params := f.signature[:len(f.signature)-2]
			for _, a := range operands[params[0]] {
				for _, b := range operands[params[len(params)-1]] {
					got := apply(t, g, f, a, b)
					results[engine] = append(results[engine], fmt.Sprintf("%s %#x %#x: %#x", f.name, a, b, got))
					if want, ok := expectedNaN(f, a, b, got); ok && got != want {
						t.Errorf("%s: %s of %#x and %#x is %#x, not %#x", engine, f.name, a, b, got, want)
					}
				}
			}
		}
	}
	if diff := cmp.Diff(results["compiler"], results["interpreter"]); diff != "" {
		t.Errorf("compiler and interpreter differ:\n%s", diff)
	}
	if n := len(results["compiler"]); n != 30*17*17 {
		t.Errorf("%d results", n)
	}
}

func apply(t *testing.T, g *guest, f floatOp, args ...uint64) uint64 {
	t.Helper()
	results, err := g.ExportedFunction(f.name).Call(context.Background(), args[:len(f.signature)-2]...)
	if err != nil {
		t.Fatal(err)
	}
	if f.signature[len(f.signature)-1] == 'f' {
		return uint64(uint32(results[0]))
	}
	return results[0]
}

// expectedNaN returns the bits that a result must have if it is a NaN, or if
// the instruction only moves bits.
func expectedNaN(f floatOp, a, b, got uint64) (uint64, bool) {
	sign, nan := uint64(1)<<31, math.IsNaN(float64(math.Float32frombits(uint32(got))))
	canonical := uint64(0x7fc00000)
	if f.signature[len(f.signature)-1] == 'F' {
		sign, nan, canonical = 1<<63, math.IsNaN(math.Float64frombits(got)), 0x7ff8000000000000
	}
	switch f.op {
	case wasm.OpF32Abs, wasm.OpF64Abs:
		return a &^ sign, true
	case wasm.OpF32Neg, wasm.OpF64Neg:
		return a ^ sign, true
	case wasm.OpF32Copysign, wasm.OpF64Copysign:
		return a&^sign | b&sign, true
	}
	return canonical, nan
}

// TestNaNCanonicalization lists ways on which a NaN of arithmetic can and cannot
// be seen, and counts the instructions that are made canonical.
func TestNaNCanonicalization(t *testing.T) {
	x := func() *wasm.Asm { return code().Index(wasm.OpLocalGet, 0) }
	sqrt := func() *wasm.Asm { return x().Op(wasm.OpF64Sqrt) }
	global, one := uint32(0), int32(1)
	tests := []struct {
		name string
		code *wasm.Asm // (f64) -> (), with a local f64
		want int
	}{
		{"compared", sqrt().Index(wasm.OpLocalGet, 0).Op(wasm.OpF64Lt, wasm.OpDrop), 0},
		{"truncated", sqrt().Op(wasm.OpI32TruncF64S, wasm.OpDrop), 0},
		{"dropped", sqrt().Op(wasm.OpDrop), 0},
		{"computed on, dropped", sqrt().Op(wasm.OpF64Ceil, wasm.OpF64Floor, wasm.OpDrop), 0},
		{"computed on, stored", asmAfter(code().I32(0), sqrt().Op(wasm.OpF64Ceil).Access(wasm.OpF64Store, 0)), 1},
		{"reinterpreted", sqrt().Op(wasm.OpI64ReinterpretF64, wasm.OpDrop), 1},
		{"negated and reinterpreted", sqrt().Op(wasm.OpF64Neg, wasm.OpI64ReinterpretF64, wasm.OpDrop), 1},
		{"negated and compared", sqrt().Op(wasm.OpF64Neg).Index(wasm.OpLocalGet, 0).Op(wasm.OpF64Lt, wasm.OpDrop), 0},
		{"as the sign of another", asmAfter(x(), sqrt().Op(wasm.OpF64Copysign, wasm.OpI64ReinterpretF64, wasm.OpDrop)), 1},
		{"as the sign of a number that is compared", asmAfter(x(), sqrt().Op(wasm.OpF64Copysign).Index(wasm.OpLocalGet, 0).Op(wasm.OpF64Lt, wasm.OpDrop)), 1},
		{"with the sign of another, compared", asmAfter(sqrt(), x().Op(wasm.OpF64Copysign).Index(wasm.OpLocalGet, 0).Op(wasm.OpF64Lt, wasm.OpDrop)), 0},
		{"in a global", sqrt().Index(wasm.OpGlobalSet, global), 1},
		{"to a function", sqrt().Index(wasm.OpCall, 1), 1},
		{"selected and stored", asmAfter(code().I32(0), sqrt().Index(wasm.OpLocalGet, 0).I32(one).Op(wasm.OpSelect).Access(wasm.OpF64Store, 0)), 1},
		{"in a local that is compared", sqrt().Index(wasm.OpLocalSet, 1).Index(wasm.OpLocalGet, 1).Index(wasm.OpLocalGet, 1).Op(wasm.OpF64Eq, wasm.OpDrop), 0},
		{"in a local that is stored before", asmAfter(code().I32(0).Index(wasm.OpLocalGet, 1).Access(wasm.OpF64Store, 0), sqrt().Index(wasm.OpLocalSet, 1)), 1},
		{"through two locals to memory", asmAfter(sqrt().Index(wasm.OpLocalTee, 1).Index(wasm.OpLocalSet, 0).I32(0), x().Access(wasm.OpF64Store, 0)), 1},
		{"out of a block", asmAfter(code().Block(wasm.OpBlock, wasm.BlockOf(wasm.F64)), sqrt().Op(wasm.OpEnd, wasm.OpDrop)), 1},
		{"with a branch", asmAfter(code().Block(wasm.OpBlock, wasm.BlockOf(wasm.F64)), sqrt().Index(wasm.OpBr, 0).Op(wasm.OpEnd, wasm.OpDrop)), 1},
		{"under a block", asmAfter(code().I32(0), sqrt().Block(wasm.OpBlock, wasm.BlockEmpty).Op(wasm.OpEnd).Access(wasm.OpF64Store, 0)), 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			m := wasmtest.Module{
				Memory:  wasmtest.Pages(1),
				Globals: []wasmtest.Global{{Type: wasm.F64, Mutable: true}},
				Funcs: []wasmtest.Func{
					{Type: wasmtest.Type("F:"), Locals: []wasm.LocalGroup{{Count: 1, Type: wasm.F64}}, Code: tt.code},
					{Type: wasmtest.Type("F:"), Code: code()},
				},
			}
			res := mustRewrite(t, m.Bytes(), Options{})
			if res.Canonicalized != tt.want {
				t.Errorf("%d of %d are canonical, want %d", res.Canonicalized, res.Arithmetic, tt.want)
			}
			start(t, "compiler", res) // it is valid
		})
	}
}

func asmAfter(a, b *wasm.Asm) *wasm.Asm {
	*a = append(*a, *b...)
	return a
}
