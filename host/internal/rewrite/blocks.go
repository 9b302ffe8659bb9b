package rewrite

import (
	"github.com/starling-host/starling/internal/wasm"
	"github.com/starling-host/starling/internal/work"
)

// charge is the head of one straight-line block: its position, the total cost of its instructions,
// whether the counter is checked there, and whether it has an instruction for which [seesCounter]
// returns true.
type charge struct {
	pos   int // offset of the instruction before which it stands
	cost  uint64
	check bool
	seen  bool
}

// profile is the result of one pass over a function body. Its slices are used
// again for the next body.
type profile struct {
	charges []charge
	slots   int  // of the frame
	leaf    bool // see isLeaf

	frames []frame
	height int // of the operand stack
	peak   int // the highest it gets
	dead   bool
	floats bool   // it has instructions that can give a NaN
	choose bool   // it has a select
	since  uint64 // the most that can have been spent since a check, here
	tail   uint64 // the most that is spent between the return of a call and its own
}

// frame is an open block.
type frame struct {
	op      wasm.Op
	base    int // height of the operand stack below the parameters
	params  int
	results int
	live    bool   // whether the code before it can be executed
	joined  bool   // whether its end is reached other than from the instruction before it
	before  uint64 // since, at its beginning
	since   uint64 // at its end, the most of all branches to it
}

const (
	slotsBase = 16 // of a frame: return address, saved registers, spills of the compiler

	// checkEvery is how much a function spends between two checks. A unit that
	// misses all caches takes a hundred nanoseconds or more; this many of them
	// then take some milliseconds.
	checkEvery = 1 << 15

	// afterCall is how much a function spends between the return of a call and a
	// check. It is little, because thousands of functions may return to one
	// another with no check in between; see leaveFunction.
	afterCall = 64

	// A leaf is too small to be worth a check at its entry and a frame in the
	// depth budget; its caller accounts for its cost.
	leafCost   = 64
	leafLocals = 64
	notLeaf    = -1
)

// leaves returns the cost of each function body that is a leaf, and notLeaf for
// the others. A leaf calls nothing, declares few locals, and has neither loops
// nor many instructions.
func leaves(w *work.Budget, m *wasm.Module) ([]int, error) {
	if err := w.Hold(8 * len(m.Code)); err != nil {
		return nil, err
	}
	all := make([]int, len(m.Code))
	var groups []wasm.LocalGroup
	for i := range m.Code {
		var it wasm.Iter
		err := w.Spend(m.Code[i].End - m.Code[i].Pos)
		if err == nil {
			groups, it, err = m.Body(i, groups[:0])
		}
		if err != nil {
			return nil, Malformed(err)
		}
		all[i] = leaf(m.Types[m.Funcs[i]], groups, it)
	}
	return all, nil
}

// leaf returns the cost of a leaf. It reads no further than it has to.
func leaf(t wasm.FuncType, groups []wasm.LocalGroup, it wasm.Iter) int {
	locals := len(t.Params)
	for _, g := range groups {
		locals += int(g.Count)
	}
	if locals > leafLocals {
		return notLeaf
	}
	total := uint64(costEntry)
	for it.Next() {
		if total += Cost(&it.Instr, 0); total > leafCost {
			return notLeaf
		}
		switch it.Op {
		case wasm.OpLoop, wasm.OpCall, wasm.OpCallIndirect, wasm.OpMemoryGrow, wasm.OpMemoryCopy, wasm.OpMemoryFill:
			return notLeaf
		}
	}
	return int(total)
}

// profileBody splits a body, with the iterator at its first instruction, into
// straight-line blocks and measures its frame. The body has passed the gate, but
// its operand types are unchecked: the heights of an invalid body mean nothing
// and must only do no harm.
//
// Beside loop heads and the entry, a check stands wherever some way through the
// body could otherwise spend too much without one. It begins a straight-line
// block, just before an instruction that costs something, so that the counter
// has grown since the last check.
func (p *profile) profileBody(m *wasm.Module, it wasm.Iter, locals int, isLeaf bool, leaves []int) error {
	*p = profile{charges: p.charges[:0], frames: p.frames[:0], leaf: isLeaf}
	p.open(it.Pos(), costEntry, !isLeaf)
	imported := m.NumImportedFuncs()
	for it.Next() {
		c := Cost(&it.Instr, imported)
		if c > 0 && p.since >= checkEvery && !p.dead && it.Op != wasm.OpLoop {
			p.open(it.Instr.Pos, 0, true)
		}
		if seesCounter(it.Op) {
			p.charges[len(p.charges)-1].seen = true
		}
		switch it.Op {
		case wasm.OpBlock, wasm.OpLoop, wasm.OpIf:
			p.enter(m, &it, c)
		case wasm.OpElse:
			p.alternate(it.End)
		case wasm.OpEnd:
			p.leave(it.End)
		case wasm.OpBr, wasm.OpBrIf, wasm.OpBrTable, wasm.OpReturn, wasm.OpUnreachable:
			p.add(c)
			p.branch(&it)
		case wasm.OpCall:
			p.add(c)
			p.call(m.Types[m.FuncTypeIndex(int(it.Index))])
			p.spend(int(it.Index)-imported, leaves)
		case wasm.OpCallIndirect:
			p.add(c)
			p.shift(-1)
			p.call(m.Types[it.Index])
			p.since += leafCost // which it may call
			p.returned()
		case wasm.OpMemoryGrow, wasm.OpMemoryCopy, wasm.OpMemoryFill: // calls of helpers
			p.shift(stackDelta(it.Op))
			p.returned()
		default:
			p.add(c)
			p.floats = p.floats || isArithmetic(it.Op)
			p.choose = p.choose || it.Op == wasm.OpSelect || it.Op == wasm.OpSelectTyped
			p.shift(stackDelta(it.Op))
		}
	}
	p.leaveFunction()
	p.slots = max(slotsBase+locals+p.peak, int(p.tail))
	return Malformed(it.Err())
}

