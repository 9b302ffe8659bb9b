package source

import (
	"cmp"
	"debug/dwarf"
	"iter"
	"math"
	"path"
	"slices"
	"sort"
	"strings"

	"github.com/starling-host/starling/internal/wasm"
	"github.com/starling-host/starling/internal/work"
)

// debugInfo is the debug information of a module, of the versions 2 to 5 in the 32-bit format. Its
// addresses count from the body of the code section.
type debugInfo struct {
	sections, kept [len(sectionNames)][]byte // what is read of sections is copied to kept, unless that is nil

	work     *work.Budget
	units    []unit
	tables   map[uint64]map[uint64]abbrev
	base     uint32
	limit    uint64             // the length of the code section's body
	programs map[uint64][]int32 // the files of each line program that was read
}

// The sections, in the order in which [Trim] keeps them.
const (
	secInfo, secAbbrev, secLine, secLineStr, secStr, secStrOffsets = 0, 1, 2, 3, 4, 5
	secAddr, secRanges, secRngLists, secLoc, secLocLists           = 6, 7, 8, 9, 10
)

var sectionNames = [...]string{"info", "abbrev", "line", "line_str", "str", "str_offsets", "addr", "ranges", "rnglists", "loc", "loclists"}

// at returns a cursor at an offset of a section.
func (d *debugInfo) at(section int, pos uint64) *cursor {
	c := at(d.sections[section], pos)
	c.kept = d.kept[section]
	return c
}

// element returns a number of a table of numbers.
func (d *debugInfo) element(section int, table, index uint64) uint64 {
	return d.at(section, table+4*min(index, 1<<32)).uint(4)
}

const sizeOfUnit = 192 // bytes, with its place among the line programs

// unit is one unit of compilation.
type unit struct {
	start, body, end                            uint64 // offsets in info: of the header, of the first entry, behind the last
	version                                     uint64
	abbrevs                                     map[uint64]abbrev
	strBase, addrBase, rangesBase, locBase, low uint64
	files                                       []int32
}

type abbrev struct {
	tag      dwarf.Tag
	children bool
	fields   []field
}

type field struct {
	attr     dwarf.Attr
	form     uint64
	constant int64
}

// entry is a debugging information entry with the attributes that it has.
type entry struct {
	offset, next uint64
	tag          dwarf.Tag
	children     bool
	attrs        []attr
	u            *unit
}

type attr struct {
	name  dwarf.Attr
	form  uint64
	n     uint64 // a number, an address, or an offset in a section
	block []byte // of a block or an inline string
}

// Forms, by the names of the standard without their prefix, and operations.
const (
	formAddr, formString, formStrp, formUdata, formIndirect, formLineStrp = 0x01, 0x08, 0x0e, 0x0f, 0x16, 0x1f
	formImplicit, formStrx, formAddrx, formLocListx, formRngListx         = 0x21, 0x1a, 0x1b, 0x22, 0x23
	formRef1, formRefUdata, formStrx1, formStrx4, formAddrx1, formAddrx4  = 0x11, 0x15, 0x25, 0x28, 0x29, 0x2c

	opAddr, opAddrx, opAddrIndex = 0x03, 0xa1, 0xfb
)

// forms has for each form how its values are written: a digit is the size of a number, u and s are
// numbers in LEB128, t is a text, a to d are blocks behind their length in 1 to 4 bytes, v behind one
// in LEB128, x is a block of 16 bytes, i is a value of the abbreviation.
const forms = "?4?bd248tva11s4u41248u*4v0uu44x48iuu812341234"

