package source

import (
	"bytes"
	"cmp"
	"debug/dwarf"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/starling-host/starling/internal/lazy"
	"github.com/starling-host/starling/internal/work"
)

// State is a stopped call: the frame of one function of WebAssembly, and what all functions share.
type State struct {
	Locals, Globals []uint64
	Memory          []byte
}

// Variable is a variable of the source, or a part of one.
type Variable struct {
	Name, Type string
	Value      string // for people; "<optimized out>" if it is nowhere
	Function   string // that was inlined here, and that it belongs to
	Address    uint32 // in memory, or 0
	Size       uint32 // in bytes; 0 for one that is not in memory
	Children   []Variable
}

// NotInMemory returns an error if a variable, which the user calls so, has no address.
func (v *Variable) NotInMemory(as string) error {
	switch {
	case v.Size > 0:
		return nil
	case v.Value == optimizedOut:
		return fmt.Errorf("%s is %s here, so it has no address: try an earlier or a later line", as, optimizedOut)
	}
	return fmt.Errorf("%s has no address: it is in a local of WebAssembly, or an object of the script; step to its change with reverse-next", as)
}

// Bounds on what Variables returns.
const (
	maxNesting = 4
	maxItems   = 64   // of an array, or bytes of a string
	maxParts   = 4096 // of all variables
	maxValue   = 160  // bytes of a value that is made of parts
)

const optimizedOut = "<optimized out>"

// Variables returns the parameters and variables that exist at an offset, those of the innermost
// block first and those of the source file last, as many as b allows. Only DWARF describes variables.
func (t *Table) Variables(b *work.Budget, offset uint32, s State) (all []Variable) {
	body := t.Body(offset)
	if body < 0 || t.format != DWARF {
		return nil
	}
	var around []int32 // the scopes around the offset
	for i := t.scopeAt(uint32(t.module.Code[body].Pos), offset); i >= 0; i = t.scopes[i].parent {
		around = append(around, i)
	}
	d := *t.dwarf
	d.work = b
	v := &viewer{debugInfo: &d, State: s, at: offset, left: maxParts}
	var e entry
	if len(around) == 0 || !d.find(t.scopes[around[len(around)-1]].die, &e) {
		return nil
	}
	if base, ok := e.attr(dwarf.AttrFrameBase); ok {
		v.frame, _, _ = v.evaluate(e.u, base.block)
	}
	for _, i := range around {
		inlined := t.scopes[t.function(i)]
		if inlined.parent < 0 {
			inlined.name = ""
		}
		if v.function = t.scopes[i].die; d.find(v.function, &e) {
			all = append(all, v.variables(&e, inlined.name)...)
		}
	}
	d.entry(e.u, e.u.body, &e)
	return append(all, v.variables(&e, "")...)
}

// viewer reads the variables of one state.
type viewer struct {
	*debugInfo
	State
	at       uint32
	function uint64 // the entry of the function of the module
	frame    uint64 // the address that variables of the frame count from
	left     int    // parts
}

// variables returns the variables of a block, or the static ones of a file and of other functions in it,
// without those of headers. A static variable of an inlined function is in another copy of the function,
// in that which the copies are from, or in one without a name.
func (v *viewer) variables(root *entry, function string) (all []Variable) {
	static, open := root.tag == dwarf.TagCompileUnit, 1 // what is deeper than open is not read
	var inside entry
	owner, within := uint64(0), 0 // the function that an entry is in, and its depth
	for depth, e := range v.below(root) {
		if depth > open {
			continue
		}
		if open = depth; static && (e.tag == dwarf.TagNamespace || e.tag == dwarf.TagLexDwarfBlock || e.tag == dwarf.TagSubprogram) {
			open++
		}
		if e.tag == dwarf.TagSubprogram {
			owner, within = e.offset, depth
		} else if depth <= within {
			owner = 0
		}
		at, _ := e.attr(dwarf.AttrLocation)
		file := e.number(dwarf.AttrDeclFile)
		switch {
		case e.tag != dwarf.TagVariable && e.tag != dwarf.TagFormalParameter || v.left <= 0:
		case static && (owner == v.function || len(at.block) == 0 || !slices.Contains([]byte{opAddr, opAddrx, opAddrIndex}, at.block[0])):
		case static && file < uint64(len(e.u.files)) && e.u.files[file] != e.u.files[0]:
		default:
			if name, of := v.origin(e, 0); name != "" {
				x := Variable{Name: name, Function: function}
				if v.find(owner, &inside) {
					x.Function, _ = v.origin(&inside, 0)
				}
				b, address := v.locate(e)
				v.read(&x, of, b, address, 0)
				all = append(all, x)
			}
		}
	}
	return all
}

