package source

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// State is a stopped call: the frame of one function of WebAssembly, and what all functions share.
type State struct {
	Locals, Operands, Globals []uint64
	Memory                    []byte
}

// Variable is a variable of the source, or a part of one.
type Variable struct {
	Name, Type string
	Value      string // for people; "<optimized out>" if it is nowhere
	Function   string // that was inlined here, and that it belongs to
	Address    uint32 // in memory, or 0
	Size       uint32 // in bytes
	Children   []Variable
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
// block first and those of the source file last. Only DWARF describes variables.
func (t *Table) Variables(offset uint32, s State) []Variable {
	body := t.body(offset)
	if body < 0 || t.format != DWARF {
		return nil
	}
	root := t.scopeAt(uint32(t.module.Code[body].Pos), offset)
	for root >= 0 && t.scopes[root].parent >= 0 {
		root = t.scopes[root].parent
	}
	d := *t.dwarf // whose bounds are for this call
	d.steps = maxRows
	v := &viewer{dwarf: &d, State: s, at: offset, left: maxParts}
	var e entry
	if root < 0 || !d.find(t.scopes[root].die, &e) || !e.children {
		return nil
	}
	if base, ok := e.attr(atFrameBase); ok {
		v.frame, _, _ = v.evaluate(e.u, base.block)
	}
	type found struct {
		Variable
		depth int
	}
	var all []found
	functions := []string{""} // of the levels that are open
	skip := 0                 // the level whose entries are not wanted
	for pos, u := e.next, e.u; d.entry(u, pos, &e) && v.left > 0; pos = e.next {
		depth := len(functions)
		if e.tag == 0 {
			if functions = functions[:depth-1]; len(functions) == 0 {
				break
			}
			if skip == depth {
				skip = 0
			}
			continue
		}
		function := functions[depth-1]
		wanted := skip == 0
		switch e.tag {
		case tagInlined, tagLexical:
			if ranges := d.rangesOf(&e); wanted && len(ranges) > 0 {
				wanted = slices.ContainsFunc(ranges, func(r [2]uint32) bool { return r[0] <= offset && offset < r[1] })
			}
			if e.tag == tagInlined {
				function, _ = v.origin(&e)
			}
		case tagVariable, tagParameter:
			if name, of := v.origin(&e); wanted && name != "" {
				v.left--
				x := Variable{Name: name, Function: function}
				v.locate(&x, &e, of)
				all = append(all, found{x, depth})
			}
			wanted = false
		default:
			wanted = false
		}
		if e.children {
			if functions = append(functions, function); !wanted && skip == 0 {
				skip = depth + 1
			}
		}
	}
	slices.SortStableFunc(all, func(a, b found) int { return b.depth - a.depth })
	variables := make([]Variable, len(all))
	for i, f := range all {
		variables[i] = f.Variable
	}
	return append(variables, v.statics(e.u)...)
}

// statics returns the variables of a unit that belong to no function, without those of headers.
func (v *viewer) statics(u *unit) (all []Variable) {
	var e entry
	if !v.entry(u, u.body, &e) || !e.children {
		return nil
	}
	for pos := e.next; v.left > 0 && v.steps > 0 && v.entry(u, pos, &e) && e.tag != 0; pos = v.behind(&e) {
		a, ok := e.attr(atLocation)
		if n := e.number(atDeclFile); n < uint64(len(u.files)) && u.files[n] != u.files[0] {
			continue
		}
		if name, of := v.origin(&e); e.tag == tagVariable && ok && a.block != nil && name != "" {
			x := Variable{Name: name}
			v.locate(&x, &e, of)
			all = append(all, x)
		}
	}
	return all
}

// viewer reads the variables of one state.
type viewer struct {
	*dwarf
	State
	at    uint32
	frame uint64 // the address that variables of the frame count from
	left  int    // parts
}

// origin returns the name and the type of an entry, or of what it is a copy of.
func (v *viewer) origin(e *entry) (name string, of int) {
	var next entry
	for range 4 {
		if s := v.text(e, atName); name == "" {
			name = s
		}
		if a, ok := e.attr(atType); ok && of == 0 {
			of = int(a.n)
		}
		link, ok := e.attr(atOrigin)
		if !ok {
			link, ok = e.attr(atSpec)
		}
		if !ok || !v.find(int(link.n), &next) {
			break
		}
		copied := next
		copied.attrs = slices.Clone(next.attrs)
		e = &copied
	}
	return name, of
}

// locate finds a variable, and reads it.
func (v *viewer) locate(x *Variable, e *entry, of int) {
	x.Type, x.Value, x.Size = v.typeName(of, 0), optimizedOut, v.size(of, 0)
	if c, ok := e.attr(atConst); ok {
		b := c.block
		if b == nil {
			b = binary.LittleEndian.AppendUint64(nil, c.n)
		}
		v.read(x, of, b, 0, 0)
		return
	}
	a, ok := e.attr(atLocation)
	expression := a.block
	if ok && expression == nil {
		expression = v.listed(e.u, a)
	}
	if expression == nil {
		return
	}
	n, inMemory, ok := v.evaluate(e.u, expression)
	switch {
	case !ok:
	case inMemory && n < uint64(len(v.Memory)):
		v.read(x, of, v.Memory[n:], uint32(n), 0)
	case !inMemory:
		v.read(x, of, binary.LittleEndian.AppendUint64(nil, n), 0, 0)
	}
}

// listed returns the expression of a list of locations that holds here, or nil.
func (v *viewer) listed(u *unit, a attr) (expression []byte) {
	pc, base := uint64(v.at-v.base), u.low
	if u.version < 5 {
		for c := v.loc.at(a.n); !c.failed && v.steps > 0; v.steps-- {
			low, high := c.uint(4), c.uint(4)
			switch {
			case low == 0 && high == 0:
				return nil
			case low == 0xffffffff:
				base = high
			default:
				if b := c.take(c.uint(2)); base+low <= pc && pc < base+high {
					return b
				}
			}
		}
		return nil
	}
	if a.form == 0x22 { // loclistx
		a.n = u.locBase + v.locLists.at(u.locBase+4*min(a.n, 1<<32)).uint(4)
	}
	var b []byte
	c := v.locLists.at(a.n)
	v.list(u, c, func() { b = c.take(c.uleb()) }, func(low, high uint64) {
		if low <= pc && pc < high && expression == nil {
			expression = b
		}
	})
	return expression
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
		case op == 0x03: // addr
			stack = append(stack, c.uint(4))
		case op == 0xa1 || op == 0xfb: // addrx
			stack = append(stack, v.indexed(u, c.uleb()))
		case op == 0x06: // deref
			stack = append(stack, at(v.Memory, pop()&math.MaxUint32).uint(4))
		case op >= 0x08 && op <= 0x0f: // const1u to const8s
			size := 1 << ((op - 0x08) / 2)
			x := c.uint(size)
			if op&1 != 0 {
				x = uint64(int64(x<<(64-8*size)) >> (64 - 8*size))
			}
			stack = append(stack, x)
		case op == 0x10:
			stack = append(stack, c.uleb())
		case op == 0x11:
			stack = append(stack, uint64(c.sleb()))
		case op == 0x12: // dup
			x := pop()
			stack = append(stack, x, x)
		case op == 0x1a: // and
			x, y := pop(), pop()
			stack = append(stack, x&y)
		case op == 0x1c: // minus
			x, y := pop(), pop()
			stack = append(stack, y-x)
		case op == 0x1e: // mul
			stack = append(stack, pop()*pop())
		case op == 0x22: // plus
			stack = append(stack, pop()+pop())
		case op == 0x23: // plus_uconst
			stack = append(stack, pop()+c.uleb())
		case op >= 0x30 && op <= 0x4f: // lit
			stack = append(stack, uint64(op-0x30))
		case op == 0x91: // fbreg
			stack = append(stack, uint64(uint32(v.frame+uint64(c.sleb()))))
		case op == 0x9f: // stack_value
			inMemory = false
		case op == 0xed: // WASM_location
			kind := c.byte()
			index := uint64(0)
			if kind == 3 {
				index = c.uint(4)
			} else {
				index = c.uleb()
			}
			from := v.Globals
			if kind == 0 {
				from = v.Locals
			} else if kind == 2 {
				from = v.Operands
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

// target reads the type of an entry, without names for it and qualifiers.
func (v *viewer) target(of int, e *entry) bool {
	for range 16 {
		if of == 0 || !v.find(of, e) {
			return false
		}
		switch e.tag {
		case tagTypedef, tagConst, tagVolatile, tagRestrict:
			of = int(e.number(atType))
		default:
			return true
		}
	}
	return false
}

// size returns the bytes of a type.
func (v *viewer) size(of, depth int) uint32 {
	var e entry
	switch {
	case depth > maxNesting || !v.target(of, &e):
		return 0
	case e.tag == tagPointer || e.tag == tagReference || e.tag == tagRvalue:
		return 4
	case e.tag == tagArray:
		element := int(e.number(atType))
		return uint32(min(v.length(&e)*uint64(v.size(element, depth+1)), math.MaxUint32))
	}
	return uint32(e.number(atByteSize))
}

// length returns the number of elements of an array type, whose dimensions are flattened.
func (v *viewer) length(e *entry) uint64 {
	n, dims := uint64(1), 0
	var dim entry
	for pos := e.next; e.children && dims < 8 && v.entry(e.u, pos, &dim) && dim.tag == tagSubrange; pos = dim.next {
		dims++
		if count, ok := dim.attr(atCount); ok {
			n *= count.n
		} else if upper, ok := dim.attr(atUpper); ok {
			n *= upper.n + 1
		} else {
			n = 0
		}
	}
	if dims == 0 {
		return 0
	}
	return min(n, math.MaxUint32)
}

// typeName returns a type as C would write it, roughly.
func (v *viewer) typeName(of, depth int) string {
	var e entry
	if of == 0 || depth > maxNesting || !v.find(of, &e) {
		return "void"
	}
	name := v.text(&e, atName)
	inner := func() string { return v.typeName(int(e.number(atType)), depth+1) }
	switch {
	case name != "":
	case e.tag == tagPointer:
		name = inner() + " *"
	case e.tag == tagReference || e.tag == tagRvalue:
		name = inner() + " &"
	case e.tag == tagConst:
		name = "const " + inner()
	case e.tag == tagVolatile || e.tag == tagRestrict:
		name = inner()
	case e.tag == tagArray:
		name = fmt.Sprintf("%s[%d]", inner(), v.length(&e))
	case e.tag == tagStruct || e.tag == tagClass:
		name = "struct"
	case e.tag == tagUnion:
		name = "union"
	case e.tag == tagEnum:
		name = "enum"
	default:
		name = "?"
	}
	return cut([]byte(name))
}

// read sets the value and the parts of a variable whose bytes begin b, at an address or 0.
func (v *viewer) read(x *Variable, of int, b []byte, address uint32, depth int) {
	x.Type, x.Size, x.Address = v.typeName(of, 0), v.size(of, 0), address
	var e entry
	if v.left--; v.left < 0 || !v.target(of, &e) || uint64(x.Size) > uint64(len(b)) {
		x.Value = "?"
		return
	}
	b = b[:x.Size]
	part := func(name string, of int, offset uint64) {
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
	n := (&cursor{b: b}).uint(min(len(b), 8))
	switch e.tag {
	case tagBase:
		x.Value = baseValue(e.number(atEncoding), len(b), n)
	case tagPointer, tagReference, tagRvalue:
		x.Value = fmt.Sprintf("%#x", n)
		to := int(e.number(atType))
		var pointee entry
		if n == 0 || n >= uint64(len(v.Memory)) || !v.target(to, &pointee) {
			break
		}
		memory := v.Memory[n:]
		if pointee.isChar() && x.Type != "*const u8" && x.Type != "*mut u8" {
			x.Value += " " + quoted(memory, bytes.IndexByte(memory[:min(len(memory), maxItems+1)], 0))
		} else if depth < maxNesting {
			child := Variable{Name: "*" + x.Name}
			v.read(&child, to, memory, uint32(n), depth+1)
			x.Children = append(x.Children, child)
		}
	case tagEnum:
		x.Value = strconv.FormatUint(n, 10)
		var item entry
		for pos := e.next; e.children && v.steps > 0 && v.entry(e.u, pos, &item) && item.tag == tagEnumerator; pos = item.next {
			v.steps--
			if low := item.number(atConst) << (64 - 8*min(len(b), 8)) >> (64 - 8*min(len(b), 8)); low == n {
				x.Value = v.text(&item, atName)
				break
			}
		}
	case tagArray:
		element, size := int(e.number(atType)), uint64(v.size(int(e.number(atType)), 0))
		var of entry
		if v.target(element, &of) && of.isChar() {
			x.Value = quoted(b, bytes.IndexByte(append(slices.Clone(b[:min(len(b), maxItems)]), 0), 0))
			break
		}
		for i := uint64(0); size > 0 && depth < maxNesting && i < min(v.length(&e), maxItems) && v.left > 0; i++ {
			part(fmt.Sprintf("[%d]", i), element, i*size)
		}
		x.Value = together(x, "[", "]", false)
	case tagStruct, tagClass, tagUnion:
		var member entry
		for pos := e.next; e.children && depth < maxNesting && v.left > 0 && v.steps > 0 && v.entry(e.u, pos, &member) && member.tag != 0; pos = v.behind(&member) {
			if member.tag == tagMember {
				part(v.text(&member, atName), int(member.number(atType)), member.number(atMember))
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

// isChar reports whether a type is a character of C.
func (e *entry) isChar() bool {
	coding := e.number(atEncoding)
	return e.tag == tagBase && (coding == 6 || coding == 8)
}

// behind returns the offset of the entry after another one and its children.
func (v *viewer) behind(e *entry) int {
	pos, depth := e.next, 0
	v.steps--
	var child entry
	for children := e.children; children || depth > 0; {
		if children {
			depth++
		}
		if v.steps--; v.steps < 0 || !v.entry(e.u, pos, &child) {
			return e.u.end
		}
		if pos = child.next; child.tag == 0 {
			depth--
		}
		children = child.children
	}
	return pos
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
	case encoding == 5:
		return strconv.FormatInt(signed, 10)
	case (encoding == 6 || encoding == 8 || encoding == 0x10) && n >= ' ' && n < 0x110000 && n != 0x7f && (size > 1 || n < 0x7f):
		return fmt.Sprintf("%d %q", n, rune(n))
	case encoding == 6:
		return strconv.FormatInt(signed, 10)
	}
	return strconv.FormatUint(n, 10)
}
