package component

import (
	"cmp"
	"maps"
	"slices"

	"github.com/starling-host/starling/host/internal/rewrite"
	"github.com/starling-host/starling/internal/lists"
	"github.com/starling-host/starling/internal/wasm"
)

// part is a core module on its way into the joined one.
type part struct {
	*wasm.Module
	name    string // for the names of its functions
	funcs   []*fn
	tables  []*table
	globals []uint32
	memory  *bool // what usesMemory has found
}

const oneMemory = "parts that have a memory each cannot be joined: give each of them by itself"

// fn is a function of the joined module: of a part, generated, or imported. It has an index once
// every function is known.
type fn struct {
	name   string
	t      wasm.FuncType
	part   *part // with body
	body   int
	code   wasm.Asm // generated, with its calls
	calls  []call
	module string           // of an import
	refuse *rewrite.Refusal // of a function that the host does not have: refuses the component if it is reached
	kept   bool
	index  uint32
}

// call is a call in generated code. The code has room for the index at pos.
type call struct {
	pos int
	to  *fn
}

// indexBytes is the room for an index: the longest form of a LEB128 number.
const indexBytes = 5

// call appends a call to generated code.
func (f *fn) call(to *fn) {
	f.code.Op(wasm.OpCall)
	f.calls = append(f.calls, call{len(f.code), to})
	f.code = append(f.code, make([]byte, indexBytes)...)
}

// table is a table of functions. Nothing changes it while the module runs, since the gate
// refuses the instructions that could.
type table struct {
	size    uint32
	items   map[uint32]*fn
	dynamic bool // called by an index that is not constant
}

// constant is the value of a constant expression: the expression itself, and the number of an
// integer.
type constant struct {
	expr  []byte
	value int64
	t     wasm.GlobalType
}

func (k *linker) typeIndex(t wasm.FuncType) uint32 {
	k.spend(1 + len(t.Params) + len(t.Results))
	key := string(t.Append(nil))
	i, ok := k.typeOf[key]
	if !ok {
		i = uint32(len(k.types))
		k.hold(namedBytes + len(key))
		k.types, k.typeOf[key] = append(k.types, t), i
	}
	return i
}

// same reports whether two types are equal. They can be long.
func (k *linker) same(a, b wasm.FuncType) bool {
	k.spend(1 + (len(a.Params)+len(a.Results))/8)
	return a.Equal(b)
}

func (k *linker) add(f *fn) *fn {
	k.spend(1)
	k.hold(funcBytes)
	k.fns = append(k.fns, f)
	return f
}

// global adds a mutable i32 that begins as 0.
func (k *linker) global() uint32 {
	return k.addGlobal(constant{[]byte{byte(wasm.OpI32Const), 0, byte(wasm.OpEnd)}, 0, wasm.GlobalType{Type: wasm.I32, Mutable: true}})
}

func (k *linker) addGlobal(c constant) uint32 {
	k.hold(namedBytes)
	k.globals = append(k.globals, c)
	return uint32(len(k.globals) - 1)
}

// join puts a part's definitions beside those of the parts before it, and resolves its imports
// by what argument returns: a *fn, a *table, the index of a global, or the *part that defines the
// memory. Every index of the part that is followed here and in body is checked against its spaces.
func (k *linker) join(p *part, argument func(wasm.Import) any) {
	for _, im := range p.Imports {
		switch v := argument(im).(type) {
		case *fn:
			if want := at(p.Types, im.Type, "type"); !k.same(want, v.t) && v.refuse == nil {
				failf("", "%s imports %q %q as %s, which is %s", p.name, im.Module, im.Name, want, v.t)
			}
			p.funcs = append(p.funcs, v)
		case *table:
			p.tables = append(p.tables, v)
		case uint32:
			p.globals = append(p.globals, v)
		case *part: // that defines the memory
			if k.main == nil {
				k.memory, k.main = &v.Memories[0], v
			} else if k.main != v && k.usesMemory(p) {
				failf(oneMemory, "it has more than one memory")
			}
		}
	}
	for i, t := range p.Funcs {
		f := k.add(&fn{t: at(p.Types, t, "type"), part: p, body: i, name: p.name})
		p.funcs = append(p.funcs, f)
	}
	for i, name := range p.FuncNames {
		k.spend(1)
		if int64(i) >= int64(p.NumImportedFuncs()) && int64(i) < int64(len(p.funcs)) && name != "" {
			p.funcs[i].name = k.text(p.name + "." + name)
		}
	}
	for _, t := range p.Tables {
		if t.Elem != wasm.FuncRef {
			failf("build without reference types", "%s has a table of %s", p.name, t.Elem)
		}
		k.hold(namedBytes)
		p.tables = append(p.tables, &table{size: t.Limits.Min, items: map[uint32]*fn{}})
	}
	for i := range p.Memories {
		switch {
		case p.Memories[i].Min == 0 && !k.usesMemory(p): // the stub of a build step, unless another part uses it
		case k.main != nil:
			failf(oneMemory, "it has more than one memory")
		default:
			k.memory, k.main = &p.Memories[i], p
		}
	}
	for i := range p.Globals {
		g := &p.Globals[i]
		c := k.constant(p, g.Init)
		c.t = g.GlobalType
		p.globals = append(p.globals, k.addGlobal(c))
	}
	for i := range p.Elements {
		e := &p.Elements[i]
		if e.Mode == wasm.Passive {
			failf("build without reference types", "%s has a passive segment of elements", p.name)
		}
		if e.Mode != wasm.Active {
			continue
		}
		k.spend(e.Count)
		k.hold(e.Count * itemBytes)
		t, slot := at(p.tables, e.Table, "table"), uint32(k.constant(p, e.Start).value)
		if uint64(slot)+uint64(e.Count) > uint64(t.size) {
			failf("", "%s has a segment of elements that leaves its table", p.name)
		}
		for it := range p.Items(e) {
			if it.Op == wasm.OpRefFunc {
				t.items[slot] = at(p.funcs, uint32(it.Value), "function")
			}
			slot++
		}
	}
}

