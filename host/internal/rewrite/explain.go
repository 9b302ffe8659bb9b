package rewrite

import "github.com/starling-host/starling/internal/wasm"

// The record of a trapped call names the trap. An engine of JavaScript has one text for a
// NaN and for a number too large to be truncated, and one for an empty table entry and for
// a function of another type. With [Options.Explain] the module itself sets [GlobalTrap]
// before it traps.

// The values of [GlobalTrap].
const (
	TrapNotNumber = 1 // a NaN is truncated
	TrapNoEntry   = 2 // the callee is not in the table, or is an empty entry
	TrapNoMemory  = 3 // the engine has no memory for pages that the guest may have
)

// truncations are the instructions that trap for a NaN, with the operands' type and the
// results'.
var truncations = []struct {
	op       wasm.Op
	from, to wasm.ValType
	ne       wasm.Op
}{
	{wasm.OpI32TruncF32S, wasm.F32, wasm.I32, wasm.OpF32Ne}, {wasm.OpI32TruncF32U, wasm.F32, wasm.I32, wasm.OpF32Ne},
	{wasm.OpI32TruncF64S, wasm.F64, wasm.I32, wasm.OpF64Ne}, {wasm.OpI32TruncF64U, wasm.F64, wasm.I32, wasm.OpF64Ne},
	{wasm.OpI64TruncF32S, wasm.F32, wasm.I64, wasm.OpF32Ne}, {wasm.OpI64TruncF32U, wasm.F32, wasm.I64, wasm.OpF32Ne},
	{wasm.OpI64TruncF64S, wasm.F64, wasm.I64, wasm.OpF64Ne}, {wasm.OpI64TruncF64U, wasm.F64, wasm.I64, wasm.OpF64Ne},
}

// truncation returns the helper for an instruction of [truncations].
func (w *meter) truncation(op wasm.Op) (function uint32, ok bool) {
	if !w.o.Explain {
		return 0, false
	}
	for i, t := range truncations {
		if t.op == op {
			return w.explain + uint32(i), true
		}
	}
	return 0, false
}

// entryProbe is the helper that looks at an entry of the table before it is called. It
// returns its parameter.
func (w *meter) entryProbe() uint32 { return w.explain + uint32(len(truncations)) }

// explainTypes are the type indices of the helpers, which explainBodies are the bodies of.
func (w *meter) explainTypes() (types [][]byte) {
	if !w.o.Explain {
		return nil
	}
	for _, t := range truncations {
		i := w.typeIndex(wasm.FuncType{Params: []wasm.ValType{t.from}, Results: []wasm.ValType{t.to}})
		types = append(types, wasm.AppendU32(nil, i))
	}
	if len(w.m.Tables) > 0 {
		types = append(types, wasm.AppendU32(nil, w.typeIndex(numberType)))
	}
	return types
}

func (w *meter) explainBodies() (bodies []wasm.Asm) {
	if !w.o.Explain {
		return nil
	}
	for _, t := range truncations {
		a := wasm.Asm{noLocals}
		a.Index(wasm.OpLocalGet, 0).Index(wasm.OpLocalGet, 0).Op(t.ne)
		w.explains(&a, TrapNotNumber)
		a.Index(wasm.OpLocalGet, 0).Op(t.op, wasm.OpEnd)
		bodies = append(bodies, a)
	}
	if len(w.m.Tables) == 0 {
		return bodies
	}
	const table = 0
	a := wasm.Asm{noLocals}
	a.Index(wasm.OpLocalGet, 0).Index(wasm.OpTableSize, table).Op(wasm.OpI32LtU).Block(wasm.OpIf, wasm.BlockEmpty)
	a.Index(wasm.OpLocalGet, 0).Index(wasm.OpTableGet, table).Op(wasm.OpRefIsNull)
	w.explains(&a, TrapNoEntry)
	a.Op(wasm.OpElse)
	a.I32(TrapNoEntry).Index(wasm.OpGlobalSet, w.trap).Op(wasm.OpEnd)
	a.Index(wasm.OpLocalGet, 0).Op(wasm.OpEnd)
	return append(bodies, a)
}

// explains records why the guest is about to trap, if the condition on the stack holds.
func (w *meter) explains(a *wasm.Asm, why int32) {
	a.Block(wasm.OpIf, wasm.BlockEmpty)
	a.I32(why).Index(wasm.OpGlobalSet, w.trap).Op(wasm.OpEnd)
}

// granted ends the guest if the engine has refused pages that the guest may have:
// otherwise its behaviour would depend on the machine.
func (w *meter) granted(a *wasm.Asm, maxPages uint32) {
	if !w.o.Explain {
		return
	}
	a.Index(wasm.OpLocalGet, argPages).I32(int32(maxPages)).Memory(wasm.OpMemorySize).Op(wasm.OpI32Sub, wasm.OpI32LeU)
	a.Block(wasm.OpIf, wasm.BlockEmpty)
	a.I32(TrapNoMemory).Index(wasm.OpGlobalSet, w.trap).Op(wasm.OpUnreachable, wasm.OpEnd)
}
