package rewrite

import "github.com/starling-host/starling/internal/wasm"

// The counter is a global, [GlobalFuel]. A function other than a leaf adds to a
// copy of it in a local, which the engine's compiler can keep in a register: the
// additions of successive blocks then need not wait for memory. The global is
// written where something could see it: at the head of a block with a call or
// with an instruction that can trap, before refill is called, and when the
// function is left. It is read again after each call. So the host and the
// callees always find the count that the text in spec/determinism.md gives.

// take copies the counter into the local.
func (w *meter) take(a *wasm.Asm) {
	a.Index(wasm.OpGlobalGet, w.fuel).Index(wasm.OpLocalSet, w.counter)
}

// put copies the local into the counter.
func (w *meter) put(a *wasm.Asm) {
	a.Index(wasm.OpLocalGet, w.counter).Index(wasm.OpGlobalSet, w.fuel)
}

// charge adds cost to the counter, in a function without a copy of it.
func (w *meter) charge(a *wasm.Asm, cost uint64) {
	a.Index(wasm.OpGlobalGet, w.fuel).I64(int64(cost)).Op(wasm.OpI64Add).Index(wasm.OpGlobalSet, w.fuel)
}

// head writes the head of a straight-line block.
func (w *meter) head(a *wasm.Asm, c charge) {
	switch {
	case c.cost == 0:
	case w.p.leaf:
		w.charge(a, c.cost)
	default:
		a.Index(wasm.OpLocalGet, w.counter).I64(int64(c.cost)).Op(wasm.OpI64Add)
		if c.seen {
			a.Index(wasm.OpLocalTee, w.counter).Index(wasm.OpGlobalSet, w.fuel)
		} else {
			a.Index(wasm.OpLocalSet, w.counter)
		}
	}
	if c.check {
		w.checkCopy(a)
	}
}

// check compares the counter with the limit, in a function without a copy of it.
func (w *meter) check(a *wasm.Asm) {
	a.Index(wasm.OpGlobalGet, w.fuel).Index(wasm.OpGlobalGet, w.limit).Op(wasm.OpI64GtU).Block(wasm.OpIf, wasm.BlockEmpty)
	a.Index(wasm.OpCall, w.refill).Op(wasm.OpEnd)
}

// checkCopy compares the copy of the counter with the limit. A leaf has no
// checks.
func (w *meter) checkCopy(a *wasm.Asm) {
	a.Index(wasm.OpLocalGet, w.counter).Index(wasm.OpGlobalGet, w.limit).Op(wasm.OpI64GtU).Block(wasm.OpIf, wasm.BlockEmpty)
	w.put(a)
	a.Index(wasm.OpCall, w.refill)
	w.take(a)
	a.Op(wasm.OpEnd)
}

// seesCounter reports whether others can look at the counter while op is
// executed: it calls, or it can trap.
func seesCounter(op wasm.Op) bool {
	switch op {
	case wasm.OpUnreachable, wasm.OpCall, wasm.OpCallIndirect,
		wasm.OpI32DivS, wasm.OpI32DivU, wasm.OpI32RemS, wasm.OpI32RemU,
		wasm.OpI64DivS, wasm.OpI64DivU, wasm.OpI64RemS, wasm.OpI64RemU,
		wasm.OpMemoryGrow, wasm.OpMemoryCopy, wasm.OpMemoryFill:
		return true
	}
	return op >= wasm.OpI32Load && op <= wasm.OpI64Store32 ||
		op >= wasm.OpI32TruncF32S && op <= wasm.OpI32TruncF64U ||
		op >= wasm.OpI64TruncF32S && op <= wasm.OpI64TruncF64U
}
