package wasm

// BlockType is the type of a block: [BlockEmpty], a value type that is its one
// result, or the index of a function type.
type BlockType int64

// BlockEmpty is the type of a block without parameters and results.
const BlockEmpty BlockType = -64

// BlockOf is the type of a block with one result.
func BlockOf(t ValType) BlockType { return BlockType(int64(t) - 0x80) }

// Index returns the index of the function type that b names.
func (b BlockType) Index() (index uint32, ok bool) { return uint32(b), b >= 0 }

// Result returns the one result that b names.
func (b BlockType) Result() (ValType, bool) {
	return ValType(b & 0x7f), b < 0 && b != BlockEmpty
}

// Append appends the block type's bytes.
func (b BlockType) Append(dst []byte) []byte { return AppendS64(dst, int64(b)) }

// Instr is one instruction. Its bytes are from Pos to End.
type Instr struct {
	Op       Op
	Pos, End int
	// Index is the first index of the instruction: a label, function, local,
	// global, table or segment, for call_indirect the type, for br_table the
	// number of labels without the default.
	Index uint32
	// Index2 is its second index: the table of call_indirect and table.init,
	// the source of table.copy.
	Index2 uint32
	Block  BlockType // of block, loop and if
}

// Iter steps over the instructions of a body. It ends after the end
// instruction that closes the body, which must be its last byte.
type Iter struct {
	Instr
	r      Reader
	labels int // offset of the first label of a br_table
	depth  int // of open blocks
	done   bool
}

// Body returns the local declarations of function body i, appended to groups,
// and an iterator over its instructions.
func (m *Module) Body(i int, groups []LocalGroup) ([]LocalGroup, Iter, error) {
	c := m.Code[i]
	r := NewReader(m.bytes, c.Pos, c.End)
	for range r.Count("groups of locals", 2) {
		groups = append(groups, LocalGroup{Count: r.U32(), Type: r.valType()})
		if r.err != nil {
			break
		}
	}
	return groups, Iter{r: r}, r.Err()
}

// Pos is the offset of the next instruction.
func (it *Iter) Pos() int { return it.r.pos }

// Err returns why Next returned false: nil at the proper end of the body.
func (it *Iter) Err() error { return it.r.Err() }

// Depth is the number of blocks that are open after the instruction.
func (it *Iter) Depth() int { return it.depth }

// Next reads one instruction into it.Instr.
func (it *Iter) Next() bool {
	r := &it.r
	if it.done || r.err != nil {
		return false
	}
	at := r.pos
	op := r.Byte()
	it.Instr = Instr{Op: Op(op), Pos: at}
	switch f := forms[op]; f {
	case formNone:
	case formIndex:
		it.Index = r.U32()
	default:
		it.immediates(f)
	}
	it.End = r.pos
	return r.err == nil
}

// form describes the bytes after an opcode.
type form byte

const (
	formUnknown form = iota
	formNone
	formIndex
	formMemarg
	formI32
	formI64
	formF32
	formF64
	formBlock
	formEnd // of a block or the body: nothing
	formBrTable
	formCallIndirect
	formMemory
	formSelect
	formRefType
	formPrefixed
)

// forms has the form of each one-byte opcode.
var forms = func() (f [256]form) {
	span := func(first, last Op, is form) {
		for op := first; op <= last; op++ {
			f[op] = is
		}
	}
	span(OpI32Eqz, OpI64Extend32S, formNone)
	span(OpLocalGet, OpTableSet, formIndex)
	span(OpI32Load, OpI64Store32, formMemarg)
	for is, ops := range map[form][]Op{
		formNone:  {OpUnreachable, OpNop, OpElse, OpReturn, OpDrop, OpSelect, OpRefIsNull},
		formIndex: {OpBr, OpBrIf, OpCall, OpRefFunc},
		formI32:   {OpI32Const}, formI64: {OpI64Const}, formF32: {OpF32Const}, formF64: {OpF64Const},
		formBlock: {OpBlock, OpLoop, OpIf}, formEnd: {OpEnd}, formBrTable: {OpBrTable},
		formCallIndirect: {OpCallIndirect}, formMemory: {OpMemorySize, OpMemoryGrow},
		formSelect: {OpSelectTyped}, formRefType: {OpRefNull}, formPrefixed: {0xfc},
	} {
		for _, op := range ops {
			f[op] = is
		}
	}
	return f
}()

