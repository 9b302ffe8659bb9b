package wasmtest

import (
	"encoding/binary"

	"github.com/starling-host/starling/internal/wasm"
)

// The bounds of a body.
const (
	maxNesting = 7  // of blocks
	maxDepth   = 5  // of an expression
	maxStack   = 10 // values that a block leaves lying about
	maxRounds  = 5  // of a loop, at most, each time that it is entered
)

// frame is an open block. The function itself is the outermost one.
type frame struct {
	base    int            // height of the stack below the parameters
	label   []wasm.ValType // what a branch to it takes
	results []wasm.ValType
	dead    bool // behind a branch, where operands may come from nowhere
}

// body makes the code of one function.
type body struct {
	g      *generator
	src    *source
	self   int // index of the function
	t      wasm.FuncType
	code   wasm.Asm
	locals []wasm.ValType // parameters first
	usable int            // locals below are for anybody, those above are counters and scratch
	stack  []wasm.ValType
	floor  int // of the stack: the operands below are spoken for, see push
	frames []frame
	ops    int // left
}

func newBody(g *generator, self int) *body {
	t := g.funcs[self]
	b := &body{g: g, src: &g.src, self: self, t: t, ops: maxOps}
	b.locals = append(append(b.locals, t.Params...), g.types(maxParams)...)
	b.usable = len(b.locals)
	b.frames = []frame{{label: t.Results, results: t.Results}}
	return b
}

func (b *body) run() {
	b.statements(24)
	b.finish()
}

// top is the innermost open block.
func (b *body) top() *frame { return &b.frames[len(b.frames)-1] }

// done is true when no more statements should follow.
func (b *body) done() bool { return b.src.spent() || b.ops <= 0 }

func (b *body) op(ops ...wasm.Op) {
	b.ops -= len(ops)
	b.code.Op(ops...)
}

func (b *body) index(op wasm.Op, i uint32) {
	b.ops--
	b.code.Index(op, i)
}

// constant pushes a constant, without the stack of types.
func (b *body) constant(t wasm.ValType, v uint64) {
	b.ops--
	switch t {
	case wasm.I32:
		b.code.I32(int32(v))
	case wasm.I64:
		b.code.I64(int64(v))
	case wasm.F32:
		b.code = binary.LittleEndian.AppendUint32(wasm.OpF32Const.Append(b.code), uint32(v))
	case wasm.F64:
		b.code = binary.LittleEndian.AppendUint64(wasm.OpF64Const.Append(b.code), v)
	}
}

// pop takes n operands off the stack; those that dead code takes from nowhere
// are not there.
func (b *body) pop(n int) {
	b.stack = b.stack[:max(len(b.stack)-n, b.top().base)]
}

func (b *body) pushed(ts ...wasm.ValType) { b.stack = append(b.stack, ts...) }

// want makes ts the topmost operands: values that lie there already are used
// when they fit, and dead code may leave out the first ones.
func (b *body) want(depth int, ts ...wasm.ValType) {
	have := 0
	for n := min(len(ts), len(b.stack)-max(b.top().base, b.floor)); n > 0; n-- {
		if equal(b.stack[len(b.stack)-n:], ts[:n]) {
			have = n
			break
		}
	}
	if b.src.oneIn(3) {
		have = 0
	}
	if b.top().dead && len(b.stack) == b.top().base {
		have = b.src.below(len(ts) + 1)
	}
	for _, t := range ts[have:] {
		b.push(depth, t)
	}
}

func equal(a, b []wasm.ValType) bool { return string(a) == string(b) }

// discard empties the stack of the innermost block down to the given height.
// What the code has computed goes where somebody can see it.
func (b *body) discard(height int) {
	for len(b.stack) > height {
		b.sink(b.stack[len(b.stack)-1])
	}
}

// sink consumes the topmost operand, of type t.
func (b *body) sink(t wasm.ValType) {
	if local, ok := b.local(t); ok && b.src.oneIn(2) {
		b.index(wasm.OpLocalSet, local)
	} else if global, ok := b.global(t, true); ok && !b.src.oneIn(3) {
		b.index(wasm.OpGlobalSet, global)
	} else {
		b.op(wasm.OpDrop)
	}
	b.pop(1)
}

// local returns a local of type t that may be written.
func (b *body) local(t wasm.ValType) (uint32, bool) {
	return find(b.src, b.usable, func(i int) bool { return b.locals[i] == t })
}

// global returns a global of type t.
func (b *body) global(t wasm.ValType, mutable bool) (uint32, bool) {
	all := b.g.m.Globals
	return find(b.src, len(all), func(i int) bool { return all[i].Type == t && (all[i].Mutable || !mutable) })
}

// find returns one of the indices below n that fit.
func find(s *source, n int, fits func(int) bool) (uint32, bool) {
	from := 0
	if n > 0 {
		from = s.below(n)
	}
	for i := range n {
		if at := (from + i) % n; fits(at) {
			return uint32(at), true
		}
	}
	return 0, false
}

// own adds a local that only the caller knows of.
func (b *body) own(t wasm.ValType) uint32 {
	b.locals = append(b.locals, t)
	return uint32(len(b.locals) - 1)
}

// finish leaves exactly the results of the innermost block on the stack. In
// dead code the first ones may be missing.
func (b *body) finish() {
	f := *b.top()
	have := b.stack[f.base:]
	n := 0
	for n < min(len(have), len(f.results)) && have[n] == f.results[n] {
		n++
	}
	b.discard(f.base + n)
	if f.dead && n == 0 {
		n = b.src.below(len(f.results) + 1)
	}
	for _, t := range f.results[n:] {
		b.push(2, t)
	}
	b.stack = append(b.stack[:f.base], f.results...)
}