// origin returns the name and the type of an entry, or of the entry that it copies.
func (v *viewer) origin(e *entry, links int) (name string, of uint64) {
	name, of = v.text(e, dwarf.AttrName), e.number(dwarf.AttrType)
	var next entry
	if links < 4 && v.find(cmp.Or(e.number(dwarf.AttrAbstractOrigin), e.number(dwarf.AttrSpecification)), &next) {
		n, o := v.origin(&next, links+1)
		name, of = cmp.Or(name, n), cmp.Or(of, o)
	}
	return name, of
}

// locate returns the memory that begins with a variable, with its address, or a copy of its value. The
// result is nil for one that is nowhere.
func (v *viewer) locate(e *entry) (b []byte, address uint32) {
	n, inMemory, ok := v.evaluate(e.u, v.expression(e))
	if c, constant := e.attr(dwarf.AttrConstValue); constant {
		if c.block != nil {
			return c.block, 0
		}
		n, inMemory, ok = c.n, false, true
	}
	switch {
	case ok && !inMemory:
		return binary.LittleEndian.AppendUint64(nil, n), 0
	case ok && n < uint64(len(v.Memory)):
		return v.Memory[n:], uint32(n)
	}
	return nil, 0
}

// expression returns how to find a variable here, or nil.
func (v *viewer) expression(e *entry) []byte {
	a, ok := e.attr(dwarf.AttrLocation)
	if !ok || a.block != nil {
		return a.block
	}
	pc := uint64(v.at - v.base)
	for r, expression := range v.list(e.u, a.n, secLoc) {
		if r[0] <= pc && pc < r[1] {
			return expression
		}
	}
	return nil
}

// evaluate executes an expression: to an address in memory, or to a value.
func (v *viewer) evaluate(u *unit, expression []byte) (n uint64, inMemory, ok bool) {
	stack := make([]uint64, 0, 8)
	pop := func() (n uint64) {
		if len(stack) > 0 {
			n, stack = stack[len(stack)-1], stack[:len(stack)-1]
		}
		return n
	}
	inMemory = true
	c := &cursor{b: expression}
	for c.pos < len(c.b) && !c.failed && len(stack) < 64 {
		switch op := c.byte(); {
		case op == opAddr:
			stack = append(stack, c.uint(4))
		case op == opAddrx || op == opAddrIndex:
			stack = append(stack, v.element(secAddr, u.addrBase, c.uleb()))
		case op == 0x06: // deref
			stack = append(stack, at(v.Memory, pop()&math.MaxUint32).uint(4))
		case op == 0x10: // constu
			stack = append(stack, c.uleb())
		case op == 0x11: // consts
			stack = append(stack, uint64(c.sleb()))
		case op == 0x12: // dup
			x := pop()
			stack = append(stack, x, x)
		case op == 0x1a || op == 0x1c || op == 0x1e || op == 0x22: // and, minus, mul, plus
			x, y := pop(), pop()
			stack = append(stack, map[byte]uint64{0x1a: x & y, 0x1c: y - x, 0x1e: x * y, 0x22: x + y}[op])
		case op == 0x23: // plus_uconst
			stack = append(stack, pop()+c.uleb())
		case op >= 0x30 && op <= 0x4f: // lit
			stack = append(stack, uint64(op-0x30))
		case op == 0x91: // fbreg
			stack = append(stack, uint64(uint32(v.frame+uint64(c.sleb()))))
		case op == 0x9f: // stack_value
			inMemory = false
		case op == 0xed: // WASM_location
			from, index := v.Globals, uint64(0)
			switch kind := c.byte(); kind {
			case 0:
				from, index = v.Locals, c.uleb()
			case 2: // compilers name operands that other values have replaced
				return 0, false, false
			case 3:
				index = c.uint(4)
			default:
				index = c.uleb()
			}
			if index >= uint64(len(from)) {
				return 0, false, false
			}
			stack, inMemory = append(stack, from[index]), false
		default: // pieces, entry values and others
			return 0, false, false
		}
	}
	return pop(), inMemory, !c.failed && len(expression) > 0
}