// immediates reads what follows the opcode, and counts blocks.
func (it *Iter) immediates(f form) {
	r := &it.r
	switch f {
	case formMemarg: // alignment, whose bit 6 would announce a memory index, and offset
		if align := r.U32(); align >= 1<<6 {
			r.failFeature(r.pos-1, "multiple memories", "alignment %#x", align)
		}
		r.U32()
	case formI32:
		r.S32()
	case formI64:
		r.S64()
	case formF32:
		r.Bytes(4)
	case formF64:
		r.Bytes(8)
	case formBlock:
		it.Block = r.blockType()
		it.depth++
	case formEnd: // of a block, or the body
		if it.depth--; it.depth < 0 {
			it.done, it.depth = true, 0
			r.finish("function body")
		}
	case formBrTable:
		it.brTable()
	case formCallIndirect:
		it.Index, it.Index2 = r.U32(), r.U32()
	case formMemory:
		r.zeroByte()
	case formSelect: // a list of types, which has one entry
		if n := r.U32(); r.err == nil && n != 1 {
			r.Failf("select with %d types", n)
		}
		r.valType()
	case formRefType:
		r.heapType()
	case formPrefixed:
		it.prefixed()
	default:
		if f := opFeature(byte(it.Op)); f != "" {
			r.failFeature(it.Instr.Pos, f, "opcode %#x", byte(it.Op))
		}
		r.failAt(it.Instr.Pos, "unknown opcode %#x", byte(it.Op)) // unless an extension has it
	}
}

// blockType reads a signed 33-bit number: negative for the empty type and
// value types, which are one byte, else a type index.
func (r *Reader) blockType() BlockType {
	at := r.pos
	if b := BlockType(r.S33()); b >= 0 || b == BlockEmpty {
		return b
	}
	if r.err != nil {
		return 0
	}
	r.pos = at
	return BlockOf(r.valType())
}

// heapType reads the type of a null reference: here the byte of its type.
func (r *Reader) heapType() ValType {
	if r.err == nil && r.pos < r.end && r.buf[r.pos]&0x40 == 0 { // not negative: the index of a type
		r.failFeature(r.pos, "typed function references", "a null reference to type %d", r.buf[r.pos])
		return 0
	}
	return r.refType()
}

func (r *Reader) zeroByte() {
	if b := r.Byte(); b != 0 {
		r.failFeature(r.pos-1, "multiple memories", "memory index %d", b)
	}
}

// brTable steps over the labels; [Iter.Labels] reads them again. A count that
// the body cannot hold has failed before the loop begins.
func (it *Iter) brTable() {
	n := it.r.Count("labels", 1)
	it.Index, it.labels = uint32(n), it.r.pos
	for i := 0; i <= n && it.r.err == nil; i++ {
		it.r.U32()
	}
}

// Labels yields the labels of the br_table instruction that it stands on, the
// default last.
func (it *Iter) Labels(yield func(label uint32) bool) {
	r := NewReader(it.r.buf, it.labels, it.r.pos)
	for r.Len() > 0 {
		if !yield(r.U32()) {
			return
		}
	}
}

// prefixed reads an instruction of the 0xfc page.
func (it *Iter) prefixed() {
	r := &it.r
	sub := r.U32()
	it.Op = OpI32TruncSatF32S | Op(sub&0xff)
	switch {
	case r.err != nil:
	case sub >= 0x13 && sub <= 0x16:
		r.failFeature(it.Instr.Pos, "wide arithmetic", "opcode 0xfc %d", sub)
	case sub > uint32(OpTableFill&0xff):
		r.failAt(it.Instr.Pos, "unknown opcode 0xfc %d", sub)
	case it.Op < OpMemoryInit:
	case it.Op == OpMemoryInit:
		it.Index = r.U32()
		r.zeroByte()
	case it.Op == OpMemoryCopy:
		r.zeroByte()
		r.zeroByte()
	case it.Op == OpMemoryFill:
		r.zeroByte()
	case it.Op == OpTableInit || it.Op == OpTableCopy:
		it.Index, it.Index2 = r.U32(), r.U32()
	default:
		it.Index = r.U32()
	}
}