// readDWARF reads the sections of the module, and reports whether there is any line or function.
func (t *Table) readDWARF() bool {
	code := t.module.Section(wasm.SectionCode)
	d := &debugInfo{tables: map[uint64]map[uint64]abbrev{}, programs: map[uint64][]int32{}, base: uint32(code.Offset), limit: uint64(len(code.Body)), work: t.work}
	d.sections = t.keptSections()
	for i, name := range sectionNames {
		if d.sections[i] == nil {
			d.sections[i] = t.module.Custom(".debug_" + name).Content()
		}
		if t.own != nil && t.work.Hold(len(d.sections[i])) == nil {
			d.kept[i] = make([]byte, len(d.sections[i]))
		}
	}
	t.dwarf = d
	var e entry
	for start := uint64(0); d.work.Spend(1) == nil && d.work.Hold(sizeOfUnit) == nil; {
		c := d.at(secInfo, start)
		u := unit{start: start, end: start + 4 + c.uint(4), version: c.uint(2)}
		if c.failed || u.end < uint64(c.pos) || u.end > uint64(len(c.b)) {
			break
		}
		if start = u.end; u.version < 2 || u.version > 5 || t.own != nil && !t.own[u.start] {
			if c.kept != nil {
				clear(c.kept[u.start+4 : c.pos]) // so that the version is 0
			}
			continue
		}
		c.b = c.b[:u.end]
		kind, table := byte(1), uint64(0)
		if u.version == 5 {
			kind = c.byte()
			c.byte()
			table = c.uint(4)
		} else {
			table = c.uint(4)
			c.byte()
		}
		u.body = uint64(c.pos)
		if u.abbrevs = d.abbrevs(table); kind != 1 || c.failed || !d.entry(&u, u.body, &e) {
			continue
		}
		u.strBase, u.addrBase, u.rangesBase, u.locBase = e.number(dwarf.AttrStrOffsetsBase), e.number(dwarf.AttrAddrBase), e.number(dwarf.AttrRnglistsBase), e.number(dwarf.AttrLoclistsBase)
		d.entry(&u, u.body, &e) // with what the bases are for
		u.low = e.number(dwarf.AttrLowpc)
		if program, ok := e.attr(dwarf.AttrStmtList); ok {
			if u.files, ok = d.programs[program.n]; !ok {
				u.files = t.readLines(&u, program.n, d.text(&e, dwarf.AttrCompDir), d.text(&e, dwarf.AttrName))
				d.programs[program.n] = u.files
			}
		}
		d.units = append(d.units, u)
	}
	t.readScopes()
	return len(t.rows) > 0 || len(t.scopes) > 0
}

func (c *cursor) field() field { return field{attr: dwarf.Attr(c.uleb()), form: c.uleb()} }

// abbrevs reads a table of abbreviations.
func (d *debugInfo) abbrevs(offset uint64) map[uint64]abbrev {
	if table, ok := d.tables[offset]; ok {
		return table
	}
	table := map[uint64]abbrev{}
	d.tables[offset] = table
	for c := d.at(secAbbrev, offset); d.work.Spend(1) == nil && d.work.Hold(96) == nil; {
		code := c.uleb()
		if code == 0 || c.failed {
			break
		}
		a := abbrev{tag: dwarf.Tag(c.uleb()), children: c.byte() != 0}
		for f := c.field(); f != (field{}) && d.work.Spend(1) == nil && d.work.Hold(48) == nil; f = c.field() {
			if f.form == formImplicit {
				f.constant = c.sleb()
			}
			a.fields = append(a.fields, f)
		}
		table[code] = a
	}
	return table
}

// entry reads the entry at an offset of info into e, and reports whether it could. The null entry
// has the tag 0.
func (d *debugInfo) entry(u *unit, offset uint64, e *entry) bool {
	*e = entry{offset: offset, attrs: e.attrs[:0], u: u}
	c := d.at(secInfo, offset)
	c.b = c.b[:u.end]
	code := c.uleb()
	a, ok := u.abbrevs[code]
	e.tag, e.children = a.tag, a.children
	for _, f := range a.fields {
		if c.failed {
			break
		}
		e.attrs = append(e.attrs, d.value(u, c, f))
	}
	e.next = uint64(c.pos)
	return d.work.Spend(1+max(c.pos-int(offset), 0)/16) == nil && !c.failed && (code == 0 || ok)
}

// value reads the value of an attribute. Indexes become what they are of, and references offsets of
// info.
func (d *debugInfo) value(u *unit, c *cursor, f field) attr {
	v := attr{name: f.attr, form: f.form}
	c.failed = c.failed || d.work.Spend(1) != nil
	if v.form == formIndirect {
		v.form = c.uleb()
	}
	written := byte('?')
	if v.form < uint64(len(forms)) {
		written = forms[v.form]
	}
	switch written {
	case '0':
		v.n = 1
	case '1', '2', '3', '4', '8':
		v.n = c.uint(int(written - '0'))
	case 'u':
		v.n = c.uleb()
	case 's':
		v.n = uint64(c.sleb())
	case 'i':
		v.n = uint64(f.constant)
	case 't':
		v.block = []byte(c.text(d.work))
	case 'a', 'b', 'd':
		v.block = c.take(c.uint(int(written-'a') + 1))
	case 'v':
		v.block = c.take(c.uleb())
	case 'x':
		v.block = c.take(16)
	default:
		c.failed = true
	}
	switch {
	case v.form >= formRef1 && v.form <= formRefUdata: // within the unit
		v.n += u.start
	case v.form == formStrx || v.form >= formStrx1 && v.form <= formStrx4:
		v.form, v.n = formStrp, d.element(secStrOffsets, u.strBase, v.n)
	case v.form == formAddrx || v.form >= formAddrx1 && v.form <= formAddrx4:
		v.form, v.n = formAddr, d.element(secAddr, u.addrBase, v.n)
	case v.form == formLocListx:
		v.n = u.locBase + d.element(secLocLists, u.locBase, v.n)
	case v.form == formRngListx:
		v.n = u.rangesBase + d.element(secRngLists, u.rangesBase, v.n)
	}
	return v
}