// kind is a type, without names for it and qualifiers.
type kind struct {
	entry
	name   string // as C would write it, roughly
	size   uint64 // in bytes
	length uint64 // of an array, whose dimensions are flattened
	of     uint64 // the type of its elements, or of its target
}

// kindForms are the names of types that have none, around that of the type that they are made of.
var kindForms = map[dwarf.Tag]string{
	dwarf.TagPointerType: "% *", dwarf.TagReferenceType: "% &", dwarf.TagRvalueReferenceType: "% &&", dwarf.TagConstType: "const %", dwarf.TagArrayType: "%",
	dwarf.TagStructType: "struct", dwarf.TagClassType: "class", dwarf.TagUnionType: "union", dwarf.TagEnumerationType: "enum", dwarf.TagVolatileType: "%", dwarf.TagRestrictType: "%", dwarf.TagTypedef: "%",
}

// kind reads the type at an offset.
func (v *viewer) kind(at uint64, depth int) (k kind) {
	if depth > 4*maxNesting || !v.find(at, &k.entry) {
		return kind{name: "void"}
	}
	k.name, k.size, k.of = v.text(&k.entry, dwarf.AttrName), k.number(dwarf.AttrByteSize), k.number(dwarf.AttrType)
	inner := kind{name: "?"}
	if strings.Contains(kindForms[k.tag], "%") {
		inner = v.kind(k.of, depth+1)
	}
	k.name = cmp.Or(k.name, strings.Replace(cmp.Or(kindForms[k.tag], "?"), "%", inner.name, 1))
	switch k.tag {
	case dwarf.TagTypedef, dwarf.TagConstType, dwarf.TagVolatileType, dwarf.TagRestrictType:
		inner.name = k.name
		k = inner
	case dwarf.TagPointerType, dwarf.TagReferenceType, dwarf.TagRvalueReferenceType:
		k.size = 4
	case dwarf.TagArrayType:
		for dim := range v.children(&k.entry, dwarf.TagSubrangeType) {
			count, ok := dim.attr(dwarf.AttrCount)
			if upper, bound := dim.attr(dwarf.AttrUpperBound); bound && !ok {
				count.n = upper.n + 1
			}
			k.length = min(max(k.length, 1)*min(count.n, math.MaxUint32), math.MaxUint32)
		}
		k.name += fmt.Sprintf("[%d]", k.length)
		k.size = min(k.length*min(inner.size, math.MaxUint32), math.MaxUint32)
	}
	k.name = cut([]byte(k.name))
	return k
}

// isChar reports whether a type is a character of C.
func (k *kind) isChar() bool {
	coding := k.number(dwarf.AttrEncoding)
	return k.tag == dwarf.TagBaseType && (coding == 6 || coding == 8)
}

