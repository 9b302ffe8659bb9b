package machine

import (
	"context"
	"fmt"
	"math"
	"slices"

	"github.com/starling-host/starling/internal/lists"
	"github.com/starling-host/starling/internal/wasm"
	"github.com/starling-host/starling/internal/work"
)

// Code is a translated module. It does not change, and machines share it.
type Code struct {
	Imports []Import

	types           []uint32    // for each type, the first one that equals it
	funcs           []*function // the module's, then those of exported imports
	table           []int32     // indices of functions, -1 for none
	initial         []uint64    // values of globals
	globals         []wasm.GlobalType
	exports         map[string]uint32
	exportedGlobals map[string]uint32
	memory          wasm.Limits // zero without a memory
	fuel            int         // the global that counts fuel, or -1
}

// Import is an import of a module.
type Import struct {
	Module, Name string
	Type         wasm.FuncType
}

// function is a function in the form that run executes.
type function struct {
	index           uint32 // in the module's index space
	typ             uint32 // index of the first type that equals its own
	params, results int
	locals          int // parameters included
	size            int // of a frame or of a host's slots
	host            int // the import's number, or -1
	result          wasm.ValType
	code            []operation
	offsets         []uint32   // in the module, of the instruction that each operation comes from
	tables          [][]uint32 // targets of each br_table
}

// operation is an opcode with the slots of its result and its operands, and a constant. The upper
// half of the constant of a branch is its target.
type operation struct {
	op      uint16
	d, a, b uint16
	imm     uint64
}

// Translate validates a module that the rewriter has written, and translates it. Fuel is the export of
// the global that counts fuel, by which a recording can stop.
func Translate(ctx context.Context, b []byte, fuel string) (*Code, error) {
	m, err := wasm.Decode(work.For(ctx, len(b)), b)
	if err != nil {
		return nil, err
	}
	c := &Code{exports: map[string]uint32{}, exportedGlobals: map[string]uint32{}, fuel: -1}
	first := map[string]uint32{}
	for i, t := range m.Types {
		if _, ok := first[t.String()]; !ok {
			first[t.String()] = uint32(i)
		}
		c.types = append(c.types, first[t.String()])
	}
	c.Imports = lists.Map(m.Imports, func(im wasm.Import) Import { return Import{im.Module, im.Name, m.Types[im.Type]} })
	for i := range m.NumFuncs() {
		index := m.FuncTypeIndex(i)
		t := m.Types[index]
		f := &function{index: uint32(i), typ: c.types[index], params: len(t.Params), results: len(t.Results), locals: len(t.Params), host: -1}
		if i < m.NumImportedFuncs() {
			f.host, f.size = i, max(f.params, f.results, 1)
			if f.results > 0 {
				f.result = t.Results[0]
			}
		}
		c.funcs = append(c.funcs, f)
	}
	for _, g := range m.Globals {
		v := constantAt(m, g.Init.Pos, g.Init.End)
		c.initial, c.globals = append(c.initial, v.bits), append(c.globals, g.GlobalType)
	}
	for _, e := range m.Exports {
		switch {
		case e.Kind == wasm.ExternGlobal:
			c.exportedGlobals[e.Name] = e.Index
			if e.Name == fuel {
				c.fuel = int(e.Index)
			}
		case e.Kind == wasm.ExternFunc && int(e.Index) < len(c.Imports):
			c.exports[e.Name] = c.forward(c.funcs[e.Index])
		case e.Kind == wasm.ExternFunc:
			c.exports[e.Name] = e.Index
		}
	}
	if len(m.Memories) > 0 {
		c.memory = m.Memories[0]
		if !c.memory.HasMax {
			c.memory.Max = wasm.MaxPages
		}
	}
	if len(m.Tables) > 0 {
		c.table = slices.Repeat([]int32{-1}, int(m.Tables[0].Limits.Min))
	}
	for i := range m.Elements {
		if err := c.fillTable(m, &m.Elements[i]); err != nil {
			return nil, err
		}
	}
	total := 0
	for i := range m.Code {
		t := &translator{c: c, m: m, f: c.funcs[m.NumImportedFuncs()+i]}
		if err := t.body(i); err != nil {
			return nil, fmt.Errorf("function %d: %w", t.f.index, err)
		}
		if total += len(t.f.code); total > mostOperations {
			return nil, fmt.Errorf("more than %d operations", mostOperations)
		}
	}
	return c, nil
}