func (e *entry) attr(name dwarf.Attr) (attr, bool) {
	for _, a := range e.attrs {
		if a.name == name {
			return a, true
		}
	}
	return attr{}, false
}

// number returns an attribute that is a number, or 0.
func (e *entry) number(name dwarf.Attr) uint64 {
	a, _ := e.attr(name)
	return a.n
}

// text returns an attribute that is a string, or "".
func (d *debugInfo) text(e *entry, name dwarf.Attr) string {
	a, _ := e.attr(name)
	return d.string(a)
}

func (d *debugInfo) string(a attr) string {
	switch a.form {
	case formStrp:
		return d.at(secStr, a.n).text(d.work)
	case formLineStrp:
		return d.at(secLineStr, a.n).text(d.work)
	}
	return string(a.block)
}

// below yields the entries below another one, with their depth below it. The entry that it yields is
// read again for the next.
func (d *debugInfo) below(e *entry) iter.Seq2[int, *entry] {
	return func(yield func(int, *entry) bool) {
		var child entry
		depth := 1
		if !e.children {
			depth = 0
		}
		for pos := e.next; depth > 0 && d.entry(e.u, pos, &child); pos = child.next {
			switch {
			case child.tag == 0:
				depth--
			case !yield(depth, &child):
				return
			case child.children:
				depth++
			}
		}
	}
}

// children yields the entries with some tags that are right below another one.
func (d *debugInfo) children(e *entry, tags ...dwarf.Tag) iter.Seq[*entry] {
	return func(yield func(*entry) bool) {
		for depth, child := range d.below(e) {
			if depth == 1 && slices.Contains(tags, child.tag) && !yield(child) {
				return
			}
		}
	}
}

// find reads the entry at an offset of any unit.
func (d *debugInfo) find(offset uint64, e *entry) bool {
	i := sort.Search(len(d.units), func(i int) bool { return d.units[i].end > offset })
	return i < len(d.units) && offset >= d.units[i].body && d.entry(&d.units[i], offset, e)
}