// body returns the locals and the instructions of a function, and charges for its bytes.
func (k *linker) body(p *part, i int) ([]wasm.LocalGroup, wasm.Iter, error) {
	k.spend(1 + p.Code[i].End - p.Code[i].Pos)
	return p.Body(i, nil)
}

// usesMemory reports whether a module has data or instructions that reach memory.
func (k *linker) usesMemory(p *part) bool {
	if p.memory != nil {
		return *p.memory
	}
	uses := len(p.Data) > 0
	for i := 0; i < len(p.Code) && !uses; i++ {
		_, it, err := k.body(p, i)
		for err == nil && !uses && it.Next() {
			uses = it.Op >= wasm.OpI32Load && it.Op <= wasm.OpMemoryGrow || it.Op == wasm.OpMemoryCopy || it.Op == wasm.OpMemoryFill
		}
	}
	p.memory = &uses
	return uses
}

// constant computes a constant expression. Libraries that are linked at run time have some of
// several instructions, over globals that others define.
func (k *linker) constant(p *part, c wasm.Const) constant {
	var stack []constant
	number := func(t wasm.ValType, v int64) {
		a := wasm.Asm{}
		if t == wasm.I32 {
			v = int64(int32(v))
			a.I32(int32(v))
		} else {
			a.I64(v)
		}
		stack = append(stack, constant{*a.Op(wasm.OpEnd), v, wasm.GlobalType{Type: t}})
	}
	expr := p.Bytes(c.Pos, c.End)
	k.spend(len(expr))
	k.hold(itemBytes * len(expr))
	r := wasm.NewReader(expr, 0, len(expr))
	for r.Err() == nil {
		start := r.Pos()
		switch op := wasm.Op(r.Byte()); op {
		case wasm.OpEnd:
			if len(stack) != 1 {
				failf("", "malformed: %s has a constant of %d values", p.name, len(stack))
			}
			return stack[0]
		case wasm.OpI32Const:
			number(wasm.I32, int64(r.S32()))
		case wasm.OpI64Const:
			number(wasm.I64, r.S64())
		case wasm.OpF32Const, wasm.OpF64Const:
			t, n := wasm.F32, uint32(4)
			if op == wasm.OpF64Const {
				t, n = wasm.F64, 8
			}
			r.Bytes(n)
			stack = append(stack, constant{append(slices.Clone(expr[start:r.Pos()]), byte(wasm.OpEnd)), 0, wasm.GlobalType{Type: t}})
		case wasm.OpGlobalGet:
			g := k.globals[at(p.globals, r.U32(), "global")]
			if g.t.Mutable && p != k.guest { // whose data begins at offsets of its memory
				failf("", "malformed: %s has a constant that reads a global which changes", p.name)
			}
			stack = append(stack, g)
		case wasm.OpI32Add, wasm.OpI32Sub, wasm.OpI32Mul, wasm.OpI64Add, wasm.OpI64Sub, wasm.OpI64Mul:
			if len(stack) < 2 {
				failf("", "malformed: %s has a constant without operands", p.name)
			}
			x, y := stack[len(stack)-2].value, stack[len(stack)-1].value
			stack = stack[:len(stack)-2]
			t := wasm.I32
			if op >= wasm.OpI64Add {
				t = wasm.I64
			}
			switch op {
			case wasm.OpI32Add, wasm.OpI64Add:
				number(t, x+y)
			case wasm.OpI32Sub, wasm.OpI64Sub:
				number(t, x-y)
			default:
				number(t, x*y)
			}
		default:
			failf("build without reference types", "%s has a constant with %s", p.name, op)
		}
	}
	malformed(&r)
	return constant{}
}

