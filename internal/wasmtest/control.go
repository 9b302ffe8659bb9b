package wasmtest

import "github.com/starling-host/starling/internal/wasm"

// statements emits at most n steps, and stops early behind a branch, though
// seldom at once.
func (b *body) statements(n int) {
	for range 1 + b.src.below(n) {
		if b.done() || b.top().dead && !b.src.oneIn(3) {
			return
		}
		b.statement()
		if len(b.stack)-b.top().base > maxStack {
			b.discard(b.top().base + b.src.below(maxStack))
		}
	}
}

func (b *body) statement() {
	switch b.src.below(22) {
	case 0, 1:
		b.push(maxDepth, pick(b.src, valTypes))
	case 2, 3, 4:
		b.assign()
	case 5, 6, 7:
		b.store()
	case 8, 9, 10, 11:
		b.anyBlock()
	case 12:
		b.callAny()
	case 13:
		b.callIndirect()
	case 14:
		b.bulk()
	case 15, 16:
		b.branchIf()
	case 17:
		b.branchTable()
	case 18:
		b.leave()
	case 19, 20:
		b.operator(maxDepth, pick(b.src, valTypes))
	default:
		b.op(wasm.OpNop)
	}
}

// assign writes a local or global.
func (b *body) assign() {
	t := pick(b.src, valTypes)
	b.want(maxDepth, t)
	if b.top().dead && len(b.stack) == b.top().base {
		b.op(wasm.OpDrop)
		return
	}
	b.sink(t)
}

func (b *body) store() {
	s := pick(b.src, stores)
	if b.g.m.Memory == nil {
		return
	}
	b.address(3)
	b.push(maxDepth, s.t)
	b.access(s)
	b.pop(2)
}

// bulk fills or copies memory.
func (b *body) bulk() {
	if b.g.m.Memory == nil {
		return
	}
	b.address(2)
	if b.src.oneIn(2) {
		b.push(2, wasm.I32)
		b.address(1)
		b.code.Memory(wasm.OpMemoryFill)
	} else {
		b.address(2)
		b.address(1)
		b.code.Memory(wasm.OpMemoryCopy)
	}
	b.ops--
	b.pop(3)
}

// anyBlock emits a block, loop or if of any type.
func (b *body) anyBlock() {
	if len(b.frames) > maxNesting {
		return
	}
	op := pick(b.src, []wasm.Op{wasm.OpBlock, wasm.OpIf, wasm.OpLoop})
	if b.src.oneIn(3) {
		t := pick(b.src, valTypes)
		b.block(3, op, wasm.BlockOf(t), wasm.FuncType{Results: []wasm.ValType{t}})
		return
	}
	if b.src.oneIn(3) {
		b.block(3, op, wasm.BlockEmpty, wasm.FuncType{})
		return
	}
	index := b.src.below(len(b.g.m.Types))
	b.block(3, op, wasm.BlockType(index), b.g.m.Types[index])
}

// block emits a block with what it needs in front and its statements inside.
func (b *body) block(depth int, op wasm.Op, bt wasm.BlockType, t wasm.FuncType) {
	b.want(depth-1, t.Params...)
	counter := uint32(0)
	switch op {
	case wasm.OpIf:
		b.push(depth-1, wasm.I32)
		b.pop(1)
	case wasm.OpLoop:
		counter = b.own(wasm.I32)
		b.constant(wasm.I32, uint64(b.src.below(maxRounds)))
		b.index(wasm.OpLocalSet, counter)
	}
	b.pop(len(t.Params))
	b.ops--
	b.code.Block(op, bt)
	f := frame{base: len(b.stack), label: t.Results, results: t.Results}
	if op == wasm.OpLoop {
		f.label = t.Params
	}
	b.open(f, t.Params)
	if op == wasm.OpLoop {
		b.countDown(counter)
	}
	b.statements(8)
	b.finish()
	if op == wasm.OpIf && (!equal(t.Params, t.Results) || b.src.oneIn(2)) {
		b.code.Op(wasm.OpElse)
		b.stack = b.stack[:f.base]
		b.frames = b.frames[:len(b.frames)-1]
		b.open(f, t.Params)
		b.statements(8)
		b.finish()
	}
	b.code.Op(wasm.OpEnd)
	b.frames = b.frames[:len(b.frames)-1]
}

