package rewrite

import "github.com/starling-host/starling/internal/wasm"

// WebAssembly leaves open which NaN an arithmetic instruction gives, and
// processors and engines differ. The rewriter makes it the canonical one,
// positive and with no payload but the quiet bit, as the specification's
// deterministic profile requires: after the instruction it compares the result
// with itself and replaces it if it is not equal.
//
// Not behind every instruction. Most arithmetic NaNs are seen only by more
// arithmetic, which gives a NaN for any NaN; by a comparison, which is false for
// all; or by a truncation, which traps or gives zero for all. A NaN has to be
// canonical only where it can get anywhere else (memory, a global, a call, a
// result, a reinterpretation, a block's end). The analysis follows operands and
// locals through one function, without regard to the order of execution, and so
// errs on the side of too many.
//
// An instruction whose operand bits pass through (select, abs, neg, copysign,
// local.tee) is seen where its result is seen. The exception is the operand from
// which copysign takes the sign: the sign of a NaN becomes a number's, which
// everything sees.

// mostBranches is how many canonicalisations of one function use a branch. A
// branch that is never taken costs half of a select when it runs, but the
// engine's compiler takes time by the square of the branches.
const mostBranches = 512

// floatResult returns the type of the NaN that an arithmetic instruction can
// give, or false when the specification defines the bits of its result.
func floatResult(op wasm.Op) (wasm.ValType, bool) {
	switch {
	case op >= wasm.OpF32Ceil && op <= wasm.OpF32Max, op == wasm.OpF32DemoteF64:
		return wasm.F32, true
	case op >= wasm.OpF64Ceil && op <= wasm.OpF64Max, op == wasm.OpF64PromoteF32:
		return wasm.F64, true
	}
	return 0, false
}

// sameForEveryNaN reports whether an instruction that is not arithmetic does the same for every
// NaN.
func sameForEveryNaN(op wasm.Op) bool {
	return op == wasm.OpDrop ||
		op >= wasm.OpF32Eq && op <= wasm.OpF64Ge ||
		op >= wasm.OpI32TruncF32S && op <= wasm.OpI32TruncF64U ||
		op >= wasm.OpI64TruncF32S && op <= wasm.OpI64TruncF64U ||
		op >= wasm.OpI32TruncSatF32S && op <= wasm.OpI64TruncSatF64U
}

// passesThrough reports whether an instruction with a NaN operand returns a NaN
// with bits of that operand.
func passesThrough(op wasm.Op) bool {
	switch op {
	case wasm.OpF32Abs, wasm.OpF32Neg, wasm.OpF32Copysign, wasm.OpF64Abs, wasm.OpF64Neg, wasm.OpF64Copysign,
		wasm.OpSelect, wasm.OpSelectTyped:
		return true
	}
	return false
}

// nowhere is the origin of an operand that no arithmetic of this function made.
const nowhere = -1

// operandScan goes over a body once and finds the arithmetic instructions that have to be
// canonical, and the selects of floats (see selectBits). Its slices are used again for the
// next body.
type operandScan struct {
	canonical []int       // offsets of the instructions, ascending: a result
	selects   []selection // of floats, in the order of their offsets: a result
	sources   []int       // offsets of all arithmetic instructions

	// An origin is a local, by its index, or an arithmetic instruction, by its
	// number after the locals. Origins whose values meet are one class: class
	// leads to a representative, and seen is true there when any of them has to
	// be canonical.
	class  []int
	seen   []bool
	locals []wasm.ValType

	stack  []operand
	frames []typedBlock
}

// operand is a value on the stack. Its type is zero if it is not known, in dead code.
type operand struct {
	origin int
	t      wasm.ValType
}

// typedBlock is an open block.
type typedBlock struct {
	base int // height of the stack below its parameters
	t    wasm.FuncType
}

