package source

import (
	"cmp"
	"path"
	"slices"
	"sort"
	"strings"

	"github.com/starling-host/starling/host/internal/wasm"
)

// dwarf is the debug information of a module, of the versions 2 to 5 in the 32-bit format. Its
// addresses count from the body of the code section.
type dwarf struct {
	info, abbrev, line, lineStr, str, strOffsets, addr, ranges, rngLists, loc, locLists section

	units    []unit
	tables   map[uint64]map[uint64]abbrev
	left     int // bytes of abbreviations that may still be read
	steps    int // entries of lists that may still be read
	base     uint32
	limit    uint64             // the length of the code section's body
	programs map[uint64][]int32 // the files of each line program that was read
}

// section is a part of the debug information. What is read of it is copied to kept, unless that is nil.
type section struct{ b, kept []byte }

func (s *section) at(pos uint64) *cursor {
	c := at(s.b, pos)
	c.kept = s.kept
	return c
}

var sectionNames = [...]string{"info", "abbrev", "line", "line_str", "str", "str_offsets", "addr", "ranges", "rnglists", "loc", "loclists"}

func (d *dwarf) sections() [len(sectionNames)]*section {
	return [...]*section{&d.info, &d.abbrev, &d.line, &d.lineStr, &d.str, &d.strOffsets, &d.addr, &d.ranges, &d.rngLists, &d.loc, &d.locLists}
}

// unit is one unit of compilation.
type unit struct {
	start, body, end              int // offsets in info: of the header, of the first entry, behind the last
	version                       int
	abbrevs                       map[uint64]abbrev
	strBase, addrBase, rangesBase uint64
	locBase, low                  uint64
	files                         []int32
}

type abbrev struct {
	tag      uint64
	children bool
	fields   []field
}

type field struct {
	attr, form uint64
	constant   int64
}

// entry is a debugging information entry with the attributes that it has.
type entry struct {
	offset, next int
	tag          uint64
	children     bool
	attrs        []attr
	u            *unit
}

type attr struct {
	name, form uint64
	n          uint64 // a number, an address, an index, or an offset in a section
	block      []byte // of a block or an inline string
}

// Tags, attributes and forms, by the names of the standard without their prefix.
const (
	tagArray, tagEnum, tagParameter, tagLexical, tagMember, tagPointer, tagReference = 0x01, 0x04, 0x05, 0x0b, 0x0d, 0x0f, 0x10
	tagCompileUnit, tagStruct, tagTypedef, tagUnion, tagInlined, tagSubrange         = 0x11, 0x13, 0x16, 0x17, 0x1d, 0x21
	tagBase, tagConst, tagEnumerator, tagSubprogram, tagVariable, tagVolatile        = 0x24, 0x26, 0x28, 0x2e, 0x34, 0x35
	tagClass, tagNamespace, tagRestrict, tagVariantPart, tagRvalue                   = 0x02, 0x39, 0x37, 0x33, 0x42

	atLocation, atName, atByteSize, atStmtList, atLow, atHigh, atCompDir, atConst = 0x02, 0x03, 0x0b, 0x10, 0x11, 0x12, 0x1b, 0x1c
	atUpper, atOrigin, atCount, atMember, atEncoding, atFrameBase, atSpec, atType = 0x2f, 0x31, 0x37, 0x38, 0x3e, 0x40, 0x47, 0x49
	atRanges, atCallColumn, atCallFile, atCallLine, atDeclFile                    = 0x55, 0x57, 0x58, 0x59, 0x3a
	atStrBase, atAddrBase, atRngBase, atLocBase                                   = 0x72, 0x73, 0x74, 0x8c

	maxAttrs   = 64
	maxAbbrevs = 4 << 20 // bytes
	maxDepth   = 200     // of nested entries whose names count
	maxLevels  = 1 << 14 // of nested entries
	maxDirs    = 1 << 14 // and files, of one line program
)