// readLines reads a line program, and returns its files by their numbers.
func (t *Table) readLines(u *unit, offset uint64, dir, name string) (files []int32) {
	d := t.dwarf
	c := d.at(secLine, offset)
	size := c.uint(4)
	if c.failed || size > uint64(len(c.b)-c.pos) {
		return nil
	}
	c.b = c.b[:c.pos+int(size)]
	program := c.b
	version := c.uint(2)
	if version == 5 {
		c.uint(2)
	}
	start := c.uint(4)
	start += uint64(c.pos)
	step := c.uint(1)
	if version >= 4 {
		c.byte() // operations of an instruction
	}
	c.byte()
	lineBase, lineRange, opcodes := int32(int8(c.byte())), int(c.byte()), int(c.byte())
	lengths := c.take(uint64(max(opcodes-1, 0)))
	if c.failed || version < 2 || version > 5 || lineRange == 0 {
		return nil
	}
	// table reads the folders or the files. Before DWARF 5 their forms are fixed, and an empty name is behind them.
	table := func(forms []field, yield func(name string, dir uint64)) {
		n := uint64(math.MaxUint64)
		if version == 5 {
			forms = nil
			for range c.byte() {
				forms = append(forms, c.field())
			}
			n = c.uleb()
		}
		for before := -1; n > 0 && !c.failed && c.pos > before && d.work.Hold(sizeOfMark) == nil; n-- {
			name, dir := "", uint64(0)
			before = c.pos
			for _, f := range forms {
				switch v := d.value(u, c, f); f.attr {
				case 1:
					name = d.string(v)
				case 2:
					dir = v.n
				}
			}
			if name == "" && version < 5 {
				return
			}
			yield(name, dir)
		}
	}
	under := func(dir, file string) string {
		if path.IsAbs(file) || dir == "" || dir == "." || dir == "/" && strings.HasPrefix(file, ".") { // the host builds tools in the root folder
			return file
		}
		return dir + "/" + file
	}
	var dirs []string
	addDir := func(name string, _ uint64) {
		if len(dirs) > 0 {
			name = under(dirs[0], name)
		}
		if d.work.Hold(len(name)) == nil {
			dirs = append(dirs, name)
		}
	}
	addFile := func(name string, in uint64) {
		if in < uint64(len(dirs)) {
			name = under(dirs[in], name)
		}
		files = append(files, t.file(cut([]byte(path.Clean(name)))))
	}
	if version < 5 {
		addDir(dir, 0)
	}
	table([]field{{attr: 1, form: formString}}, addDir)
	if version < 5 {
		addFile(name, 0)
	}
	table([]field{{attr: 1, form: formString}, {attr: 2, form: formUdata}, {form: formUdata}, {form: formUdata}}, addFile)

	if c = d.at(secLine, start); c.failed || start > uint64(len(program)) {
		return files
	}
	c.b = program
	begin := row{file: 1, line: 1, breakable: true}
	r, address, first := begin, uint64(0), len(t.rows)
	emit := func(end bool) {
		row := r
		row.at, row.file = d.base+uint32(address), -1
		if !end && uint32(r.file) < uint32(len(files)) {
			row.file = files[r.file]
		}
		if address < d.limit && d.work.Hold(sizeOfRow) == nil {
			t.rows = append(t.rows, row)
		}
	}
	for !c.failed && c.pos < len(c.b) && d.work.Spend(1) == nil {
		op := int(c.byte())
		switch {
		case op >= opcodes:
			op -= opcodes
			address += step * uint64(op/lineRange)
			r.line += lineBase + int32(op%lineRange)
			emit(false)
		case op == 0:
			x := &cursor{b: c.take(c.uleb())}
			switch x.byte() {
			case 1: // end_sequence
				if emit(true); first < len(t.rows) && t.rows[first].at <= d.base {
					t.rows = t.rows[:first] // of a function that the linker dropped
				}
				r, address, first = begin, 0, len(t.rows)
			case 2: // set_address
				address = x.uint(min(len(x.b)-1, 8))
			}
		case op == 1: // copy
			emit(false)
		case op == 2: // advance_pc
			address += step * c.uleb()
		case op == 3: // advance_line
			r.line += int32(c.sleb())
		case op == 4:
			r.file = int32(c.uleb())
		case op == 5:
			r.column = int32(c.uleb())
		case op == 6: // negate_stmt
			r.breakable = !r.breakable
		case op == 8: // const_add_pc
			address += step * uint64((255-opcodes)/lineRange)
		case op == 9: // fixed_advance_pc
			address += c.uint(2)
		default: // basic_block, prologue_end and others, with arguments nobody needs
			for range lengths[op-1] {
				c.uleb()
			}
			c.failed = c.failed || d.work.Spend(int(lengths[op-1])) != nil
		}
	}
	return files
}

// rangesOf yields where the code of an entry begins and ends, as offsets of the module.
func (d *debugInfo) rangesOf(e *entry) iter.Seq2[uint32, uint32] {
	return func(yield func(low, high uint32) bool) {
		add := func(low, high uint64) bool {
			return low == 0 || low >= high || high > d.limit || yield(d.base+uint32(low), d.base+uint32(high))
		}
		if low, ok := e.attr(dwarf.AttrLowpc); ok {
			high, _ := e.attr(dwarf.AttrHighpc)
			if high.form != formAddr {
				high.n += low.n
			}
			if !add(low.n, high.n) {
				return
			}
		}
		if a, ok := e.attr(dwarf.AttrRanges); ok {
			for r := range d.list(e.u, a.n, secRanges) {
				if !add(r[0], r[1]) {
					return
				}
			}
		}
	}
}

// listForms are the operands of the entries of a list of DWARF 5, by their kind: addresses (a), their
// indexes (x), offsets from a base (o), lengths (l). A single one is a new base.
var listForms = [...]string{0: "", 1: "x", 2: "xx", 3: "xl", 4: "oo", 5: "", 6: "a", 7: "aa", 8: "al"}