// mostOperations bounds the operations of a module, since one branch can move 16 values.
const mostOperations = 1 << 25

// forward adds a function that calls an import, for an import that is exported.
func (c *Code) forward(f *function) uint32 {
	g := *f
	g.index, g.host, g.offsets = uint32(len(c.funcs)), -1, []uint32{math.MaxUint32, math.MaxUint32}
	g.code = []operation{{op: opCall, imm: uint64(f.index)}, {op: opReturn}}
	c.funcs = append(c.funcs, &g)
	return g.index
}

func (c *Code) fillTable(m *wasm.Module, e *wasm.Element) error {
	at := uint64(uint32(e.Start.Value))
	switch {
	case e.Mode != wasm.Active:
		return nil
	case at+uint64(e.Count) > uint64(len(c.table)):
		return fmt.Errorf("an element segment is outside of the table")
	}
	for item := range m.Items(e) {
		if item.Op == wasm.OpRefFunc {
			c.table[at] = int32(item.Value)
		}
		at++
	}
	return nil
}

// value is an operand on the stack of a translation: in its own slot, a local that has
// not changed since, or a constant.
type value struct {
	t    wasm.ValType // 0: any, in code that nothing reaches
	kind byte
	bits uint64 // of the constant, or the number of the local
}

const (
	inSlot = iota
	inLocal
	constant
)

// translator translates one body.
type translator struct {
	c        *Code
	m        *wasm.Module
	f        *function
	types    []wasm.ValType // of locals
	stack    []value
	settled  int // values of the stack that are in their slots
	peak     int // of the stack
	control  []control
	silent   bool // nothing reaches the instruction, and nothing is emitted
	at       int  // offset of the instruction
	last     int  // the last operation, if it only puts a result into a slot and nothing branches behind it; or -1
	straight int  // the last operation that a branch leads to
}

// lazyStack is the height beyond which locals are copied to the stack, so that looking for them
// takes no time.
const lazyStack = 200

// invalid is the panic with which a translation ends.
type invalid string

// check ends the translation unless the module is valid.
func (t *translator) check(valid bool, format string, args ...any) {
	if !valid {
		panic(invalid(fmt.Sprintf(format, args...)))
	}
}

// exists checks an index of something.
func (t *translator) exists(what string, index uint32, size int) {
	t.check(int64(index) < int64(size), "%s %d does not exist", what, index)
}

// is checks the type of a value. Zero is any.
func (t *translator) is(got, want wasm.ValType) {
	t.check(got == want || got == 0 || want == 0, "operand of type %s, not %s", got, want)
}

func (t *translator) body(i int) (err error) {
	defer func() {
		switch v := recover().(type) {
		case nil:
		case invalid:
			err = fmt.Errorf("offset %#x: %s", t.at, string(v))
		default:
			panic(v)
		}
	}()
	groups, it, err := t.m.Body(i, nil)
	if err != nil {
		return err
	}
	own := t.m.Types[t.m.Funcs[i]]
	t.types = append(t.types, own.Params...)
	for _, g := range groups {
		t.check(uint64(len(t.types))+uint64(g.Count) < maxSlots/2, "more than %d locals", maxSlots/2)
		t.types = append(t.types, slices.Repeat([]wasm.ValType{g.Type}, int(g.Count))...)
	}
	t.f.locals, t.last = len(t.types), -1
	t.control = append(t.control, control{op: wasm.OpBlock, results: own.Results, otherwise: -1})
	for it.Next() {
		t.at = it.Instr.Pos
		t.instruction(&it)
		t.check(t.f.locals+t.peak < maxSlots-1, "a frame of more than %d slots", maxSlots)
	}
	t.f.size = t.f.locals + t.peak + 1
	return it.Err()
}