// scan analyses a body, with the iterator at its first instruction, if there can be
// something to find. The body has passed the gate, but its operand types are
// unchecked: in an invalid body the result means nothing and must only do no harm.
func (n *operandScan) scan(m *wasm.Module, it wasm.Iter, params []wasm.ValType, groups []wasm.LocalGroup, any bool) {
	*n = operandScan{
		canonical: n.canonical[:0], selects: n.selects[:0], sources: n.sources[:0], class: n.class[:0], seen: n.seen[:0],
		stack: n.stack[:0], frames: append(n.frames[:0], typedBlock{}), locals: append(n.locals[:0], params...),
	}
	if !any {
		return
	}
	for _, g := range groups {
		for range g.Count {
			n.locals = append(n.locals, g.Type)
		}
	}
	for i := range n.locals {
		n.class, n.seen = append(n.class, i), append(n.seen, false)
	}
	for it.Next() {
		n.step(m, &it)
	}
	n.look() // at the results
	for i, at := range n.sources {
		if n.seen[n.find(len(n.locals)+i)] {
			n.canonical = append(n.canonical, at)
		}
	}
}

func (n *operandScan) step(m *wasm.Module, it *wasm.Iter) {
	switch op := it.Op; op {
	case wasm.OpBlock, wasm.OpLoop, wasm.OpIf:
		n.enter(m, it)
	case wasm.OpElse:
		n.look()
		n.goOn(n.frames[len(n.frames)-1].t.Params)
	case wasm.OpEnd:
		n.look()
		n.goOn(n.frames[len(n.frames)-1].t.Results)
		n.frames = n.frames[:max(len(n.frames)-1, 1)] // the first is the function
	case wasm.OpBrIf:
		n.pop()
		n.look()
	case wasm.OpBr, wasm.OpBrTable, wasm.OpReturn, wasm.OpUnreachable:
		n.look()
		n.goOn(nil)
	case wasm.OpCall:
		n.call(m.Types[m.FuncTypeIndex(int(it.Index))])
	case wasm.OpCallIndirect:
		n.pop()
		n.call(m.Types[it.Index])
	case wasm.OpLocalGet:
		n.push(int(it.Index), n.locals[it.Index])
	case wasm.OpLocalSet:
		n.meet(n.pop().origin, int(it.Index))
	case wasm.OpLocalTee:
		o := n.pop()
		n.push(n.meet(o.origin, int(it.Index)), o.t)
	case wasm.OpGlobalGet:
		n.push(nowhere, m.Globals[it.Index].Type)
	default:
		n.operate(op, it.Instr.Pos)
	}
}

// operate is an instruction that is neither control nor call nor about variables.
func (n *operandScan) operate(op wasm.Op, pos int) {
	pops, pushes := arity(op)
	result := operand{origin: nowhere, t: resultType(op)}
	selects := op == wasm.OpSelect || op == wasm.OpSelectTyped
	if selects {
		result.t = 0
	}
	if op == wasm.OpF32Copysign || op == wasm.OpF64Copysign {
		n.see(n.pop().origin)
		pops--
	}
	for i := range pops {
		from := n.pop()
		if selects && i > 0 { // after the condition
			result.t = max(result.t, from.t) // in dead code, one of them may be unknown
		}
		switch {
		case passesThrough(op):
			result.origin = n.meet(from.origin, result.origin)
		case sameForEveryNaN(op), isArithmetic(op):
		default:
			n.see(from.origin)
		}
	}
	if selects && (result.t == wasm.F32 || result.t == wasm.F64) {
		n.selects = append(n.selects, selection{pos, result.t})
	}
	if isArithmetic(op) {
		result.origin = len(n.class)
		n.sources = append(n.sources, pos)
		n.class, n.seen = append(n.class, result.origin), append(n.seen, false)
	}
	for range pushes {
		n.stack = append(n.stack, result)
	}
}

func isArithmetic(op wasm.Op) bool {
	_, ok := floatResult(op)
	return ok
}