// list yields the ranges of a list, and of a list of locations the expression that holds there. The
// section is that of such lists before DWARF 5.
func (d *debugInfo) list(u *unit, offset uint64, section int) iter.Seq2[[2]uint64, []byte] {
	return func(yield func([2]uint64, []byte) bool) {
		locations, old := section == secLoc, u.version < 5
		if !old {
			section++
		}
		c, base := d.at(section, offset), u.low
		operand := func(form byte, low uint64) uint64 {
			switch form {
			case 'x':
				return d.element(secAddr, u.addrBase, c.uleb())
			case 'o':
				return base + c.uleb()
			case 'l':
				return low + c.uleb()
			}
			return c.uint(4)
		}
		for before := c.pos; !c.failed && d.work.Spend(1+(c.pos-before)/16) == nil; {
			before = c.pos
			var r [2]uint64
			var expression []byte
			if old {
				r = [2]uint64{c.uint(4), c.uint(4)}
				if r[0]|r[1] == 0 {
					return
				} else if r[0] == 0xffffffff {
					base = r[1]
					continue
				}
				r[0], r[1] = base+r[0], base+r[1]
			} else {
				kind := c.byte()
				if !locations && kind >= 5 {
					kind++ // lists of locations have a default there
				}
				if kind == 0 || int(kind) >= len(listForms) {
					return
				}
				switch forms := listForms[kind]; len(forms) {
				case 0:
					r[1] = d.limit
				case 1:
					base = operand(forms[0], 0)
					continue
				case 2:
					r[0] = operand(forms[0], 0)
					r[1] = operand(forms[1], r[0])
				}
			}
			if locations && old {
				expression = c.take(c.uint(2))
			} else if locations {
				expression = c.take(c.uleb())
			}
			if !yield(r, expression) {
				return
			}
		}
	}
}

// readScopes reads the functions and the copies of functions within them. The marks tell where the
// innermost of them changes.
func (t *Table) readScopes() {
	d := t.dwarf
	names := map[uint64]string{}
	type level struct {
		prefix string
		scope  int32
	}
	var levels []level
	var top entry
	for i := range d.units {
		u := &d.units[i]
		d.entry(u, u.body, &top)
		levels = append(levels[:0], level{"", -1})
		for depth, e := range d.below(&top) {
			in := levels[depth-1]
			switch e.tag {
			case dwarf.TagSubprogram, dwarf.TagInlinedSubroutine, dwarf.TagLexDwarfBlock:
				s := scope{parent: in.scope, function: t.function(in.scope), file: -1, die: e.offset}
				if e.tag == dwarf.TagSubprogram {
					s.parent = -1
				}
				if name := d.text(e, dwarf.AttrName); name != "" && d.work.Hold(sizeOfName+len(in.prefix)+len(name)) == nil {
					names[e.offset] = cut([]byte(in.prefix + name))
				}
				if n := e.number(dwarf.AttrCallFile); e.tag == dwarf.TagInlinedSubroutine && n < uint64(len(u.files)) {
					s.file = u.files[n]
				}
				s.line, s.column = int32(e.number(dwarf.AttrCallLine)), int32(e.number(dwarf.AttrCallColumn))
				next := int32(len(t.scopes))
				for low, high := range d.rangesOf(e) {
					if d.work.Hold(2*sizeOfMark) != nil {
						break
					}
					in.scope = next
					t.marks = append(t.marks, mark{low, next + 1}, mark{high, -s.parent - 1})
				}
				if in.scope == next && d.work.Hold(sizeOfScope) == nil {
					if e.tag != dwarf.TagLexDwarfBlock || s.function < 0 {
						s.function = next
					}
					t.scopes = append(t.scopes, s)
				}
			case dwarf.TagNamespace, dwarf.TagStructType, dwarf.TagClassType, dwarf.TagUnionType, dwarf.TagEnumerationType:
				if name := d.text(e, dwarf.AttrName); name != "" && len(in.prefix) < maxName {
					in.prefix += name + "::"
				}
			}
			if depth == len(levels) && d.work.Hold(sizeOfMark+maxName) != nil {
				break
			}
			levels = append(levels[:depth], in)
		}
	}
	for i := range t.scopes {
		t.scopes[i].name = d.named(t.scopes[i].die, names)
	}
	// The last mark at an offset counts. So ends are before beginnings, and what is within another scope,
	// and has a higher number, ends before it and begins behind it.
	slices.SortFunc(t.marks, func(a, b mark) int { return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.scope, b.scope)) })
	for i, m := range t.marks {
		t.marks[i].scope = max(m.scope, -m.scope) - 1
	}
}

// named returns the name of an entry, or of the entry that it copies.
func (d *debugInfo) named(offset uint64, names map[uint64]string) string {
	var e entry
	for range 4 {
		if name := names[offset]; name != "" || !d.find(offset, &e) {
			return name
		}
		offset = cmp.Or(e.number(dwarf.AttrAbstractOrigin), e.number(dwarf.AttrSpecification))
	}
	return ""
}