// readDWARF reads the sections of the module, and reports whether there is any line or function.
func (t *Table) readDWARF() bool {
	code := t.module.Section(wasm.SectionCode)
	d := &dwarf{tables: map[uint64]map[uint64]abbrev{}, programs: map[uint64][]int32{}, base: uint32(code.Offset), limit: uint64(len(code.Body))}
	kept := t.keptSections()
	for i, s := range d.sections() {
		if s.b = kept[i]; kept[i] == nil {
			s.b = t.content(".debug_" + sectionNames[i])
		}
		if t.own != nil {
			s.kept = make([]byte, len(s.b))
		}
	}
	if len(d.abbrev.b) > maxAbbrevs {
		return false
	}
	d.left, d.steps = 2*len(d.abbrev.b), 8<<20
	t.dwarf = d
	lines := len(d.line.b)
	for start := 0; start < len(d.info.b); {
		c := d.info.at(uint64(start))
		size := c.uint(4)
		u := unit{start: start, end: start + 4 + int(size), version: int(c.uint(2))}
		if c.failed || size < 7 || size > uint64(len(d.info.b)) || u.end > len(d.info.b) {
			break
		}
		if start = u.end; u.version < 2 || u.version > 5 || t.own != nil && !t.own[u.start] {
			if c.kept != nil {
				clear(c.kept[u.start+4 : c.pos]) // so that the version is 0
			}
			continue
		}
		kind := byte(1)
		if u.version == 5 {
			kind = c.byte()
			c.byte()
		}
		table := c.uint(4)
		if u.version < 5 {
			c.byte()
		}
		u.body = c.pos
		if u.abbrevs = d.abbrevs(table); kind != 1 || u.abbrevs == nil {
			continue
		}
		d.units = append(d.units, u)
		t.readUnit(&d.units[len(d.units)-1], &lines)
	}
	t.readScopes()
	return len(t.rows) > 0 || len(t.scopes) > 0
}

// abbrevs reads a table of abbreviations.
func (d *dwarf) abbrevs(offset uint64) map[uint64]abbrev {
	if table, ok := d.tables[offset]; ok {
		return table
	}
	table := map[uint64]abbrev{}
	c := d.abbrev.at(offset)
	for !c.failed && d.left > 0 {
		before := c.pos
		code := c.uleb()
		if code == 0 {
			break
		}
		a := abbrev{tag: c.uleb(), children: c.byte() != 0}
		for !c.failed {
			f := field{attr: c.uleb(), form: c.uleb()}
			if f.form == 0x21 { // implicit_const
				f.constant = c.sleb()
			}
			if f.attr == 0 && f.form == 0 {
				break
			}
			a.fields = append(a.fields, f)
		}
		d.left -= c.pos - before
		if len(a.fields) > maxAttrs {
			return nil
		}
		table[code] = a
	}
	d.tables[offset] = table
	return table
}

// entry reads the entry at an offset of info into e, and reports whether it could. The null entry
// has the tag 0.
func (d *dwarf) entry(u *unit, offset int, e *entry) bool {
	*e = entry{offset: offset, attrs: e.attrs[:0], u: u}
	c := d.info.at(uint64(offset))
	c.b = c.b[:u.end]
	code := c.uleb()
	a, ok := u.abbrevs[code]
	if c.failed || code != 0 && !ok {
		return false
	}
	e.tag, e.children = a.tag, a.children
	for _, f := range a.fields {
		v := attr{name: f.attr, form: f.form}
		if v.form == 0x16 { // indirect
			v.form = c.uleb()
		}
		switch v.form {
		case 0x0b, 0x11, 0x0c, 0x25, 0x29: // data1, ref1, flag, strx1, addrx1
			v.n = c.uint(1)
		case 0x05, 0x12, 0x26, 0x2a:
			v.n = c.uint(2)
		case 0x27, 0x2b:
			v.n = c.uint(3)
		case 0x06, 0x13, 0x28, 0x2c, 0x01, 0x0e, 0x1f, 0x17, 0x10, 0x1c, 0x1d: // data4 to addrx4, addr, strp, line_strp, sec_offset, references
			v.n = c.uint(4)
		case 0x07, 0x14, 0x20, 0x24:
			v.n = c.uint(8)
		case 0x1e: // data16
			v.block = c.take(16)
		case 0x0d: // sdata
			v.n = uint64(c.sleb())
		case 0x0f, 0x15, 0x1a, 0x1b, 0x22, 0x23: // udata, ref_udata, strx, addrx, loclistx, rnglistx
			v.n = c.uleb()
		case 0x08:
			v.block = []byte(c.text())
		case 0x0a, 0x03, 0x04, 0x09, 0x18: // blocks
			n := uint64(0)
			if size := map[uint64]int{0x0a: 1, 0x03: 2, 0x04: 4}[v.form]; size > 0 {
				n = c.uint(size)
			} else {
				n = c.uleb()
			}
			v.block = c.take(n)
		case 0x19: // flag_present
			v.n = 1
		case 0x21:
			v.n = uint64(f.constant)
		default:
			return false
		}
		switch v.form {
		case 0x11, 0x12, 0x13, 0x14, 0x15: // references within the unit
			v.n += uint64(u.start)
		}
		e.attrs = append(e.attrs, v)
	}
	e.next = c.pos
	return !c.failed
}

