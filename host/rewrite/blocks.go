package rewrite

import "github.com/starling-host/starling/host/wasm"

// charge is the head of one straight-line block: where it begins, what its
// instructions cost together, and whether the counter is checked there.
type charge struct {
	pos   int // offset of the instruction before which it stands
	cost  uint64
	check bool
}

// profile is what one pass over a function body finds out. Its slices are used
// again for the next body.
type profile struct {
	charges []charge
	slots   int  // of the frame
	leaf    bool // see isLeaf

	frames []frame
	height int // of the operand stack
	peak   int // the highest it gets
	dead   bool
	calls  bool
	floats bool   // it has instructions that can give a NaN
	total  uint64 // cost of all blocks
}

// frame is an open block.
type frame struct {
	op      wasm.Op
	base    int // height of the operand stack below the parameters
	params  int
	results int
	live    bool // whether the code before it can be executed
	joined  bool // whether its end is reached other than from the instruction before it
}

// The bounds of a leaf, see isLeaf.
const (
	leafCost  = 256
	leafSlots = 256
	slotsBase = 16 // return address, saved registers, spills of the compiler
)

// isLeaf decides whether a function is too small to be worth a check at its
// entry and a frame in the depth budget. Its cost is bounded because a caller
// may call it thousands of times between two checks.
func (p *profile) isLeaf() bool {
	return !p.calls && p.total <= leafCost && p.slots <= leafSlots
}

// profileBody splits a body, with the iterator at its first instruction, into straight-line blocks and measures its frame.
// The body has passed the gate, but its operand types are unchecked: the
// heights of an invalid body mean nothing and must only do no harm.
func (p *profile) profileBody(m *wasm.Module, it wasm.Iter, locals int) error {
	*p = profile{charges: p.charges[:0], frames: p.frames[:0]}
	p.open(it.Pos(), costEntry, false)
	imported := m.NumImportedFuncs()
	for it.Next() {
		c := cost(&it.Instr, imported)
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
		case wasm.OpCallIndirect:
			p.add(c)
			p.shift(-1)
			p.call(m.Types[it.Index])
		default:
			p.add(c)
			p.floats = p.floats || isArithmetic(it.Op)
			pops, pushes := arity(it.Op)
			p.shift(pushes - pops)
		}
	}
	p.slots = slotsBase + locals + p.peak
	p.leaf = p.isLeaf()
	p.charges[0].check = !p.leaf
	return malformed(it.Err())
}

// open begins a block at pos.
func (p *profile) open(pos int, cost uint64, check bool) {
	p.charges = append(p.charges, charge{pos: pos, check: check})
	p.add(cost)
}

// add charges the current block. Code that is never executed costs nothing.
func (p *profile) add(cost uint64) {
	if !p.dead {
		p.charges[len(p.charges)-1].cost += cost
		p.total += cost
	}
}

// shift changes the height. Below the base of the block it stays: there the
// stack of dead code is whatever the code wants.
func (p *profile) shift(delta int) {
	base := 0
	if n := len(p.frames); n > 0 {
		base = p.frames[n-1].base
	}
	p.height = max(p.height+delta, base)
	p.peak = max(p.peak, p.height)
}

func (p *profile) call(t wasm.FuncType) {
	p.calls = true
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
	params, results := m.BlockArity(it.Block)
	p.frames = append(p.frames, frame{
		op: it.Op, base: max(p.height-params, 0), params: params, results: results, live: !p.dead,
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
	f.joined = f.joined || !p.dead
	p.dead = !f.live
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
		f.joined = f.live
	}
	p.height = f.base
	p.shift(f.results)
	p.dead = p.dead && !f.joined
	if f.joined {
		p.open(pos, 0, false)
	}
}

// branch marks the targets of a branch and ends the block.
func (p *profile) branch(it *wasm.Iter) {
	switch it.Op {
	case wasm.OpBr, wasm.OpBrIf:
		p.mark(it.Index)
	case wasm.OpBrTable:
		it.Labels(func(label uint32) bool {
			p.mark(label)
			return true
		})
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

// mark notes that a branch goes to the end of a block. A branch to a loop goes
// to its head, which is the beginning of a straight-line block anyway.
func (p *profile) mark(label uint32) {
	at := len(p.frames) - 1 - int(label)
	if at >= 0 && !p.dead && p.frames[at].op != wasm.OpLoop {
		p.frames[at].joined = true
	}
}