// reach keeps the functions that f reaches. A call of a constant entry of a table is a direct
// call; any other one reaches all entries.
func (k *linker) reach(f *fn) {
	var todo []*fn
	keep := func(f *fn) {
		if f != nil && !f.kept {
			f.kept = true
			todo = append(todo, f)
		}
	}
	keep(f)
	for len(todo) > 0 {
		k.spend(1)
		f, todo = todo[len(todo)-1], todo[:len(todo)-1]
		if f.refuse != nil {
			panic(failure{f.refuse})
		}
		k.spend(len(f.calls))
		for _, c := range f.calls {
			keep(c.to)
		}
		if f.part == nil {
			continue
		}
		p := f.part
		_, it, err := k.body(p, f.body)
		constant := false
		for err == nil && it.Next() {
			switch it.Op {
			case wasm.OpCall:
				keep(at(p.funcs, it.Index, "function"))
			case wasm.OpMemorySize, wasm.OpMemoryGrow:
				keep(k.memoryStub(p, it.Op))
			case wasm.OpCallIndirect:
				t := at(p.tables, it.Index2, "table")
				if constant {
					keep(k.entry(p, t, it))
				} else if !t.dynamic {
					t.dynamic = true
					if k.table != nil {
						failf("give each part of the component by itself", "it calls functions through two tables")
					}
					k.table = t
					k.spend(len(t.items))
					for _, slot := range t.slots() {
						keep(t.items[slot])
					}
				}
			}
			constant = it.Op == wasm.OpI32Const
			if constant {
				k.last = it.Instr
			}
		}
		unreadable(p.name, cmp.Or(err, it.Err()))
	}
}

// entry returns the function that a call_indirect calls by the constant before it, or nil if it
// traps.
func (k *linker) entry(p *part, t *table, it wasm.Iter) *fn {
	raw := p.Bytes(k.last.Pos, k.last.End)
	r := wasm.NewReader(raw, 1, len(raw))
	f := t.items[uint32(r.S32())]
	if f == nil || !k.same(f.t, at(p.Types, it.Index, "type")) {
		return nil
	}
	return f
}

// slots returns the entries of a table that are not empty, in order.
func (t *table) slots() []uint32 { return slices.Sorted(maps.Keys(t.items)) }

// function appends the body of a function with the indices of the joined module.
func (k *linker) function(a wasm.Asm, f *fn) wasm.Asm {
	if f.part == nil {
		start := len(a)
		a = append(a, f.code...)
		for _, c := range f.calls {
			v := c.to.index
			for i := range indexBytes {
				a[start+c.pos+i] = byte(v&0x7f) | 0x80
				v >>= 7
			}
			a[start+c.pos+indexBytes-1] &= 0x7f
		}
		return a
	}
	p := f.part
	groups, it, err := k.body(p, f.body)
	unreadable(p.name, err)
	a = wasm.AppendU32(a, uint32(len(groups)))
	for _, g := range groups {
		a = append(wasm.AppendU32(a, g.Count), byte(g.Type))
	}
	var held []byte // an i32.const that may be the index of the call behind it
	for it.Next() {
		raw := p.Bytes(it.Instr.Pos, it.End)
		if it.Op != wasm.OpCallIndirect {
			a, held = append(a, held...), nil
		}
		switch it.Op {
		case wasm.OpI32Const:
			held, k.last = raw, it.Instr
		case wasm.OpCall:
			a.Index(wasm.OpCall, at(p.funcs, it.Index, "function").index)
		case wasm.OpGlobalGet, wasm.OpGlobalSet:
			a.Index(it.Op, at(p.globals, it.Index, "global"))
		case wasm.OpCallIndirect:
			if held == nil {
				a.Index(wasm.OpCallIndirect, k.typeIndex(at(p.Types, it.Index, "type")))
			} else if target := k.entry(p, at(p.tables, it.Index2, "table"), it); target != nil {
				a.Index(wasm.OpCall, target.index)
			} else {
				a.Op(wasm.OpUnreachable)
			}
			held = nil
		case wasm.OpBlock, wasm.OpLoop, wasm.OpIf:
			b := it.Block
			if t, ok := b.Index(); ok {
				b = wasm.BlockType(k.typeIndex(at(p.Types, t, "type")))
			}
			a.Block(it.Op, b)
		default:
			if stub := k.memoryStub(p, it.Op); stub != nil {
				a.Index(wasm.OpCall, stub.index)
			} else {
				a = append(a, raw...)
			}
		}
	}
	return a
}

func sized(b []byte) []byte { return append(wasm.AppendU32(nil, uint32(len(b))), b...) }