func (n *operandScan) push(origin int, t wasm.ValType) { n.stack = append(n.stack, operand{origin, t}) }

// pop takes an operand. Below the base of a block there is only what dead code
// wishes for.
func (n *operandScan) pop() operand {
	last := len(n.stack) - 1
	if last < n.frames[len(n.frames)-1].base {
		return operand{origin: nowhere}
	}
	top := n.stack[last]
	n.stack = n.stack[:last]
	return top
}

// goOn makes the block's stack hold operands of these types from elsewhere.
func (n *operandScan) goOn(types []wasm.ValType) {
	n.stack = n.stack[:min(n.frames[len(n.frames)-1].base, len(n.stack))]
	for _, t := range types {
		n.push(nowhere, t)
	}
}

// look sees every operand of the block: some of them leave it.
func (n *operandScan) look() {
	for _, o := range n.stack[min(n.frames[len(n.frames)-1].base, len(n.stack)):] {
		n.see(o.origin)
	}
}

func (n *operandScan) enter(m *wasm.Module, it *wasm.Iter) {
	if it.Op == wasm.OpIf {
		n.pop()
	}
	t := m.TypeOfBlock(it.Block)
	for range t.Params {
		n.see(n.pop().origin)
	}
	n.frames = append(n.frames, typedBlock{len(n.stack), t})
	n.goOn(t.Params)
}

func (n *operandScan) call(t wasm.FuncType) {
	for range t.Params {
		n.see(n.pop().origin)
	}
	for _, r := range t.Results {
		n.push(nowhere, r)
	}
}

func (n *operandScan) see(origin int) {
	if origin != nowhere {
		n.seen[n.find(origin)] = true
	}
}

// find returns the representative of an origin's class, and shortens the way.
func (n *operandScan) find(origin int) int {
	for n.class[origin] != origin {
		n.class[origin] = n.class[n.class[origin]]
		origin = n.class[origin]
	}
	return origin
}

// meet makes one class of two origins and returns a member.
func (n *operandScan) meet(a, b int) int {
	if a == nowhere || b == nowhere {
		return max(a, b)
	}
	a, b = n.find(a), n.find(b)
	n.class[a] = b
	n.seen[b] = n.seen[a] || n.seen[b]
	return b
}

// canonicalize appends what makes the result of op canonical. The scratch
// local of the type holds it meanwhile. A constant has the canonical NaN in little-endian order.
func (w *meter) canonicalize(a *wasm.Asm, op wasm.Op) {
	t, _ := floatResult(op)
	scratch, ne, eq := w.scratch32, wasm.OpF32Ne, wasm.OpF32Eq
	if t == wasm.F64 {
		scratch, ne, eq = w.scratch64, wasm.OpF64Ne, wasm.OpF64Eq
	}
	a.Index(wasm.OpLocalTee, scratch)
	if len(w.n.canonical) > mostBranches {
		toBits, toFloat, _ := w.bitsOf(t)
		if a.Op(toBits); t == wasm.F32 {
			a.I32(0x7fc00000)
		} else {
			a.I64(0x7ff8000000000000)
		}
		a.Index(wasm.OpLocalGet, scratch).Index(wasm.OpLocalGet, scratch)
		a.Op(eq, wasm.OpSelect, toFloat) // of bits: see selects
		return
	}
	a.Index(wasm.OpLocalGet, scratch).Op(ne).Block(wasm.OpIf, wasm.BlockEmpty)
	if t == wasm.F32 {
		*a = append(*a.Op(wasm.OpF32Const), 0, 0, 0xc0, 0x7f)
	} else {
		*a = append(*a.Op(wasm.OpF64Const), 0, 0, 0, 0, 0, 0, 0xf8, 0x7f)
	}
	a.Index(wasm.OpLocalSet, scratch).Op(wasm.OpEnd)
	a.Index(wasm.OpLocalGet, scratch)
}