// open makes f the innermost block, with its parameters on the stack.
func (b *body) open(f frame, params []wasm.ValType) {
	b.frames = append(b.frames, f)
	b.pushed(params...)
}

// countDown stands at the head of a loop and returns from the function when the
// loop has used up its rounds, whoever branches back to it.
func (b *body) countDown(counter uint32) {
	b.index(wasm.OpLocalGet, counter)
	b.constant(wasm.I32, 1)
	b.op(wasm.OpI32Sub)
	b.index(wasm.OpLocalTee, counter)
	b.constant(wasm.I32, 0)
	b.op(wasm.OpI32LtS)
	b.code.Block(wasm.OpIf, wasm.BlockEmpty)
	for _, t := range b.t.Results {
		b.constant(t, constant(b.src, t))
	}
	b.op(wasm.OpReturn, wasm.OpEnd)
}

// label returns the number of an open block, and the block.
func (b *body) label() (uint32, frame) {
	n := b.src.below(len(b.frames))
	return uint32(n), b.frames[len(b.frames)-1-n]
}

// branchIf leaves the operands of the branch where they are when it is not
// taken.
func (b *body) branchIf() {
	n, to := b.label()
	b.want(3, to.label...)
	b.push(3, wasm.I32)
	b.index(wasm.OpBrIf, n)
	b.pop(1 + len(to.label))
	b.pushed(to.label...)
}

// branchTable branches to one of several blocks that take the same operands.
func (b *body) branchTable() {
	_, to := b.label()
	var labels []uint32
	for n := range b.frames {
		if equal(b.frames[len(b.frames)-1-n].label, to.label) && len(labels) < 8 {
			labels = append(labels, uint32(n))
		}
	}
	for range b.src.below(4) {
		labels = append(labels, pick(b.src, labels))
	}
	b.want(2, to.label...)
	b.push(3, wasm.I32)
	b.constant(wasm.I32, 3)
	b.op(wasm.OpI32And)
	b.ops--
	b.code.BrTable(labels...)
	b.die()
}

// leave ends the code of the block: by a branch or return, seldom by a trap.
func (b *body) leave() {
	switch b.src.below(8) {
	case 7:
		b.op(wasm.OpUnreachable)
	case 4, 5, 6:
		b.want(3, b.t.Results...)
		b.op(wasm.OpReturn)
	default:
		n, to := b.label()
		b.want(3, to.label...)
		b.index(wasm.OpBr, n)
	}
	b.die()
}

// die marks what follows in this block as dead.
func (b *body) die() {
	b.top().dead = true
	b.stack = b.stack[:b.top().base]
}

// mayCall keeps most calls from leading back to where they came from.
func (b *body) mayCall(index int) bool {
	return index < len(b.g.m.Imports) || index > b.self || b.src.oneIn(16)
}

func (b *body) callAny() {
	if at, ok := find(b.src, len(b.g.funcs), b.mayCall); ok {
		b.call(3, int(at))
	}
}

func (b *body) call(depth, index int) {
	t := b.g.funcs[index]
	b.want(depth-1, t.Params...)
	b.index(wasm.OpCall, uint32(index))
	b.pop(len(t.Params))
	b.pushed(t.Results...)
}

// callIndirect calls what is in the table, mostly with the right type.
func (b *body) callIndirect() {
	if len(b.g.table) == 0 {
		return
	}
	entry := b.src.below(len(b.g.table))
	typeIndex := b.src.below(len(b.g.m.Types))
	t := b.g.m.Types[typeIndex]
	if f := b.g.table[entry]; f >= 0 && !b.src.oneIn(16) {
		if !b.mayCall(f) {
			return
		}
		for i := range b.g.m.Types {
			if b.g.m.Types[i].Equal(b.g.funcs[f]) {
				typeIndex, t = i, b.g.m.Types[i]
			}
		}
	}
	b.want(2, t.Params...)
	if b.src.oneIn(16) {
		b.push(2, wasm.I32)
		b.pop(1)
	} else {
		b.constant(wasm.I32, uint64(entry))
	}
	b.index(wasm.OpCallIndirect, uint32(typeIndex))
	b.pop(len(t.Params))
	b.pushed(t.Results...)
}
