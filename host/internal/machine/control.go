package machine

import (
	"math"
	"slices"

	"github.com/starling-host/starling/internal/wasm"
)

// control is an open block.
type control struct {
	op              wasm.Op
	params, results []wasm.ValType
	height          int     // of the stack below its parameters
	start           int     // operation, of a loop
	otherwise       int     // operation that branches to else, or -1, or noElse
	exits           []patch // that branch to its end
	unreachable     bool    // nothing reaches the rest of it
	silent          bool    // nothing reached its beginning
}

// noElse: there is no else any more.
const noElse = -2

// patch is a branch whose target is not known yet: an operation, or the entry of a table.
type patch struct{ operation, table, entry int }

func (t *translator) top() *control { return &t.control[len(t.control)-1] }

// unreachable ends the code that is reached, up to the end of the block.
func (t *translator) unreachable() {
	c := t.top()
	c.unreachable, t.silent, t.last = true, true, -1
	t.cut(c.height)
}

func (t *translator) open(op wasm.Op, b wasm.BlockType, otherwise int) {
	if index, ok := b.Index(); ok {
		t.exists("type", index, len(t.m.Types))
	}
	block := t.m.TypeOfBlock(b)
	t.expect(block.Params)
	t.settle()
	t.straight = len(t.f.code)
	t.control = append(t.control, control{
		op: op, params: block.Params, results: block.Results, height: len(t.stack) - len(block.Params), start: len(t.f.code), otherwise: otherwise, silent: t.silent,
	})
	// The values may have been of any type: they are the block's parameters.
	t.cut(t.top().height)
	t.pushAll(block.Params)
}

// label returns the block that a branch leads out of, and whether that is the body.
func (t *translator) label(index uint32) (c *control, body bool) {
	t.exists("label", index, len(t.control))
	k := len(t.control) - 1 - int(index)
	return &t.control[k], k == 0
}

// carried are the types that a branch to the block carries.
func (c *control) carried() []wasm.ValType {
	if c.op == wasm.OpLoop {
		return c.params
	}
	return c.results
}

// moves reports whether a branch has to move values.
func (t *translator) moves(c *control) bool {
	base := len(t.stack) - len(c.carried())
	return base < len(t.stack) && (base != c.height || slices.ContainsFunc(t.stack[base:], func(v value) bool { return v.kind != inSlot }))
}

// lead makes a branch lead to a block: to its start, or later to its end.
func (c *control) lead(t *translator, p patch) {
	if c.op == wasm.OpLoop {
		t.target(p, c.start)
	} else {
		c.exits = append(c.exits, p)
	}
}

func (t *translator) target(p patch, to int) {
	t.straight = max(t.straight, to)
	switch {
	case p.operation >= 0:
		in := &t.f.code[p.operation]
		in.imm = in.imm&math.MaxUint32 | uint64(to)<<32
	case p.table >= 0:
		t.f.tables[p.table][p.entry] = uint32(to)
	}
}

// jump emits a branch with its moves. The stack stays as it is. Moves go to lower heights, the
// lowest first, so that none overwrites what another one moves.
func (t *translator) jump(index uint32) {
	c, body := t.label(index)
	if body {
		t.leave()
		return
	}
	n := len(c.carried())
	for k := range n {
		h := len(t.stack) - n + k
		t.put(t.slot(c.height+k), t.stack[h], h)
	}
	c.lead(t, patch{t.emit(operation{op: opJump}), -1, 0})
}

// leave emits a return.
func (t *translator) leave() {
	n := t.f.results
	base := len(t.stack) - n
	switch {
	case n == 1 && t.stack[base].kind == constant:
		t.emit(operation{op: opReturnConst, imm: t.stack[base].bits})
	case n == 1:
		t.emit(operation{op: opReturnSlot, a: t.slotOf(t.stack[base], base)})
	default:
		t.fill(base) // first into their slots, since the results replace locals
		for k := range n {
			t.emit(operation{op: opMove, d: uint16(k), a: t.slot(base + k)})
		}
		t.emit(operation{op: opReturn})
	}
}

// condition pops a condition and emits a branch that is taken if it is as wanted. It calls before
// between the two.
func (t *translator) condition(want int, before func()) int {
	last := t.last
	v, height := t.pop(wasm.I32)
	if last >= 0 && v.kind == inSlot && t.f.code[last].d == t.slot(height) {
		in := t.f.code[last]
		if op := fused[in.op][want]; op != 0 && in.imm <= math.MaxUint32 {
			t.undo(1)
			if prev := last - 1; op == opI64GtUBrIfNot && prev >= t.straight && t.f.code[prev].op == opGlobalGet && t.f.code[prev].d == in.b && int(in.b) >= t.f.locals {
				g := t.f.code[prev].imm // the check of fuel
				t.undo(1)
				op, in.b = opBrIfAtMostGlobal, uint16(g)
			}
			before()
			return t.emit(operation{op: op, a: in.a, b: in.b, imm: in.imm})
		}
	}
	a := t.slotOf(v, height)
	before()
	return t.emit(operation{op: [2]uint16{opBrIfNot, opBrIf}[want], a: a})
}