// read sets the value and the parts of a variable whose bytes begin b, at an address or 0.
func (v *viewer) read(x *Variable, of uint64, b []byte, address uint32, depth int) {
	e := v.kind(of, 0)
	x.Type, x.Value = e.name, "?"
	if address != 0 {
		x.Address, x.Size = address, uint32(e.size)
	}
	if b == nil {
		x.Value = optimizedOut
	}
	if v.left--; v.left < 0 || e.tag == 0 || e.size > uint64(len(b)) {
		return
	}
	b = b[:e.size]
	part := func(name string, of uint64, offset uint64) {
		child := Variable{Name: name, Value: "?"}
		if offset <= uint64(len(b)) {
			from := uint32(0)
			if address != 0 {
				from = address + uint32(offset)
			}
			v.read(&child, of, b[offset:], from, depth+1)
		}
		x.Children = append(x.Children, child)
	}
	n, bits := at(b, 0).uint(min(len(b), 8)), 8*min(len(b), 8)
	switch e.tag {
	case dwarf.TagBaseType:
		x.Value = baseValue(e.number(dwarf.AttrEncoding), len(b), n)
	case dwarf.TagPointerType, dwarf.TagReferenceType, dwarf.TagRvalueReferenceType:
		x.Value = fmt.Sprintf("%#x", n)
		inner := v.kind(e.of, 0)
		if n == 0 || n >= uint64(len(v.Memory)) || inner.tag == 0 {
			break
		}
		memory, child := v.Memory[n:], Variable{Name: "*" + x.Name}
		switch isStruct := inner.tag == dwarf.TagStructType || inner.tag == dwarf.TagClassType || inner.tag == dwarf.TagUnionType; {
		case e.tag != dwarf.TagPointerType:
			v.read(x, e.of, memory, uint32(n), depth)
			x.Type = e.name
		case inner.isChar() && x.Type != "*const u8" && x.Type != "*mut u8":
			x.Value += " " + quoted(memory, bytes.IndexByte(memory[:min(len(memory), maxItems+1)], 0))
		case isStruct && depth == 0:
			v.read(&child, e.of, memory, uint32(n), depth)
			x.Children = child.Children // p->x is a part of p
			x.Value += " " + child.Value
		case depth < maxNesting:
			v.read(&child, e.of, memory, uint32(n), depth+1)
			if x.Children = []Variable{child}; isStruct {
				x.Children = child.Children
			}
		}
	case dwarf.TagEnumerationType:
		x.Value = strconv.FormatUint(n, 10)
		for item := range v.children(&e.entry, dwarf.TagEnumerator) {
			if item.number(dwarf.AttrConstValue)<<(64-bits)>>(64-bits) == n {
				x.Value = v.text(item, dwarf.AttrName)
				break
			}
		}
	case dwarf.TagArrayType:
		inner := v.kind(e.of, 0)
		if inner.isChar() {
			x.Value = quoted(b, bytes.IndexByte(append(slices.Clone(b[:min(len(b), maxItems)]), 0), 0))
			break
		}
		for i := uint64(0); inner.size > 0 && depth < maxNesting && i < min(e.length, maxItems) && v.left > 0; i++ {
			part(fmt.Sprintf("[%d]", i), e.of, i*inner.size)
		}
		x.Value = together(x, "[", "]", false)
	case dwarf.TagStructType, dwarf.TagClassType, dwarf.TagUnionType:
		for member := range v.children(&e.entry, dwarf.TagMember, dwarf.TagInheritance) {
			name := v.text(member, dwarf.AttrName)
			if _, static := member.attr(dwarf.AttrExternal); static || depth >= maxNesting || v.left <= 0 {
				continue
			}
			if _, bits := member.attr(dwarf.AttrBitSize); bits {
				x.Children = append(x.Children, Variable{Name: name, Value: "?"})
				continue
			}
			part(name, member.number(dwarf.AttrType), member.number(dwarf.AttrDataMemberLoc))
			if last := len(x.Children) - 1; name == "" { // a base class, or a struct without a name
				x.Children = append(x.Children[:last], x.Children[last].Children...)
			}
		}
		if x.Value = together(x, "{", "}", true); x.Type == "&str" && len(b) == 8 {
			if from, size := n&math.MaxUint32, n>>32; from+size <= uint64(len(v.Memory)) {
				x.Value = quoted(v.Memory[from:], int(size))
			}
		}
	default:
		x.Value = fmt.Sprintf("%#x", n)
	}
}

// quoted returns the first n bytes of memory as text, or some of them.
func quoted(memory []byte, n int) string {
	if n < 0 || n > min(len(memory), maxItems) {
		return strconv.Quote(string(memory[:min(len(memory), maxItems)])) + "…"
	}
	return strconv.Quote(string(memory[:n]))
}

// together returns the values of the parts in one line.
func together(x *Variable, begin, end string, named bool) string {
	var parts []string
	length := 0
	for _, c := range x.Children {
		s := c.Value
		if named {
			s = c.Name + ": " + s
		}
		if length += len(s); length > maxValue {
			parts = append(parts, "…")
			break
		}
		parts = append(parts, s)
	}
	return begin + strings.Join(parts, ", ") + end
}

// baseValue returns a number of size bytes by its encoding.
func baseValue(encoding uint64, size int, n uint64) string {
	signed := int64(n<<(64-8*min(size, 8))) >> (64 - 8*min(size, 8))
	switch {
	case size > 8:
		return "?"
	case encoding == 2: // boolean
		return strconv.FormatBool(n != 0)
	case encoding == 4 && size == 4:
		return strconv.FormatFloat(float64(math.Float32frombits(uint32(n))), 'g', -1, 32)
	case encoding == 4 && size == 8:
		return strconv.FormatFloat(math.Float64frombits(n), 'g', -1, 64)
	case (encoding == 6 || encoding == 8 || encoding == 0x10) && n >= ' ' && n < 0x110000 && n != 0x7f && (size > 1 || n < 0x7f):
		return fmt.Sprintf("%d %q", n, rune(n))
	case encoding == 5 || encoding == 6: // signed, and a signed character
		return strconv.FormatInt(signed, 10)
	}
	return strconv.FormatUint(n, 10)
}

