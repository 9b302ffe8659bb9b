package wasmtest

import "github.com/starling-host/starling/internal/wasm"

// push emits code that leaves one more value of type t on the stack, and takes
// none of those that are there.
func (b *body) push(depth int, t wasm.ValType) {
	defer func(floor int) { b.floor = floor }(b.floor)
	b.floor = len(b.stack)
	if depth <= 0 || b.ops <= 0 {
		b.leaf(t)
		return
	}
	switch b.src.below(16) {
	case 0, 1, 2:
		b.leaf(t)
	case 3:
		b.load(depth, t)
	case 4:
		b.selectOf(depth, t)
	case 5:
		b.tee(depth, t)
	case 6:
		b.valueBlock(depth, t)
	case 7:
		b.callFor(depth, t)
	case 8:
		b.memorySize(depth, t)
	case 9, 10:
		b.makeNaN(depth, t)
	default:
		b.operator(depth, t)
	}
}

// leaf pushes a value that needs no operands.
func (b *body) leaf(t wasm.ValType) {
	if local, ok := b.local(t); ok && !b.src.oneIn(3) {
		b.index(wasm.OpLocalGet, local)
	} else if global, ok := b.global(t, false); ok && b.src.oneIn(2) {
		b.index(wasm.OpGlobalGet, global)
	} else {
		b.constant(t, constant(b.src, t))
	}
	b.pushed(t)
}

// operator pushes what an instruction computes.
func (b *body) operator(depth int, t wasm.ValType) {
	o := pick(b.src, giving[t])
	if isTrappingTrunc(o.op) && !b.src.oneIn(8) {
		b.leaf(t)
		return
	}
	b.want(depth-1, o.in...)
	if isDivision(o.op) && !b.src.oneIn(8) {
		b.makeOdd(t)
	}
	b.pop(len(o.in))
	b.compute(o.op, t)
}

// makeNaN pushes a NaN that an instruction makes of numbers. Nobody would meet
// enough of them by chance.
func (b *body) makeNaN(depth int, t wasm.ValType) {
	op, minusOne := wasm.OpF32Sqrt, uint64(0xbf800000)
	switch t {
	case wasm.F64:
		op, minusOne = wasm.OpF64Sqrt, 0xbff0000000000000
	case wasm.I32, wasm.I64:
		b.operator(depth, t)
		return
	}
	b.constant(t, minusOne)
	b.compute(op, t)
}

// compute emits an instruction whose operands, which give a t, have been popped.
func (b *body) compute(op wasm.Op, t wasm.ValType) {
	b.op(op)
	b.pushed(t)
	if b.g.c.CanonicalNaNs && computesNaN(op) {
		b.canonicalise(t)
	}
}

// makeOdd keeps a divisor from being zero.
func (b *body) makeOdd(t wasm.ValType) {
	b.constant(t, 1)
	if t == wasm.I32 {
		b.op(wasm.OpI32Or)
	} else {
		b.op(wasm.OpI64Or)
	}
}

// canonicalise puts the canonical NaN in the place of any other: x if x == x,
// else NaN. It costs nothing of the budget, so that the rest stays the same.
func (b *body) canonicalise(t wasm.ValType) {
	defer func(left int) { b.ops = left }(b.ops)
	x := b.own(t)
	nan, eq := uint64(0x7fc00000), wasm.OpF32Eq
	if t == wasm.F64 {
		nan, eq = 0x7ff8000000000000, wasm.OpF64Eq
	}
	b.index(wasm.OpLocalTee, x)
	b.constant(t, nan)
	b.index(wasm.OpLocalGet, x)
	b.index(wasm.OpLocalGet, x)
	b.op(eq, wasm.OpSelect)
}

// load pushes a value from memory.
func (b *body) load(depth int, t wasm.ValType) {
	if b.g.m.Memory == nil {
		b.leaf(t)
		return
	}
	at, ok := find(b.src, len(loads), func(i int) bool { return loads[i].t == t })
	if ok {
		b.address(depth - 1)
		b.access(loads[at])
		b.pop(1)
		b.pushed(t)
	}
}

// address pushes an address, mostly one that is in memory.
func (b *body) address(depth int) {
	b.push(depth, wasm.I32)
	if !b.src.oneIn(32) {
		b.constant(wasm.I32, pick(b.src, []uint64{0xff, 0xfff, 0xffff}))
		b.op(wasm.OpI32And)
	}
}

// access emits a load or store with some alignment and offset.
func (b *body) access(a access) {
	offset := uint32(b.src.below(64))
	if b.src.oneIn(24) {
		offset = pick(b.src, []uint32{1 << 15, 1<<16 - 1, 1 << 16, 1 << 31, 1<<32 - 1})
	}
	b.ops--
	b.code = wasm.AppendU32(a.op.Append(b.code), uint32(b.src.below(int(a.size)+1)))
	b.code = wasm.AppendU32(b.code, offset)
}

// selectOf pushes one of two values.
func (b *body) selectOf(depth int, t wasm.ValType) {
	b.want(depth-1, t, t, wasm.I32)
	if b.src.oneIn(2) {
		b.op(wasm.OpSelectTyped)
		b.code = append(b.code, 1, byte(t))
	} else {
		b.op(wasm.OpSelect)
	}
	b.pop(3)
	b.pushed(t)
}

// tee pushes a value and keeps it in a local.
func (b *body) tee(depth int, t wasm.ValType) {
	local, ok := b.local(t)
	if !ok {
		b.leaf(t)
		return
	}
	b.want(depth-1, t)
	b.index(wasm.OpLocalTee, local)
	b.pop(1)
	b.pushed(t)
}

// valueBlock pushes the result of a block.
func (b *body) valueBlock(depth int, t wasm.ValType) {
	if len(b.frames) > maxNesting {
		b.leaf(t)
		return
	}
	b.block(depth, pick(b.src, []wasm.Op{wasm.OpBlock, wasm.OpIf, wasm.OpLoop}), wasm.BlockOf(t), wasm.FuncType{Results: []wasm.ValType{t}})
}

// callFor pushes what a function with that one result returns.
func (b *body) callFor(depth int, t wasm.ValType) {
	at, ok := find(b.src, len(b.g.funcs), func(i int) bool {
		return b.mayCall(i) && equal(b.g.funcs[i].Results, []wasm.ValType{t})
	})
	if !ok {
		b.leaf(t)
		return
	}
	b.call(depth, int(at))
}

// memorySize pushes the size of memory, before or after it grows.
func (b *body) memorySize(depth int, t wasm.ValType) {
	if t != wasm.I32 || b.g.m.Memory == nil {
		b.operator(depth, t)
		return
	}
	b.ops--
	if b.src.oneIn(3) {
		b.constant(wasm.I32, pick(b.src, []uint64{0, 1, 1, 2, 5, 0xffff, 0x10000, 0xffffffff}))
		b.code.Memory(wasm.OpMemoryGrow)
	} else {
		b.code.Memory(wasm.OpMemorySize)
	}
	b.pushed(t)
}