func (t *translator) slot(height int) uint16 {
	t.peak = max(t.peak, height+1)
	return uint16(t.f.locals + height)
}

// emit appends an operation and returns its number, -1 where nothing reaches it.
func (t *translator) emit(o operation) int {
	t.last = -1
	if t.silent {
		return -1
	}
	t.f.code, t.f.offsets = append(t.f.code, o), append(t.f.offsets, uint32(t.at))
	return len(t.f.code) - 1
}

func (t *translator) push(v value) {
	t.stack = append(t.stack, v)
	t.slot(len(t.stack))
}

// result emits an operation whose result goes on the stack.
func (t *translator) result(want wasm.ValType, o operation) {
	o.d = t.slot(len(t.stack))
	last := t.emit(o)
	t.push(value{t: want})
	t.last = last
}

// pop returns the value on the stack and its height. Zero is any type.
func (t *translator) pop(want wasm.ValType) (value, int) {
	c, height := t.top(), len(t.stack)-1
	if height < c.height {
		t.check(c.unreachable, "an operand is missing")
		return value{t: want}, c.height
	}
	v := t.stack[height]
	t.is(v.t, want)
	t.cut(height)
	return v, height
}

// cut drops the values from a height on.
func (t *translator) cut(height int) {
	t.stack, t.settled = t.stack[:height], min(t.settled, height)
}

// operand pops a value and returns the slot that has it. A constant is put there.
func (t *translator) operand(want wasm.ValType) uint16 { return t.slotOf(t.pop(want)) }

func (t *translator) slotOf(v value, height int) uint16 {
	switch v.kind {
	case inLocal:
		return uint16(v.bits)
	case constant:
		t.emit(operation{op: opConst, d: t.slot(height), imm: v.bits})
	}
	return t.slot(height)
}

// put emits what puts a value into a slot, unless it is there.
func (t *translator) put(d uint16, v value, height int) {
	switch s := t.slot(height); {
	case v.kind == constant:
		t.emit(operation{op: opConst, d: d, imm: v.bits})
	case v.kind == inLocal && d != uint16(v.bits):
		t.emit(operation{op: opMove, d: d, a: uint16(v.bits)})
	case v.kind == inSlot && d != s:
		t.emit(operation{op: opMove, d: d, a: s})
	}
}

// fill puts the values from a height on into their slots, and settle does it for good.
func (t *translator) fill(from int) {
	for h := from; h < len(t.stack); h++ {
		t.put(t.slot(h), t.stack[h], h)
	}
}

func (t *translator) settle() {
	t.fill(t.settled)
	for ; t.settled < len(t.stack); t.settled++ {
		t.stack[t.settled].kind = inSlot
	}
	t.last = -1
}

// expect checks that values of these types are on the stack.
func (t *translator) expect(types []wasm.ValType) {
	c := t.top()
	if c.unreachable {
		for i := len(types) - 1; i >= 0; i-- {
			t.pop(types[i])
		}
		t.pushAll(types)
		return
	}
	base := len(t.stack) - len(types)
	t.check(base >= c.height, "an operand is missing")
	for i, want := range types {
		t.is(t.stack[base+i].t, want)
	}
}

func (t *translator) pushAll(types []wasm.ValType) {
	for _, v := range types {
		t.push(value{t: v})
	}
}

// undo takes back the last operations.
func (t *translator) undo(n int) {
	n = len(t.f.code) - n
	t.f.code, t.f.offsets, t.last = t.f.code[:n], t.f.offsets[:n], -1
}