var rustEscape = lazy.Regexp(`\$([A-Za-z0-9]+)\$`)

// rustEscapes are the escapes of rustc's legacy mangling that are no code points.
var rustEscapes = map[string]string{"SP": "@", "BP": "*", "RF": "&", "LT": "<", "GT": ">", "LP": "(", "RP": ")", "C": ","}

// Readable returns a function's name as its author wrote it, for names that rustc has mangled
// (_ZN4core3fmt5write17h0123456789abcdefE is core::fmt::write), and any other name as it is. The
// libraries that know more manglings take time without bound for names that a module chooses.
func Readable(name string) string {
	rest, ok := strings.CutPrefix(name, "_ZN")
	if !ok {
		return name
	}
	var path []string
	for rest != "E" && rest != "" {
		digits := len(rest) - len(strings.TrimLeft(rest, "0123456789"))
		n, err := strconv.Atoi(rest[:digits])
		if err != nil || n > len(rest)-digits {
			return name
		}
		path, rest = append(path, rest[digits:digits+n]), rest[digits+n:]
	}
	last := len(path) - 1
	if rest != "E" || last < 1 || len(path[last]) != 17 || path[last][0] != 'h' { // the hash: without it this is C++
		return name
	}
	text := strings.ReplaceAll(strings.Join(path[:last], "::"), "..", "::")
	return rustEscape().ReplaceAllStringFunc(text, func(escape string) string {
		escape = strings.Trim(escape, "$")
		if code, err := strconv.ParseUint(strings.TrimPrefix(escape, "u"), 16, 21); err == nil && escape[0] == 'u' {
			return string(rune(code))
		}
		if is, ok := rustEscapes[escape]; ok {
			return is
		}
		return "$" + escape + "$"
	})
}

// maxName is how many bytes are shown of the name of a function, a file or a type.
const maxName = 256

// cursor reads little-endian numbers. After the end of its bytes it reads zeros and has failed.
type cursor struct {
	b      []byte
	pos    int
	failed bool
	kept   []byte // receives what is read, unless it is nil
}

// at returns a cursor at an offset of b.
func at(b []byte, pos uint64) *cursor {
	if pos > uint64(len(b)) {
		return &cursor{failed: true}
	}
	return &cursor{b: b, pos: int(pos)}
}

func (c *cursor) take(n uint64) []byte {
	if c.failed || n > uint64(max(len(c.b)-c.pos, 0)) {
		c.failed = true
		return nil
	}
	part := c.b[c.pos : c.pos+int(n)]
	if c.kept != nil {
		copy(c.kept[c.pos:], part)
	}
	c.pos += int(n)
	return part
}

// uint reads a number of n bytes, at most 8.
func (c *cursor) uint(n int) (v uint64) {
	for i, b := range c.take(uint64(n)) {
		v |= uint64(b) << (8 * i)
	}
	return v
}

func (c *cursor) byte() byte { return byte(c.uint(1)) }

// leb reads a LEB128 number, and returns how many bits it has.
func (c *cursor) leb() (v uint64, bits int) {
	for b := byte(0x80); b >= 0x80 && !c.failed; bits += 7 {
		b = c.byte()
		v |= uint64(b&0x7f) << min(bits, 64)
	}
	return v, bits
}

func (c *cursor) uleb() uint64 {
	v, _ := c.leb()
	return v
}

// sleb reads a signed LEB128 number.
func (c *cursor) sleb() int64 {
	v, bits := c.leb()
	unused := 64 - min(bits, 64)
	return int64(v<<unused) >> unused
}

// zigzag reads a signed number whose lowest bit is the sign.
func (c *cursor) zigzag() int64 {
	u := c.uleb()
	return int64(u>>1) ^ -int64(u&1)
}

// text reads bytes up to a zero. Many entries can point to one text.
func (c *cursor) text(b *work.Budget) string {
	if c.failed {
		return ""
	}
	n, read := bytes.IndexByte(c.b[c.pos:], 0), len(c.b)-c.pos
	if n >= 0 {
		read = n
	}
	if b.Spend(1+read/64) != nil || n < 0 {
		c.failed = true
		return ""
	}
	return cut(c.take(uint64(n) + 1)[:n])
}

// cut returns text as valid UTF-8 of bounded length.
func cut(b []byte) string { return strings.ToValidUTF8(string(b[:min(len(b), maxName)]), "�") }