func (e *entry) attr(name uint64) (attr, bool) {
	for _, a := range e.attrs {
		if a.name == name {
			return a, true
		}
	}
	return attr{}, false
}

// number returns an attribute that is a number, or 0.
func (e *entry) number(name uint64) uint64 {
	a, _ := e.attr(name)
	return a.n
}

// text returns an attribute that is a string, or "".
func (d *dwarf) text(e *entry, name uint64) string {
	a, ok := e.attr(name)
	switch {
	case !ok:
	case a.form == 0x0e:
		return d.str.at(a.n).text()
	case a.form == 0x1f:
		return d.lineStr.at(a.n).text()
	case a.form == 0x1a || a.form >= 0x25 && a.form <= 0x28:
		return d.str.at(d.strOffsets.at(e.u.strBase + 4*min(a.n, 1<<32)).uint(4)).text()
	default:
		return string(a.block)
	}
	return ""
}

// address returns an attribute that is an address.
func (d *dwarf) address(e *entry, name uint64) (uint64, bool) {
	a, ok := e.attr(name)
	if ok && a.form != 0x01 {
		return d.indexed(e.u, a.n), true
	}
	return a.n, ok
}

func (d *dwarf) indexed(u *unit, index uint64) uint64 {
	return d.addr.at(u.addrBase + 4*min(index, 1<<32)).uint(4)
}

// readUnit reads what the first entry of a unit says of all others, and its lines.
func (t *Table) readUnit(u *unit, lines *int) {
	d := t.dwarf
	var e entry
	if !d.entry(u, u.body, &e) {
		return
	}
	u.strBase, u.addrBase, u.rangesBase, u.locBase = e.number(atStrBase), e.number(atAddrBase), e.number(atRngBase), e.number(atLocBase)
	u.low, _ = d.address(&e, atLow)
	program, ok := e.attr(atStmtList)
	if !ok {
		return
	}
	if u.files, ok = d.programs[program.n]; !ok {
		u.files = t.readLines(program.n, d.text(&e, atCompDir), d.text(&e, atName), lines)
		d.programs[program.n] = u.files
	}
}

// readLines reads a line program, and returns its files by their numbers. Programs do not overlap, so
// left bounds them together.
func (t *Table) readLines(offset uint64, dir, name string, left *int) []int32 {
	d := t.dwarf
	c := d.line.at(offset)
	size := c.uint(4)
	if c.failed || size > uint64(len(d.line.b)-c.pos) || int(size) > *left {
		return nil
	}
	*left -= int(size)
	c.b = c.b[:c.pos+int(size)]
	program := c.b
	version := c.uint(2)
	if version == 5 {
		c.uint(2)
	}
	header := c.uint(4)
	start := uint64(c.pos) + header
	step := c.uint(1)
	if version >= 4 {
		c.byte() // operations of an instruction
	}
	c.byte()
	lineBase, lineRange, opcodes := int(int8(c.byte())), int(c.byte()), int(c.byte())
	lengths := c.take(uint64(max(opcodes-1, 0)))
	if c.failed || version < 2 || version > 5 || lineRange == 0 {
		return nil
	}
	under := func(dir, file string) string {
		if path.IsAbs(file) || dir == "" || dir == "." || dir == "/" && strings.HasPrefix(file, ".") { // the host builds tools in the root folder
			return file
		}
		return dir + "/" + file
	}
	join := func(dir, file string) int32 { return t.file(cut([]byte(path.Clean(under(dir, file))))) }
	var files []int32
	if version == 5 {
		var dirs []string
		d.fileTable(c, func(name string, _ uint64) { dirs = append(dirs, name) })
		d.fileTable(c, func(name string, in uint64) {
			of := dir
			if in < uint64(len(dirs)) {
				if of = dirs[in]; in > 0 {
					of = under(dirs[0], of)
				}
			}
			files = append(files, join(of, name))
		})
	} else {
		dirs := []string{dir}
		for s := c.text(); s != "" && len(dirs) < maxDirs; s = c.text() {
			dirs = append(dirs, under(dir, s))
		}
		files = []int32{join(dir, name)}
		for s := c.text(); s != "" && len(files) < maxDirs; s = c.text() {
			in := c.uleb()
			c.uleb()
			c.uleb()
			files = append(files, join(dirs[min(in, uint64(len(dirs)-1))], s))
		}
	}
	if c = d.line.at(start); c.failed || start > uint64(len(program)) {
		return nil
	}
	c.b = program
	address, file, line, column, stmt, first := uint64(0), uint64(1), 1, uint64(0), true, len(t.rows)
	emit := func(end bool) {
		r := row{at: d.base + uint32(address), file: -1, line: int32(line), column: int32(column), breakable: stmt}
		if !end && file < uint64(len(files)) {
			r.file = files[file]
		}
		if address < d.limit && len(t.rows) < maxRows {
			t.rows = append(t.rows, r)
		}
	}
	for !c.failed && c.pos < len(c.b) {
		op := int(c.byte())
		switch {
		case op >= opcodes:
			op -= opcodes
			address += step * uint64(op/lineRange)
			line += lineBase + op%lineRange
			emit(false)
		case op == 0:
			n := c.uleb()
			x := &cursor{b: c.take(n)}
			switch x.byte() {
			case 1: // end_sequence
				if emit(true); first < len(t.rows) && t.rows[first].at <= d.base {
					t.rows = t.rows[:first] // of a function that the linker dropped
				}
				address, file, line, column, stmt, first = 0, 1, 1, 0, true, len(t.rows)
			case 2: // set_address
				address = x.uint(min(len(x.b)-1, 8))
			}
		case op == 1: // copy
			emit(false)
		case op == 2: // advance_pc
			address += step * c.uleb()
		case op == 3: // advance_line
			line += int(c.sleb())
		case op == 4:
			file = c.uleb()
		case op == 5:
			column = c.uleb()
		case op == 6: // negate_stmt
			stmt = !stmt
		case op == 8: // const_add_pc
			address += step * uint64((255-opcodes)/lineRange)
		case op == 9: // fixed_advance_pc
			address += c.uint(2)
		default: // basic_block, prologue_end and others, with arguments nobody needs
			for range lengths[op-1] {
				c.uleb()
			}
		}
	}
	return files
}

