package rewrite

import "github.com/starling-host/starling/internal/wasm"

// fusion keeps comparisons away from a defect of wazero's compiler, version
// 1.12, on amd64 and arm64. It fuses a conditional jump, a comparison with zero
// and an "and" into a test of bits, also when the zero is on the left, and does
// not turn the comparison around: 0 < (x & y) jumps when (x & y) < 0. The
// interpreter is right, so the engines would disagree.
//
// The compiler fuses within one basic block. So an ordered comparison behind an
// "and" in the same block gets its right operand through an "or" with zero,
// unless that operand is plainly a constant. Both operands may have come through
// locals, and the zero may be that of a fresh local, so no more is asked. Like
// the code of the other rewritings this costs no fuel.
type fusion struct {
	masked bool // there was an "and" since the block began
	last   wasm.Op
}

// step goes over one instruction and reports whether its right operand has to
// be hidden.
func (f *fusion) step(op wasm.Op) bool {
	last := f.last
	f.last = op
	switch op {
	case wasm.OpI32And, wasm.OpI64And:
		f.masked = true
	case wasm.OpLoop, wasm.OpIf, wasm.OpElse, wasm.OpEnd, wasm.OpBr, wasm.OpBrIf, wasm.OpBrTable, wasm.OpReturn, wasm.OpUnreachable:
		f.masked = false
	}
	return f.masked && isOrdered(op) && last != wasm.OpI32Const && last != wasm.OpI64Const
}

// isOrdered reports whether op compares integers other than for equality.
func isOrdered(op wasm.Op) bool {
	return op >= wasm.OpI32LtS && op <= wasm.OpI32GeU || op >= wasm.OpI64LtS && op <= wasm.OpI64GeU
}

// hide appends code that keeps an operand of the comparison op from being fused.
func hide(a *wasm.Asm, op wasm.Op) {
	if op <= wasm.OpI32GeU {
		a.I32(0).Op(wasm.OpI32Or)
		return
	}
	a.I64(0).Op(wasm.OpI64Or)
}