func (t *translator) instruction(it *wasm.Iter) {
	switch in := it.Instr; in.Op {
	case wasm.OpNop:
	case wasm.OpUnreachable:
		t.emit(operation{op: opUnreachable})
		t.unreachable()
	case wasm.OpBlock, wasm.OpLoop:
		t.open(in.Op, in.Block, -1)
	case wasm.OpIf:
		t.open(in.Op, in.Block, t.condition(0, t.settle))
	case wasm.OpElse, wasm.OpEnd:
		t.closes(in.Op)
	case wasm.OpBr:
		c, _ := t.label(in.Index)
		t.expect(c.carried())
		t.jump(in.Index)
		t.unreachable()
	case wasm.OpBrIf:
		t.branchIf(in.Index)
	case wasm.OpBrTable:
		t.branchTable(it)
	case wasm.OpReturn:
		t.expect(t.control[0].results)
		t.leave()
		t.unreachable()
	case wasm.OpCall:
		t.exists("function", in.Index, t.m.NumFuncs())
		t.call(t.m.Types[t.m.FuncTypeIndex(int(in.Index))], operation{op: opCall, imm: uint64(in.Index)})
	case wasm.OpCallIndirect:
		t.exists("type", in.Index, len(t.m.Types))
		t.exists("table", in.Index2, len(t.m.Tables))
		t.call(t.m.Types[in.Index], operation{op: opCallIndirect, a: t.operand(wasm.I32), imm: uint64(t.c.types[in.Index])})
	case wasm.OpDrop:
		t.pop(0)
		t.last = -1
	case wasm.OpSelect, wasm.OpSelectTyped:
		c, want := t.operand(wasm.I32), wasm.ValType(0)
		if in.Op == wasm.OpSelectTyped {
			want = wasm.ValType(t.m.Bytes(in.Pos, in.End)[2])
		}
		y, hy := t.pop(want)
		x, hx := t.pop(want)
		t.is(x.t, y.t)
		o := operation{op: opSelect, a: t.slotOf(x, hx), b: t.slotOf(y, hy), imm: uint64(c)}
		t.result(max(x.t, y.t), o)
	case wasm.OpLocalGet, wasm.OpLocalSet, wasm.OpLocalTee:
		t.local(in.Op, in.Index)
	case wasm.OpGlobalGet, wasm.OpGlobalSet:
		t.global(in.Op, in.Index)
	case wasm.OpMemorySize:
		t.exists("memory", 0, len(t.m.Memories))
		t.result(wasm.I32, operation{op: opMemorySize})
	case wasm.OpMemoryGrow:
		t.exists("memory", 0, len(t.m.Memories))
		t.result(wasm.I32, operation{op: opMemoryGrow, a: t.operand(wasm.I32)})
	case wasm.OpMemoryCopy, wasm.OpMemoryFill:
		t.exists("memory", 0, len(t.m.Memories))
		n, from, to := t.operand(wasm.I32), t.operand(wasm.I32), t.operand(wasm.I32)
		t.emit(operation{op: map[wasm.Op]uint16{wasm.OpMemoryCopy: opMemoryCopy, wasm.OpMemoryFill: opMemoryFill}[in.Op], d: to, a: from, b: n})
	case wasm.OpI32Const, wasm.OpI64Const, wasm.OpF32Const, wasm.OpF64Const:
		t.push(constantAt(t.m, in.Pos, in.End))
	default:
		t.plain(in)
	}
}