// fileTable reads a table of folders or files of DWARF 5.
func (d *dwarf) fileTable(c *cursor, yield func(name string, dir uint64)) {
	var formats [][2]uint64
	for range c.byte() {
		formats = append(formats, [2]uint64{c.uleb(), c.uleb()})
	}
	for n := min(c.uleb(), maxDirs); n > 0 && !c.failed && len(formats) > 0; n-- {
		name, dir, before := "", uint64(0), c.pos
		for _, f := range formats {
			text, number := "", uint64(0)
			switch f[1] {
			case 0x08:
				text = c.text()
			case 0x0e:
				text = d.str.at(c.uint(4)).text()
			case 0x1f:
				text = d.lineStr.at(c.uint(4)).text()
			case 0x0b:
				number = c.uint(1)
			case 0x05:
				number = c.uint(2)
			case 0x06:
				number = c.uint(4)
			case 0x0f:
				number = c.uleb()
			case 0x1e:
				c.take(16)
			default:
				c.failed = true
			}
			switch f[0] {
			case 1:
				name = text
			case 2:
				dir = number
			}
		}
		if c.pos == before {
			return
		}
		yield(name, dir)
	}
}

// rangesOf returns the code of an entry, as offsets of the module.
func (d *dwarf) rangesOf(e *entry) (all [][2]uint32) {
	add := func(low, high uint64) {
		if low > 0 && low < high && high <= d.limit {
			all = append(all, [2]uint32{d.base + uint32(low), d.base + uint32(high)})
		}
	}
	if low, ok := d.address(e, atLow); ok {
		high, _ := e.attr(atHigh)
		if high.form != 0x01 && high.form != 0x1b && (high.form < 0x29 || high.form > 0x2c) {
			high.n += low
		} else if high.form != 0x01 {
			high.n = d.indexed(e.u, high.n)
		}
		add(low, high.n)
	}
	a, ok := e.attr(atRanges)
	if !ok {
		return all
	}
	base, u := e.u.low, e.u
	if u.version < 5 {
		for c := d.ranges.at(a.n); !c.failed && d.steps > 0; d.steps-- {
			low, high := c.uint(4), c.uint(4)
			switch {
			case low == 0 && high == 0:
				return all
			case low == 0xffffffff:
				base = high
			default:
				add(base+low, base+high)
			}
		}
		return all
	}
	if a.form == 0x23 { // rnglistx
		a.n = u.rangesBase + d.rngLists.at(u.rangesBase+4*min(a.n, 1<<32)).uint(4)
	}
	d.list(u, d.rngLists.at(a.n), nil, add)
	return all
}

