package rewrite

import "github.com/starling-host/starling/host/wasm"

// selects keep float selections away from a defect of wazero's compiler, version
// 1.12, on amd64. It moves the second operand into a register, and the first one
// over it if the condition holds; but it does not tell its register allocator
// that the second move keeps what was there. When the register changes in
// between, a false condition leaves whatever that register had: another value of
// the guest, or one of the host.
//
// So a select of floats selects their bits, as integers. Which selects are of
// floats is not written in them; this pass follows the types of operands. Like
// the code of the other rewritings this costs no fuel.
type selects struct {
	found []selection // of floats, in the order of their offsets: the result

	locals []wasm.ValType
	stack  []wasm.ValType // of each operand; zero if nobody knows, in dead code
	open   []typedBlock
}

// typedBlock is an open block.
type typedBlock struct {
	base int // height of the stack below its parameters
	t    wasm.FuncType
}

// selection is a select of floats.
type selection struct {
	pos int
	t   wasm.ValType
}

// scan analyses a body, with the iterator at its first instruction, if there is
// a select in it. What it finds in an invalid body means nothing and does no
// harm.
func (s *selects) scan(m *wasm.Module, it wasm.Iter, params []wasm.ValType, groups []wasm.LocalGroup, any bool) {
	*s = selects{found: s.found[:0], locals: append(s.locals[:0], params...), stack: s.stack[:0], open: append(s.open[:0], typedBlock{})}
	if !any {
		return
	}
	for _, g := range groups {
		for range g.Count {
			s.locals = append(s.locals, g.Type)
		}
	}
	for it.Next() {
		s.step(m, &it)
	}
}

func (s *selects) step(m *wasm.Module, it *wasm.Iter) {
	switch op := it.Op; op {
	case wasm.OpBlock, wasm.OpLoop, wasm.OpIf:
		s.enter(m, it)
	case wasm.OpElse:
		s.goOn(s.open[len(s.open)-1].t.Params)
	case wasm.OpEnd:
		s.goOn(s.open[len(s.open)-1].t.Results)
		s.open = s.open[:max(len(s.open)-1, 1)]
	case wasm.OpBrIf, wasm.OpCallIndirect:
		s.pop()
		if op == wasm.OpCallIndirect {
			s.call(m.Types[it.Index])
		}
	case wasm.OpBr, wasm.OpBrTable, wasm.OpReturn, wasm.OpUnreachable:
		s.goOn(nil)
	case wasm.OpCall:
		s.call(m.Types[m.FuncTypeIndex(int(it.Index))])
	case wasm.OpSelect, wasm.OpSelectTyped:
		s.choose(it.Instr.Pos)
	case wasm.OpLocalTee: // leaves its operand
	case wasm.OpLocalGet:
		s.stack = append(s.stack, s.locals[it.Index])
	case wasm.OpGlobalGet:
		s.stack = append(s.stack, m.Globals[it.Index].Type)
	default:
		pops, pushes := arity(op)
		for range pops {
			s.pop()
		}
		for range pushes {
			s.stack = append(s.stack, resultType(op))
		}
	}
}

// enter opens a block.
func (s *selects) enter(m *wasm.Module, it *wasm.Iter) {
	if it.Op == wasm.OpIf {
		s.pop()
	}
	var t wasm.FuncType
	if index, ok := it.Block.Index(); ok {
		t = m.Types[index]
	} else if result, ok := it.Block.Result(); ok {
		t.Results = []wasm.ValType{result}
	}
	for range t.Params {
		s.pop()
	}
	s.open = append(s.open, typedBlock{len(s.stack), t})
	s.stack = append(s.stack, t.Params...)
}

// goOn has the block go on with operands of these types.
func (s *selects) goOn(types []wasm.ValType) {
	base := s.open[len(s.open)-1].base
	s.stack = append(s.stack[:min(base, len(s.stack))], types...)
}

func (s *selects) call(t wasm.FuncType) {
	for range t.Params {
		s.pop()
	}
	s.stack = append(s.stack, t.Results...)
}

// choose is a select. In dead code one of its operands may be unknown.
func (s *selects) choose(pos int) {
	s.pop()
	t := max(s.pop(), s.pop())
	if t == wasm.F32 || t == wasm.F64 {
		s.found = append(s.found, selection{pos, t})
	}
	s.stack = append(s.stack, t)
}

// pop takes an operand. Below the base of a block there is only what dead code
// wishes for.
func (s *selects) pop() wasm.ValType {
	last := len(s.stack) - 1
	if last < s.open[len(s.open)-1].base {
		return 0
	}
	t := s.stack[last]
	s.stack = s.stack[:last]
	return t
}

// resultType returns the type of what an instruction leaves that is neither
// control nor call nor about variables.
func resultType(op wasm.Op) wasm.ValType {
	for _, r := range typeRuns {
		if op <= r.last {
			return r.t
		}
	}
	return wasm.I64 // the last four saturating truncations
}

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

// selectBits appends a select of floats as one of their bits.
func (w *meter) selectBits(a *wasm.Asm, t wasm.ValType) {
	toBits, toFloat, scratch := w.bitsOf(t)
	a.Index(wasm.OpLocalSet, w.condition)
	a.Op(toBits)
	a.Index(wasm.OpLocalSet, scratch)
	a.Op(toBits)
	a.Index(wasm.OpLocalGet, scratch)
	a.Index(wasm.OpLocalGet, w.condition)
	a.Op(wasm.OpSelect, toFloat)
}