// open begins a block at pos.
func (p *profile) open(pos int, cost uint64, check bool) {
	p.charges = append(p.charges, charge{pos: pos, check: check})
	if check {
		p.since = 0
	}
	p.add(cost)
}

// spend adds a called function's cost to the cost since a check. An import is
// a check, see spec/determinism.md.
func (p *profile) spend(body int, leaves []int) {
	switch {
	case body < 0:
		p.since = 0
	case leaves[body] != notLeaf:
		p.since += uint64(leaves[body])
	default:
		p.returned()
	}
}

// returned is the return of a function that has its own checks, and may spend
// any amount after the last of them.
func (p *profile) returned() { p.since = max(p.since, checkEvery-afterCall) }

// add charges the current block. Code that is never executed costs nothing.
func (p *profile) add(cost uint64) {
	if !p.dead {
		p.charges[len(p.charges)-1].cost += cost
		p.since += cost
	}
}

// shift changes the height. It never goes below the base of the block: in dead code the stack has
// any operands that the code needs.
func (p *profile) shift(delta int) {
	base := 0
	if n := len(p.frames); n > 0 {
		base = p.frames[n-1].base
	}
	p.height = max(p.height+delta, base)
	p.peak = max(p.peak, p.height)
}

func (p *profile) call(t wasm.FuncType) {
	p.shift(-len(t.Params))
	p.shift(len(t.Results))
}

// enter opens a block, loop or if. The body of a loop is a block of its own,
// because branches come back to it, and pays for the check at its head; so is
// the arm of an if.
func (p *profile) enter(m *wasm.Module, it *wasm.Iter, c uint64) {
	if it.Op == wasm.OpIf {
		p.add(c)
		p.shift(-1)
	}
	t := m.TypeOfBlock(it.Block)
	p.frames = append(p.frames, frame{
		op: it.Op, base: max(p.height-len(t.Params), 0), params: len(t.Params), results: len(t.Results), live: !p.dead, before: p.since,
	})
	switch {
	case p.dead || it.Op == wasm.OpBlock:
	case it.Op == wasm.OpLoop:
		p.open(it.End, c, true)
	default:
		p.open(it.End, 0, false)
	}
}

// alternate goes from the first arm of an if to the second.
func (p *profile) alternate(pos int) {
	f := &p.frames[len(p.frames)-1]
	f.op = wasm.OpElse
	p.join(f)
	p.dead, p.since = !f.live, f.before
	p.height = f.base + f.params
	if !p.dead {
		p.open(pos, 0, false)
	}
}

// leave closes a block. What follows is a new straight-line block when the end
// is reached from more than one place.
func (p *profile) leave(pos int) {
	if len(p.frames) == 0 {
		return // the end of the function
	}
	f := p.frames[len(p.frames)-1]
	p.frames = p.frames[:len(p.frames)-1]
	if f.op == wasm.OpIf { // without else: also reached from the if itself
		f.joined, f.since = f.live, max(f.since, f.before)
	}
	p.height = f.base
	p.shift(f.results)
	if f.joined {
		p.since = max(f.since, p.reached())
		p.dead = false
		p.open(pos, 0, false)
	}
}

// join records that the end of a block is reached from here, if here is reached.
func (p *profile) join(f *frame) {
	f.joined = f.joined || !p.dead
	f.since = max(f.since, p.reached())
}

// leaveFunction records the cost since a call when the function is left here. A
// frame has as many slots, so that the budget of slots bounds the total cost of
// functions that return to one another.
func (p *profile) leaveFunction() {
	if from := uint64(checkEvery - afterCall); !p.dead && p.since > from {
		p.tail = max(p.tail, p.since-from)
	}
}

// reached is since, or nothing in code that is never executed.
func (p *profile) reached() uint64 {
	if p.dead {
		return 0
	}
	return p.since
}

// branch marks the targets of a branch and ends the block.
func (p *profile) branch(it *wasm.Iter) {
	switch it.Op {
	case wasm.OpReturn:
		p.leaveFunction()
	case wasm.OpBr, wasm.OpBrIf:
		p.mark(it.Index)
	case wasm.OpBrTable:
		for label := range it.Labels {
			p.mark(label)
		}
	}
	if it.Op == wasm.OpBrIf {
		p.shift(-1)
		if !p.dead {
			p.open(it.End, 0, false)
		}
		return
	}
	p.dead = true
	if n := len(p.frames); n > 0 {
		p.height = p.frames[n-1].base
	}
}

// mark records that a branch goes to the end of a block. A branch to a loop
// goes to its head, which is the beginning of a straight-line block anyway.
func (p *profile) mark(label uint32) {
	at := len(p.frames) - 1 - int(label)
	switch {
	case at < 0:
		p.leaveFunction()
	case !p.dead && p.frames[at].op != wasm.OpLoop:
		p.join(&p.frames[at])
	}
}