// export is an export of the joined module.
type export struct {
	name string
	f    *fn // nil for the memory
}

// encode writes the joined module: the functions that the exports reach, in the order in which
// they were added, imports first.
func (k *linker) encode(exports []export, notes ...[]byte) []byte {
	for _, e := range exports {
		if e.f != nil {
			k.reach(e.f)
		}
	}
	k.spend(2 * len(k.fns))
	var order []*fn
	for _, imported := range []bool{true, false} {
		for _, f := range k.fns {
			if f.kept && (f.module != "") == imported {
				f.index = uint32(len(order))
				order = append(order, f)
			}
		}
	}
	var imports, funcs, code, data, globals, exported, names [][]byte
	var buf wasm.Asm
	nameBytes := 0
	for _, f := range order {
		t := wasm.AppendU32(nil, k.typeIndex(f.t))
		if f.module != "" {
			imports = append(imports, append(append(wasm.AppendName(wasm.AppendName(nil, f.module), f.name), 0), t...))
			continue
		}
		buf = k.function(buf[:0], f)
		k.hold(2*len(buf) + len(f.name))
		funcs, code = append(funcs, t), append(code, sized(buf))
		if name := wasm.AppendName(wasm.AppendU32(nil, f.index), f.name); f.name != "" && nameBytes+len(name) < maxNameBytes {
			names, nameBytes = append(names, name), nameBytes+len(name)
		}
	}
	for _, p := range k.parts {
		for _, d := range p.Data {
			if d.Memory != 0 {
				failf(oneMemory, "it has more than one memory")
			}
			k.hold(namedBytes + 2*(d.End-d.Pos))
			if d.Mode == wasm.Active { // the gate refuses the instructions that read another
				data = append(data, append(append([]byte{0}, k.constant(p, d.Start).expr...), sized(p.Bytes(d.Pos, d.End))...))
			}
		}
	}
	for _, g := range k.globals {
		mutable := byte(0)
		if g.t.Mutable {
			mutable = 1
		}
		globals = append(globals, append([]byte{byte(g.t.Type), mutable}, g.expr...))
	}
	for _, e := range exports {
		x := wasm.Export{Name: e.name, Kind: wasm.ExternMemory}
		if e.f != nil {
			x.Kind, x.Index = wasm.ExternFunc, e.f.index
		}
		exported = append(exported, x.Append(nil))
	}
	m := &wasm.Module{}
	m.SetBody(wasm.SectionType, wasm.AppendItems(nil, lists.Map(k.types, func(t wasm.FuncType) []byte { return t.Append(nil) })...))
	m.SetBody(wasm.SectionImport, wasm.AppendItems(nil, imports...))
	m.SetBody(wasm.SectionFunction, wasm.AppendItems(nil, funcs...))
	if t := k.table; t != nil {
		m.SetBody(wasm.SectionTable, wasm.AppendItems(nil, append([]byte{byte(wasm.FuncRef), 0}, wasm.AppendU32(nil, t.size)...)))
		m.SetBody(wasm.SectionElement, wasm.AppendItems(nil, t.segments()...))
	}
	limits := append([]byte{0}, wasm.AppendU32(nil, k.memory.Min)...)
	if k.memory.HasMax {
		limits = wasm.AppendU32(append([]byte{1}, limits[1:]...), k.memory.Max)
	}
	m.SetBody(wasm.SectionMemory, wasm.AppendItems(nil, limits))
	m.SetBody(wasm.SectionGlobal, wasm.AppendItems(nil, globals...))
	m.SetBody(wasm.SectionExport, wasm.AppendItems(nil, exported...))
	m.SetBody(wasm.SectionCode, wasm.AppendItems(nil, code...))
	if len(data) > 0 {
		m.SetBody(wasm.SectionData, wasm.AppendItems(nil, data...))
	}
	notes = append(notes, append(wasm.AppendName(nil, "name"), append([]byte{1}, sized(wasm.AppendItems(nil, names...))...)...))
	for _, n := range notes {
		m.Sections = append(m.Sections, wasm.Section{ID: wasm.SectionCustom, Body: n})
	}
	return m.Encode()
}

// maxNameBytes bounds the names of functions that are kept, which are for people.
const maxNameBytes = 1 << 20

// segments returns one segment of elements for each run of entries.
func (t *table) segments() (segments [][]byte) {
	slots := t.slots()
	for len(slots) > 0 {
		n := 1
		for n < len(slots) && slots[n] == slots[n-1]+1 {
			n++
		}
		a := wasm.Asm{0}
		a.I32(int32(slots[0])).Op(wasm.OpEnd)
		b := wasm.AppendU32(a, uint32(n))
		for _, slot := range slots[:n] {
			b = wasm.AppendU32(b, t.items[slot].index)
		}
		segments, slots = append(segments, b), slots[n:]
	}
	return segments
}