// closes handles else and end.
func (t *translator) closes(op wasm.Op) {
	c := t.top()
	t.expect(c.results)
	t.check(len(t.stack) == c.height+len(c.results), "%d values are left", len(t.stack)-c.height-len(c.results))
	if len(t.control) == 1 {
		t.leave()
		t.control = nil
		return
	}
	if !t.silent {
		t.settle()
	}
	here, next := *c, c.params
	if op == wasm.OpElse {
		t.check(c.op == wasm.OpIf && c.otherwise != noElse, "else without if")
		c.exits = append(c.exits, patch{t.emit(operation{op: opJump}), -1, 0})
		t.target(patch{c.otherwise, -1, 0}, len(t.f.code))
		c.otherwise, c.unreachable = noElse, false
	} else {
		if c.op == wasm.OpIf && c.otherwise != noElse {
			t.check(string(c.params) == string(c.results), "if without else, of a type that changes the stack")
			t.target(patch{c.otherwise, -1, 0}, len(t.f.code))
		}
		for _, p := range c.exits {
			t.target(p, len(t.f.code))
		}
		t.control, next = t.control[:len(t.control)-1], c.results
	}
	t.silent, t.last = here.silent, -1
	t.cut(here.height)
	t.pushAll(next)
	t.settled = len(t.stack)
}

func (t *translator) branchIf(index uint32) {
	c, body := t.label(index)
	v, _ := t.pop(wasm.I32)
	t.expect(c.carried())
	moves := body || !t.silent && t.moves(c)
	t.stack = append(t.stack, v)
	if moves {
		over := t.condition(0, func() {})
		t.jump(index)
		t.target(patch{over, -1, 0}, len(t.f.code))
	} else {
		c.lead(t, patch{t.condition(1, func() {}), -1, 0})
	}
	t.last = -1
}

func (t *translator) branchTable(it *wasm.Iter) {
	a := t.operand(wasm.I32)
	table := len(t.f.tables)
	t.f.tables = append(t.f.tables, make([]uint32, it.Index+1))
	t.emit(operation{op: opBrTable, a: a, imm: uint64(table)})
	stubs := map[uint32]int{} // code that moves values and then branches
	entry, arity := 0, -1
	for index := range it.Labels {
		c, body := t.label(index)
		t.check(arity < 0 || arity == len(c.carried()), "labels of different types")
		arity = len(c.carried())
		// Where nothing reaches the branch, its operands may be of any type for each label.
		base := max(len(t.stack)-arity, t.top().height)
		operands := slices.Clone(t.stack[base:])
		t.expect(c.carried())
		t.stack = append(t.stack[:base], operands...)
		switch stub, ok := stubs[index]; {
		case t.silent:
		case ok:
			t.f.tables[table][entry] = uint32(stub)
		case body || t.moves(c):
			stubs[index] = len(t.f.code)
			t.f.tables[table][entry] = uint32(len(t.f.code))
			t.jump(index)
		default:
			c.lead(t, patch{-1, table, entry})
		}
		entry++
	}
	t.unreachable()
}

// call settles the parameters, which become the first slots of the callee's frame.
func (t *translator) call(callee wasm.FuncType, o operation) {
	t.expect(callee.Params)
	base := len(t.stack) - len(callee.Params)
	t.fill(base)
	o.d = t.slot(base)
	t.emit(o)
	t.cut(base)
	t.pushAll(callee.Results)
	t.last = -1
}

func (t *translator) local(op wasm.Op, index uint32) {
	t.exists("local", index, len(t.types))
	want, x := t.types[index], value{t.types[index], inLocal, uint64(index)}
	if op == wasm.OpLocalGet {
		if len(t.stack) > lazyStack {
			t.result(want, operation{op: opMove, a: uint16(index)})
		} else {
			t.push(x)
		}
		return
	}
	last := t.last
	v, height := t.pop(want)
	pending := false
	for h := t.settled; h < min(len(t.stack), lazyStack+1); h++ { // the values that are still the local's
		if t.stack[h] == x {
			t.put(t.slot(h), x, h)
			t.stack[h].kind, pending = inSlot, true
		}
	}
	if last >= 0 && !pending && v.kind == inSlot && t.f.code[last].d == t.slot(height) {
		t.f.code[last].d = uint16(index)
		t.last = -1
	} else {
		t.put(uint16(index), v, height)
	}
	if op == wasm.OpLocalTee {
		t.push(x)
	}
}

