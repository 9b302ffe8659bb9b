package wasm

// Asm is code under construction. Its methods append instructions and return
// the receiver, so that they chain.
type Asm []byte

// Op appends instructions without immediates.
func (a *Asm) Op(ops ...Op) *Asm {
	for _, op := range ops {
		*a = op.Append(*a)
	}
	return a
}

// Index appends an instruction with one index, or call_indirect, whose table
// is 0.
func (a *Asm) Index(op Op, i uint32) *Asm {
	*a = AppendU32(op.Append(*a), i)
	if op == OpCallIndirect {
		*a = append(*a, 0)
	}
	return a
}

// I32 appends i32.const.
func (a *Asm) I32(v int32) *Asm {
	*a = AppendS32(OpI32Const.Append(*a), v)
	return a
}

// I64 appends i64.const.
func (a *Asm) I64(v int64) *Asm {
	*a = AppendS64(OpI64Const.Append(*a), v)
	return a
}

// Block opens a block, loop or if of the given type.
func (a *Asm) Block(op Op, t BlockType) *Asm {
	*a = t.Append(op.Append(*a))
	return a
}

// Access appends a load or store at a constant offset, aligned to one byte.
func (a *Asm) Access(op Op, offset uint32) *Asm {
	*a = AppendU32(append(op.Append(*a), 0), offset)
	return a
}

// Memory appends memory.size, memory.grow, memory.fill or memory.copy. Zero
// bytes name the memory.
func (a *Asm) Memory(op Op) *Asm {
	*a = append(op.Append(*a), 0)
	if op == OpMemoryCopy {
		*a = append(*a, 0)
	}
	return a
}

// BrTable appends br_table. The default is the last label.
func (a *Asm) BrTable(labels ...uint32) *Asm {
	*a = AppendU32(OpBrTable.Append(*a), uint32(len(labels)-1))
	for _, l := range labels {
		*a = AppendU32(*a, l)
	}
	return a
}
