package rewrite

import (
	"slices"

	"github.com/starling-host/starling/internal/wasm"
)

// The helpers replace the three instructions whose cost depends on an operand.
// Each charges, checks, and then acts, so that a call which the check ends has
// not acted yet. Since each charges at least one unit, the counter grows
// between any two checks, and a counter names one check.

// The parameters of the helpers.
const (
	argDst   = 0
	argSrc   = 1 // of copy; of fill, the byte
	argCount = 2
	argPages = 0 // of grow
)

// bulkType is the type of fill and copy.
var bulkType = wasm.FuncType{Params: []wasm.ValType{wasm.I32, wasm.I32, wasm.I32}}

// numberType is the type of grow, of the probe of a table's entry, and of the host's function of a bridge.
var numberType = wasm.FuncType{Params: []wasm.ValType{wasm.I32}, Results: []wasm.ValType{wasm.I32}}

// noLocals begins a body that declares no locals.
const noLocals = 0

// fillBody is memory.fill in pieces.
func (w *meter) fillBody() wasm.Asm {
	a := wasm.Asm{noLocals}
	w.trapOutside(&a, wasm.OpMemoryFill, argDst)
	w.pieces(&a, func() {
		w.bulk(&a, wasm.OpMemoryFill)
		step(&a, argDst, bulkChunk)
		step(&a, argCount, -bulkChunk)
	})
	w.rest(&a, wasm.OpMemoryFill)
	return a
}

// copyBody is memory.copy in pieces: upward when the destination is below the
// source, else downward, so that overlapping bytes are read before they are
// written.
func (w *meter) copyBody() wasm.Asm {
	a := wasm.Asm{noLocals}
	w.trapOutside(&a, wasm.OpMemoryCopy, argDst, argSrc)
	a.Index(wasm.OpLocalGet, argDst).Index(wasm.OpLocalGet, argSrc).Op(wasm.OpI32LeU).Block(wasm.OpIf, wasm.BlockEmpty)
	w.pieces(&a, func() {
		w.bulk(&a, wasm.OpMemoryCopy)
		step(&a, argDst, bulkChunk)
		step(&a, argSrc, bulkChunk)
		step(&a, argCount, -bulkChunk)
	})
	a.Op(wasm.OpElse)
	w.pieces(&a, func() {
		step(&a, argCount, -bulkChunk)
		for _, p := range []uint32{argDst, argSrc} {
			a.Index(wasm.OpLocalGet, p).Index(wasm.OpLocalGet, argCount).Op(wasm.OpI32Add)
		}
		a.I32(bulkChunk).Memory(wasm.OpMemoryCopy)
	})
	a.Op(wasm.OpEnd)
	w.rest(&a, wasm.OpMemoryCopy)
	return a
}

// trapOutside executes the whole instruction when a range that begins at one of the given
// parameters does not lie in memory. The instruction then traps and writes nothing, as it must.
func (w *meter) trapOutside(a *wasm.Asm, op wasm.Op, starts ...uint32) {
	for i, p := range starts {
		a.Index(wasm.OpLocalGet, p).Op(wasm.OpI64ExtendI32U)
		a.Index(wasm.OpLocalGet, argCount).Op(wasm.OpI64ExtendI32U, wasm.OpI64Add)
		a.Memory(wasm.OpMemorySize).Op(wasm.OpI64ExtendI32U).I64(16).Op(wasm.OpI64Shl, wasm.OpI64GtU) // 16: pages to bytes
		if i > 0 {
			a.Op(wasm.OpI32Or)
		}
	}
	a.Block(wasm.OpIf, wasm.BlockEmpty)
	for p := range uint32(3) {
		a.Index(wasm.OpLocalGet, p)
	}
	a.Memory(op).Op(wasm.OpEnd)
}

// pieces runs piece, charged and checked, while more than one piece is left.
func (w *meter) pieces(a *wasm.Asm, piece func()) {
	a.Block(wasm.OpBlock, wasm.BlockEmpty)
	a.Block(wasm.OpLoop, wasm.BlockEmpty)
	a.Index(wasm.OpLocalGet, argCount).I32(bulkChunk).Op(wasm.OpI32LeU).Index(wasm.OpBrIf, 1)
	w.charge(a, costBulkChunk)
	w.check(a)
	piece()
	a.Index(wasm.OpBr, 0).Op(wasm.OpEnd, wasm.OpEnd)
}

// bulk executes op for one piece at the first parameters.
func (w *meter) bulk(a *wasm.Asm, op wasm.Op) {
	a.Index(wasm.OpLocalGet, argDst).Index(wasm.OpLocalGet, argSrc).I32(bulkChunk).Memory(op)
}

// rest charges, checks and executes the remaining length, and ends the body.
func (w *meter) rest(a *wasm.Asm, op wasm.Op) {
	a.Index(wasm.OpGlobalGet, w.fuel)
	a.Index(wasm.OpLocalGet, argCount).Op(wasm.OpI64ExtendI32U).I64(bulkUnitsShift).Op(wasm.OpI64ShrU)
	a.I64(costBulk).Op(wasm.OpI64Add, wasm.OpI64Add).Index(wasm.OpGlobalSet, w.fuel)
	w.check(a)
	for p := range uint32(3) {
		a.Index(wasm.OpLocalGet, p)
	}
	a.Memory(op).Op(wasm.OpEnd)
}

// step adds n to a parameter.
func step(a *wasm.Asm, param uint32, n int32) {
	a.Index(wasm.OpLocalGet, param).I32(n).Op(wasm.OpI32Add).Index(wasm.OpLocalSet, param)
}

// growBody is memory.grow. Pages are charged when there is room for them; a
// request that must fail costs its base alone, since guests ask for absurd
// sizes to see whether they get them. The result replaces the request.
func (w *meter) growBody(maxPages uint32) wasm.Asm {
	a := wasm.Asm{noLocals}
	a.Index(wasm.OpGlobalGet, w.fuel).I64(costGrow).Op(wasm.OpI64Add)
	a.Index(wasm.OpLocalGet, argPages).Op(wasm.OpI64ExtendI32U).I64(costPage).Op(wasm.OpI64Mul).I64(0)
	a.Index(wasm.OpLocalGet, argPages).I32(int32(maxPages)).Memory(wasm.OpMemorySize).Op(wasm.OpI32Sub, wasm.OpI32LeU, wasm.OpSelect)
	a.Op(wasm.OpI64Add).Index(wasm.OpGlobalSet, w.fuel)
	w.check(&a)
	a.Index(wasm.OpLocalGet, argPages).Memory(wasm.OpMemoryGrow)
	result := uint32(argPages)
	if w.o.Explain { // which reads the request afterwards
		a[0], result = 1, argPages+1
		a = slices.Insert(a, 1, 1, byte(wasm.I32))
	}
	a.Index(wasm.OpLocalTee, result).I32(0).Op(wasm.OpI32LtS).Block(wasm.OpIf, wasm.BlockEmpty)
	w.granted(&a, maxPages)
	a.I32(1).Index(wasm.OpGlobalSet, w.refused).Op(wasm.OpEnd)
	a.Index(wasm.OpLocalGet, result).Op(wasm.OpEnd)
	return a
}