// list reads a list of ranges of DWARF 5, or of locations: then body reads what follows a range.
func (d *dwarf) list(u *unit, c *cursor, body func(), add func(low, high uint64)) {
	base := u.low
	for ; !c.failed && d.steps > 0; d.steps-- {
		kind := c.byte()
		if body == nil && kind >= 5 {
			kind++ // location lists have a default range there
		}
		low, high := uint64(0), uint64(0)
		switch kind {
		case 0:
			return
		case 1:
			base = d.indexed(u, c.uleb())
			continue
		case 2:
			low, high = d.indexed(u, c.uleb()), d.indexed(u, c.uleb())
		case 3:
			low = d.indexed(u, c.uleb())
			high = low + c.uleb()
		case 4:
			low, high = base+c.uleb(), base+c.uleb()
		case 5:
			high = d.limit
		case 6:
			base = c.uint(4)
			continue
		case 7:
			low, high = c.uint(4), c.uint(4)
		case 8:
			low = c.uint(4)
			high = low + c.uleb()
		default:
			return
		}
		if body != nil {
			body()
		}
		add(low, high)
	}
}

// interval is a piece of the code of a scope.
type interval struct {
	low, high uint32
	scope     int32
}

// readScopes reads the functions and the copies of functions within them.
func (t *Table) readScopes() {
	d := t.dwarf
	var code []interval
	names := map[int]string{}
	var e entry
	for i := range d.units {
		u := &d.units[i]
		type level struct {
			prefix string
			scope  int32
		}
		levels := []level{{"", -1}}
		for pos := u.body; pos < u.end && d.entry(u, pos, &e); pos = e.next {
			if e.tag == 0 {
				if levels = levels[:len(levels)-1]; len(levels) == 0 {
					break
				}
				continue
			}
			in := levels[len(levels)-1]
			switch e.tag {
			case tagSubprogram, tagInlined:
				if name := d.text(&e, atName); name != "" && len(names) < maxNames {
					names[e.offset] = cut([]byte(in.prefix + name))
				}
				s := scope{parent: -1, file: -1, die: e.offset}
				if e.tag == tagInlined {
					s.parent, s.line, s.column = in.scope, int32(e.number(atCallLine)), int32(e.number(atCallColumn))
					if n := e.number(atCallFile); n < uint64(len(u.files)) {
						s.file = u.files[n]
					}
				}
				if ranges := d.rangesOf(&e); len(ranges) > 0 && len(t.scopes) < maxScopes && len(code) < maxRows {
					in.scope = int32(len(t.scopes))
					t.scopes = append(t.scopes, s)
					for _, r := range ranges {
						code = append(code, interval{r[0], r[1], in.scope})
					}
				}
			case tagNamespace, tagStruct, tagClass, tagUnion, tagEnum:
				if name := d.text(&e, atName); name != "" && len(levels) < maxDepth && len(in.prefix) < maxName {
					in.prefix += name + "::"
				}
			}
			if e.children {
				if levels = append(levels, in); len(levels) > maxLevels {
					break
				}
			}
		}
	}
	for i := range t.scopes {
		t.scopes[i].name = d.named(t.scopes[i].die, names)
	}
	t.flatten(code)
}

// named returns the name of an entry, or of what it is a copy of.
func (d *dwarf) named(offset int, names map[int]string) string {
	var e entry
	for range 4 {
		if name := names[offset]; name != "" {
			return name
		}
		if !d.find(offset, &e) {
			break
		}
		origin, ok := e.attr(atOrigin)
		if !ok {
			if origin, ok = e.attr(atSpec); !ok {
				break
			}
		}
		offset = int(origin.n)
	}
	return ""
}

// find reads the entry at an offset of any unit.
func (d *dwarf) find(offset int, e *entry) bool {
	i := sort.Search(len(d.units), func(i int) bool { return d.units[i].end > offset })
	return i < len(d.units) && offset >= d.units[i].body && d.entry(&d.units[i], offset, e)
}

// flatten turns nested intervals into the marks where the innermost of them changes.
func (t *Table) flatten(code []interval) {
	slices.SortStableFunc(code, func(a, b interval) int {
		return cmp.Or(cmp.Compare(a.low, b.low), cmp.Compare(b.high, a.high), cmp.Compare(a.scope, b.scope))
	})
	var open []interval
	closeUpTo := func(at uint32) {
		for len(open) > 0 && open[len(open)-1].high <= at {
			end := open[len(open)-1].high
			open = open[:len(open)-1]
			m := mark{end, -1}
			if len(open) > 0 {
				m.scope = open[len(open)-1].scope
			}
			t.marks = append(t.marks, m)
		}
	}
	for _, c := range code {
		closeUpTo(c.low)
		if len(open) > 0 {
			c.high = min(c.high, open[len(open)-1].high)
		}
		open = append(open, c)
		t.marks = append(t.marks, mark{c.low, c.scope})
	}
	closeUpTo(1<<32 - 1)
}
