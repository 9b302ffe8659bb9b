package wasm

import "cmp"

// valType reads a value type.
func (r *Reader) valType() ValType {
	b := r.Byte()
	switch t := ValType(b); t {
	case I32, I64, F32, F64, FuncRef, ExternRef:
		return t
	case 0x7b:
		r.failFeature(r.pos-1, "SIMD", "type v128")
	default:
		r.failType("value type", b)
	}
	return 0
}

func (r *Reader) failType(what string, b byte) {
	if f := typeFeature(b); f != "" {
		r.failFeature(r.pos-1, f, "%s %#x", what, b)
		return
	}
	r.Failf("unknown %s %#x", what, b)
}

func (r *Reader) refType() ValType {
	t := r.valType()
	if r.err == nil && t.IsNumber() {
		r.Failf("%s is not a reference type", t)
	}
	return t
}

func (r *Reader) funcType() FuncType {
	if form := r.Byte(); r.err == nil && form != 0x60 {
		r.failType("type form", form)
	}
	return FuncType{
		Params:  list(r, "parameters", 1, (*Reader).valType),
		Results: list(r, "results", 1, (*Reader).valType),
	}
}

func (r *Reader) readImport() Import {
	im := Import{Offset: r.pos}
	im.Module, im.Name = r.Name(), r.Name()
	im.Kind = ExternKind(r.Byte())
	switch im.Kind {
	case ExternFunc:
		im.Type = r.U32()
	case ExternTable:
		r.table()
	case ExternMemory:
		r.limits()
	case ExternGlobal:
		r.globalType()
	case externTag:
		r.failFeature(r.pos-1, "exception handling", "import of a tag")
	case 0x7e, 0x7f:
		r.failFeature(r.pos-1, "compact import section", "kind of import %#x", byte(im.Kind))
	default:
		r.Failf("unknown kind of import %d", im.Kind)
	}
	return im
}

func (r *Reader) limits() Limits {
	switch flags := r.Byte(); flags {
	case 0:
		return Limits{Min: r.U32()}
	case 1:
		return Limits{Min: r.U32(), Max: r.U32(), HasMax: true}
	case 2, 3:
		r.failFeature(r.pos-1, "threads", "shared memory")
	case 4, 5, 6, 7:
		r.failFeature(r.pos-1, "memory64", "64-bit index type")
	case 8, 9, 10, 11, 12, 13, 14, 15:
		r.failFeature(r.pos-1, "custom page sizes", "flags %#x of limits", flags)
	default:
		r.Failf("unknown flags %#x of limits", flags)
	}
	return Limits{}
}

func (r *Reader) table() Table {
	at := r.pos
	if r.err == nil && at < r.end && r.buf[at] == 0x40 {
		r.failFeature(at, "typed function references", "a table with an initial value")
	}
	return Table{Offset: at, Elem: r.refType(), Limits: r.limits()}
}

func (r *Reader) globalType() GlobalType {
	t := GlobalType{Type: r.valType()}
	mut := r.Byte()
	if mut > 1 {
		r.Failf("mutability is %d, not 0 or 1", mut)
	}
	t.Mutable = mut == 1
	return t
}

func (r *Reader) global() Global {
	at := r.pos
	return Global{Offset: at, GlobalType: r.globalType(), Init: r.constant()}
}

func (r *Reader) export() Export {
	e := Export{Offset: r.pos}
	e.Name, e.Kind, e.Index = r.Name(), ExternKind(r.Byte()), r.U32()
	switch {
	case e.Kind == externTag:
		r.failFeature(e.Offset, "exception handling", "export of a tag")
	case e.Kind > ExternGlobal:
		r.failAt(e.Offset, "unknown kind of export %d", e.Kind)
	}
	return e
}

// constant reads a constant expression. More than one instruction is the
// extended form, which only [DecodeLibrary] reads.
func (r *Reader) constant() Const {
	c := Const{Pos: r.pos}
	r.constantOp(&c)
	for r.extended && r.err == nil && r.pos < r.end && Op(r.buf[r.pos]) != OpEnd {
		switch op := Op(r.buf[r.pos]); op {
		case OpI32Add, OpI32Sub, OpI32Mul, OpI64Add, OpI64Sub, OpI64Mul:
			c.Op = op
			r.pos++
		default:
			r.constantOp(&c)
		}
	}
	if end := r.Byte(); r.err == nil && Op(end) != OpEnd {
		r.failFeature(r.pos-1, cmp.Or(opFeature(end), "extended constant expressions"), "opcode %#x after a constant", end)
	}
	c.End = r.pos
	return c
}