func (t *translator) global(op wasm.Op, index uint32) {
	t.exists("global", index, len(t.c.globals))
	g := t.c.globals[index]
	if op == wasm.OpGlobalGet {
		t.result(g.Type, operation{op: opGlobalGet, imm: uint64(index)})
		return
	}
	t.check(g.Mutable, "global %d is not mutable", index)
	last := t.last
	a := t.operand(g.Type)
	fuel := int(index) == t.c.fuel
	if n := len(t.f.code); last > t.straight && last == n-1 && index < maxSlots && t.f.code[last].d == a && int(a) >= t.f.locals {
		// The rewriter's additions of a constant to fuel and depth are one operation.
		get, add := t.f.code[last-1], t.f.code[last]
		if get.op == opGlobalGet && get.imm == uint64(index) && get.d == add.a && get.d == add.d &&
			(fuel && add.op == opI64AddConst || !fuel && add.op == opI32AddConst) {
			t.undo(2)
			t.emit(operation{op: map[bool]uint16{true: opFuelAdd, false: opGlobalAdd32}[fuel], a: uint16(index), imm: add.imm})
			return
		}
	}
	t.emit(operation{op: map[bool]uint16{true: opFuelSet, false: opGlobalSet}[fuel], a: a, imm: uint64(index)})
}

// constantAt decodes the instruction of a constant.
func constantAt(m *wasm.Module, pos, end int) value {
	raw := m.Bytes(pos, end)
	r := wasm.NewReader(raw, 1, len(raw))
	switch wasm.Op(raw[0]) {
	case wasm.OpI32Const:
		return value{wasm.I32, constant, uint64(uint32(r.S32()))}
	case wasm.OpI64Const:
		return value{wasm.I64, constant, uint64(r.S64())}
	case wasm.OpF32Const:
		return value{wasm.F32, constant, uint64(le.Uint32(raw[1:]))}
	}
	return value{wasm.F64, constant, le.Uint64(raw[1:])}
}

// saturated converts a float to an integer without a trap.
func saturated[I int32 | int64 | uint32 | uint64](x, least, most float64, low, high I) I {
	switch {
	case x != x:
		return 0
	case x <= least:
		return low
	case x >= most:
		return high
	}
	return I(x)
}

// plain translates an instruction of the generated table.
func (t *translator) plain(in wasm.Instr) {
	index := in.Op
	if in.Op >= wasm.OpI32TruncSatF32S && in.Op <= wasm.OpI64TruncSatF64U {
		index = 0xe0 + in.Op&7
	}
	row := plain[index&0xff]
	t.check(index < 0x100 && row.slots != opNone, "%s is not known", in.Op)
	o := operation{op: row.slots}
	if in.Op >= wasm.OpI32Load && in.Op <= wasm.OpI64Store32 {
		t.exists("memory", 0, len(t.m.Memories))
		raw := t.m.Bytes(in.Pos, in.End)
		r := wasm.NewReader(raw, 1, len(raw))
		align := r.U32()
		t.check(align <= alignment[in.Op-wasm.OpI32Load], "alignment %d", align)
		o.imm = uint64(r.U32())
	}
	if len(row.params) == 2 {
		if v, height := t.pop(row.params[1]); v.kind == constant && row.constant != 0 {
			o.op, o.imm = row.constant, v.bits
		} else {
			o.b = t.slotOf(v, height)
		}
	}
	o.a = t.operand(row.params[0])
	if len(row.results) == 0 {
		t.emit(o)
	} else {
		t.result(row.results[0], o)
	}
}

// alignment has the logarithm of each load's and store's bytes, by opcode.
var alignment = [...]uint32{2, 3, 2, 3, 0, 0, 1, 1, 0, 0, 1, 1, 2, 2, 2, 3, 2, 3, 0, 1, 0, 1, 2}
