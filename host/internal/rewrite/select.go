package rewrite

import "github.com/starling-host/starling/internal/wasm"

// A select of floats meets a defect of wazero's compiler, version 1.12, on amd64. It moves
// the second operand into a register, and the first one over it if the condition holds; but
// it does not tell its register allocator that the second move may keep the old value. When
// the register changes in between, a false condition leaves the register's old value:
// another value of the guest, or one of the host.
//
// So a select of floats selects their bits, as integers. A select does not state whether it
// selects floats; operandScan follows the types of operands. Like the code of the other
// rewritings this costs no fuel.

// selection is a select of floats.
type selection struct {
	pos int
	t   wasm.ValType
}

// resultType returns the type of an instruction's result. The instruction
// must not be control, a call or about variables.
func resultType(op wasm.Op) wasm.ValType {
	switch {
	case op <= 0xff:
		return typesOfResults[op]
	case op <= wasm.OpI32TruncSatF64U:
		return wasm.I32
	}
	return wasm.I64 // the last four saturating truncations
}

// typesOfResults has the result type of each one-byte opcode.
var typesOfResults = func() (all [256]wasm.ValType) {
	op := 0
	for _, run := range typeRuns {
		for ; op < len(all) && op <= int(run.last); op++ {
			all[op] = run.t
		}
	}
	return all
}()

// typeRuns has the last opcode of each run of instructions with one result
// type, in the order of the opcodes.
var typeRuns = []struct {
	last wasm.Op
	t    wasm.ValType
}{
	{wasm.OpI32Load, wasm.I32}, {wasm.OpI64Load, wasm.I64}, {wasm.OpF32Load, wasm.F32}, {wasm.OpF64Load, wasm.F64},
	{wasm.OpI32Load16U, wasm.I32}, {wasm.OpI64Load32U, wasm.I64},
	{wasm.OpI32Const, wasm.I32}, {wasm.OpI64Const, wasm.I64}, {wasm.OpF32Const, wasm.F32}, {wasm.OpF64Const, wasm.F64},
	{wasm.OpI32Rotr, wasm.I32}, // comparisons, and arithmetic of i32
	{wasm.OpI64Rotr, wasm.I64}, {wasm.OpF32Copysign, wasm.F32}, {wasm.OpF64Copysign, wasm.F64},
	{wasm.OpI32TruncF64U, wasm.I32}, {wasm.OpI64TruncF64U, wasm.I64}, {wasm.OpF32DemoteF64, wasm.F32}, {wasm.OpF64PromoteF32, wasm.F64},
	{wasm.OpI32ReinterpretF32, wasm.I32}, {wasm.OpI64ReinterpretF64, wasm.I64}, {wasm.OpF32ReinterpretI32, wasm.F32}, {wasm.OpF64ReinterpretI64, wasm.F64},
	{wasm.OpI32Extend16S, wasm.I32}, {wasm.OpI64Extend32S, wasm.I64}, {wasm.OpI32TruncSatF64U, wasm.I32},
}

// bitsOf returns the instructions between a float and its bits, and the scratch
// local for the bits.
func (w *meter) bitsOf(t wasm.ValType) (toBits, toFloat wasm.Op, scratch uint32) {
	if t == wasm.F32 {
		return wasm.OpI32ReinterpretF32, wasm.OpF32ReinterpretI32, w.bits32
	}
	return wasm.OpI64ReinterpretF64, wasm.OpF64ReinterpretI64, w.bits64
}

// selectBits appends a select of floats as a select of their bits.
func (w *meter) selectBits(a *wasm.Asm, t wasm.ValType) {
	toBits, toFloat, scratch := w.bitsOf(t)
	a.Index(wasm.OpLocalSet, w.condition)
	a.Op(toBits).Index(wasm.OpLocalSet, scratch)
	a.Op(toBits).Index(wasm.OpLocalGet, scratch).Index(wasm.OpLocalGet, w.condition).Op(wasm.OpSelect, toFloat)
}