// constantOp reads an instruction that is a constant.
func (r *Reader) constantOp(c *Const) {
	at := r.pos
	c.Op = Op(r.Byte())
	switch c.Op {
	case OpI32Const:
		c.Value = uint64(int64(r.S32()))
	case OpI64Const:
		c.Value = uint64(r.S64())
	case OpF32Const:
		r.Bytes(4)
	case OpF64Const:
		r.Bytes(8)
	case OpGlobalGet, OpRefFunc:
		c.Value = uint64(r.U32())
	case OpRefNull:
		c.Value = uint64(r.heapType())
	default:
		if f := opFeature(byte(c.Op)); f != "" {
			r.failFeature(at, f, "opcode %#x", byte(c.Op))
		}
		r.failAt(at, "opcode %#x is not constant", byte(c.Op))
	}
}

// element reads an element segment. The flags are three bits: 0 not active,
// 1 an explicit table, or declarative, 2 items are expressions.
func (r *Reader) element() Element {
	e := Element{Pos: r.pos, Type: FuncRef}
	flags := r.U32()
	if flags > 7 {
		r.Failf("unknown flags %d of an element segment", flags)
		return e
	}
	switch {
	case flags&3 == 1:
		e.Mode = Passive
	case flags&3 == 3:
		e.Mode = Declarative
	case flags&2 != 0:
		e.Table = r.U32()
	}
	if e.Mode == Active {
		e.Start = r.constant()
	}
	e.exprs = flags&4 != 0
	if flags&3 != 0 {
		e.Type = r.elementType(e.exprs)
	}
	e.Count = r.Count("items", 1)
	e.items = r.pos
	r.charge(e.Count, 0) // an item stays in the module's bytes
	for range e.Count {
		r.item(e.exprs)
	}
	e.End = r.pos
	return e
}

// elementType reads the type of a segment's items: a reference type in front
// of expressions, the kind 0 in front of function indices.
func (r *Reader) elementType(exprs bool) ValType {
	if exprs {
		return r.refType()
	}
	if kind := r.Byte(); kind != 0 {
		r.Failf("unknown kind %#x of elements", kind)
	}
	return FuncRef
}

// item reads one item of an element segment as the constant that it means.
func (r *Reader) item(expr bool) Const {
	if expr {
		return r.constant()
	}
	c := Const{Op: OpRefFunc, Pos: r.pos}
	c.Value = uint64(r.U32())
	c.End = r.pos
	return c
}

// Items yields the items of an element segment, each as the constant that it
// means: a bare function index as ref.func.
func (m *Module) Items(e *Element) func(yield func(Const) bool) {
	return func(yield func(Const) bool) {
		r := NewReader(m.bytes, e.items, e.End)
		for range e.Count {
			if !yield(r.item(e.exprs)) {
				return
			}
		}
	}
}

// AppendElements appends the body of the element section with every function
// index changed by remap.
func (m *Module) AppendElements(dst []byte, remap func(uint32) uint32) []byte {
	dst = AppendU32(dst, uint32(len(m.Elements)))
	for i := range m.Elements {
		e := &m.Elements[i]
		dst = append(dst, m.bytes[e.Pos:e.items]...)
		for item := range m.Items(e) {
			if item.Op != OpRefFunc {
				dst = append(dst, m.bytes[item.Pos:item.End]...)
				continue
			}
			if e.exprs {
				dst = OpRefFunc.Append(dst)
			}
			dst = AppendU32(dst, remap(uint32(item.Value)))
			if e.exprs {
				dst = OpEnd.Append(dst)
			}
		}
	}
	return dst
}

func (r *Reader) data() Data {
	d := Data{}
	switch flags := r.U32(); flags {
	case 0:
		d.Start = r.constant()
	case 1:
		d.Mode = Passive
	case 2:
		d.Memory, d.Start = r.U32(), r.constant()
	default:
		r.Failf("unknown flags %d of a data segment", flags)
	}
	b := r.sub(r.U32())
	d.Pos, d.End = b.pos, b.end
	return d
}

func (r *Reader) code() Code {
	b := r.sub(r.U32())
	return Code{Pos: b.pos, End: b.end}
}
