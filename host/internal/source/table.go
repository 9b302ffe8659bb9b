package source

import (
	"cmp"
	"debug/dwarf"
	"encoding/binary"
	"errors"
	"fmt"
	"path"
	"slices"
	"sort"
	"strings"
	"sync/atomic"

	"github.com/starling-host/starling/host/internal/interp"
	"github.com/starling-host/starling/internal/lists"
	"github.com/starling-host/starling/internal/wasm"
	"github.com/starling-host/starling/internal/work"
	"github.com/starling-host/starling/internal/zstd"
)

// maxInlined is how many functions are looked at that were inlined into each other at one place.
const maxInlined = 64

// What a table holds of each of these, in bytes.
const (
	sizeOfName  = 64 // and those of the text
	sizeOfFile  = 96 // likewise
	sizeOfRow   = 40
	sizeOfScope = 128
	sizeOfMark  = 16
)

// Place is a line of source code. File and Line may be missing, Column often is.
type Place struct {
	File     string // as the compiler wrote it
	Line     int
	Column   int
	Function string
}

// Table knows the source lines of one module. It is safe for concurrent use.
type Table struct {
	work   *work.Budget // until the table is read
	module *wasm.Module
	names  map[uint32]string // of functions, by index
	format string
	files  []string
	byName map[string]int32 // the index in files
	rows   []row            // in ascending order
	scopes []scope
	marks  []mark // in ascending order
	dwarf  *debugInfo
	own    map[uint64]bool // the units of DWARF to read, nil for all
	script script
	python atomic.Uint32 // where the memory of Python describes itself, or 0
}

// row is where the code of a line begins. A row without a file ends the code before it.
type row struct {
	at           uint32
	file         int32
	line, column int32
	breakable    bool // a good place for a breakpoint
}

// scope is a function, or the copy of one within the function that calls it.
type scope struct {
	name               string
	parent             int32  // the scope of the caller, -1 for a function of its own
	function           int32  // the scope itself, or that of the function that it is a block of
	file, line, column int32  // of the call in the parent
	die                uint64 // in DWARF
}

// mark is where the code of a scope begins or goes on.
type mark struct {
	at    uint32
	scope int32
}

// The formats of a [Table].
const (
	DWARF      = "DWARF"
	Go         = "Go"
	Python     = "Python"
	JavaScript = "JavaScript"
	Names      = "names" // of functions only
)

// Open reads what a module says of its source. The error says that the bytes are no module, or that b is
// used up; a module without such information has an empty table. The table keeps the bytes.
func Open(b *work.Budget, module []byte) (*Table, error) {
	m, err := wasm.Decode(b, module)
	if err != nil {
		return nil, err
	}
	if m.Section(wasm.SectionCode) == nil {
		return nil, errors.New("source: the module has no code")
	}
	return open(b, m, module, nil)
}

// open reads the information of a module. Unless own is nil, only the units of DWARF at these offsets
// are read, and what is read is kept.
func open(b *work.Budget, m *wasm.Module, module []byte, own map[uint64]bool) (*Table, error) {
	t := &Table{work: b, module: m, names: map[uint32]string{}, byName: map[string]int32{}, own: own}
	for index, name := range m.FuncNames {
		if b.Spend(1+len(name)/16) != nil || int64(index) < int64(m.NumFuncs()) && b.Hold(sizeOfName+len(name)) != nil {
			break
		}
		if int64(index) < int64(m.NumFuncs()) { // others name nothing
			t.names[index], t.format = Readable(name), Names
		}
	}
	about := interp.Of(module)
	switch {
	case about != nil && (about.Language == Python || about.Language == JavaScript):
		if t.format = about.Language; t.format == JavaScript {
			t.readScript(about)
		}
	case t.readDWARF():
		t.format = DWARF
	case t.readGo():
		t.format = Go
	}
	slices.SortStableFunc(t.rows, func(a, b row) int {
		return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(min(a.file, 0), min(b.file, 0)))
	})
	if err := errors.Join(b.Spend(len(t.rows)), b.Hold(0)); err != nil {
		return nil, fmt.Errorf("source: the names and lines of the module: %w", err)
	}
	return t, nil
}

// Format returns where the lines come from: DWARF, Go, Python, JavaScript, names of functions only,
// or "" for nothing.
func (t *Table) Format() string { return t.format }

// HasLines reports whether there is any line of the code itself.
func (t *Table) HasLines() bool { return len(t.rows) > 0 }

// Function returns the name of a function by its index, or "".
func (t *Table) Function(index uint32) string { return t.names[index] }

// Lines returns the source line of the instruction at an offset of the module's bytes, and behind it
// the lines of the functions that it was inlined into. The result is empty for an offset that is not
// in the code of a function. A loop of Go begins where the function does: the locals tell the line.
func (t *Table) Lines(offset uint32, locals ...uint64) []Place {
	body := t.Body(offset)
	if body < 0 {
		return nil
	}
	begin := uint32(t.module.Code[body].Pos)
	if t.rowAt(begin, offset, false).file < 0 {
		offset = t.resumed(body, offset, locals)
	}
	name, r := t.names[uint32(t.module.NumImportedFuncs()+body)], t.rowAt(begin, offset, false)
	p := t.place(name, r.file, r.line, r.column)
	var all []Place
	for i := t.function(t.scopeAt(begin, offset)); i >= 0 && len(all) < maxInlined; i = t.function(t.scopes[i].parent) {
		s := t.scopes[i]
		if s.name != "" || s.parent >= 0 {
			p.Function = s.name
		}
		if all = append(all, p); s.parent < 0 {
			return all
		}
		p = t.place(name, s.file, s.line, s.column)
	}
	return append(all, p)
}

func (t *Table) place(function string, file, line, column int32) Place {
	p := Place{Line: int(line), Column: int(column), Function: function}
	if file >= 0 {
		p.File = t.files[file]
	}
	return p
}

// Statement reports whether the line at an offset is one to stop at. The compiler moves instructions
// of a line, and says of most that the line does not begin there.
func (t *Table) Statement(offset uint32) bool {
	i := sort.Search(len(t.rows), func(i int) bool { return t.rows[i].at > offset }) - 1
	return i >= 0 && t.rows[i].breakable
}

// StatementBefore returns the line of the last statement before an offset in the same function of the
// source, or 0.
func (t *Table) StatementBefore(offset uint32) int {
	body := t.Body(offset)
	if body < 0 {
		return 0
	}
	return int(t.rowAt(uint32(t.module.Code[body].Pos), offset, true).line)
}

// Body returns the index of the function body at an offset, or -1.
func (t *Table) Body(offset uint32) int {
	i := sort.Search(len(t.module.Code), func(i int) bool { return t.module.Code[i].End > int(offset) })
	if i == len(t.module.Code) || int(offset) < t.module.Code[i].Pos {
		return -1
	}
	return i
}

// rowAt returns the row of an offset in the body that begins at begin, or one without a file; if
// statement, that of the last statement before it. Code that a compiler adds has line 0, and gets the
// line before it in the same function of the source.
func (t *Table) rowAt(begin, offset uint32, statement bool) row {
	i := sort.Search(len(t.rows), func(i int) bool { return t.rows[i].at > offset }) - 1
	for back := range maxInlined {
		if i-back < 0 || t.rows[i-back].at < begin || t.rows[i-back].file < 0 {
			break
		}
		if r := t.rows[i-back]; r.line > 0 && (r.breakable || !statement) && t.function(t.scopeAt(begin, r.at)) == t.function(t.scopeAt(begin, offset)) {
			return r
		}
	}
	return row{file: -1}
}

// scopeAt returns the innermost scope at an offset of the body that begins at begin, or -1.
func (t *Table) scopeAt(begin, offset uint32) int32 {
	i := sort.Search(len(t.marks), func(i int) bool { return t.marks[i].at > offset }) - 1
	if i < 0 || t.marks[i].at < begin {
		return -1
	}
	return t.marks[i].scope
}

// function returns the scope of the function that a scope is or is a block of, or -1.
func (t *Table) function(scope int32) int32 {
	if scope < 0 {
		return -1
	}
	return t.scopes[scope].function
}

// Addresses returns the offsets at which the code of a line begins, one or more for each function
// that has code of it. A line without code is that of the next one with code, which is returned as
// well. The file may be the end of a path.
func (t *Table) Addresses(file string, line int) (all []uint32, found int) {
	wanted := lists.Map(t.files, func(f string) bool {
		return f == file || strings.HasSuffix(f, "/"+strings.TrimPrefix(path.Clean(file), "/"))
	})
	for _, r := range t.rows {
		if r.file >= 0 && wanted[r.file] && r.breakable && int(r.line) >= line && (found == 0 || int(r.line) < found) {
			found = int(r.line)
		}
	}
	for i, r := range t.rows {
		if r.file < 0 || !wanted[r.file] || int(r.line) != found || !r.breakable {
			continue
		}
		if i > 0 && t.rows[i-1].file == r.file && t.rows[i-1].line == r.line && t.Body(t.rows[i-1].at) == t.Body(r.at) {
			continue // the code before it is of the line as well
		}
		all = append(all, r.at)
	}
	return slices.Compact(all), found
}

// Entries returns the offsets at which functions of a name begin, behind what sets up their frames,
// and copies of them within other functions. The name may lack what is before its last "." or "::".
func (t *Table) Entries(function string) (all []uint32) {
	named := func(name string) bool {
		return name == function || strings.HasSuffix(name, "."+function) || strings.HasSuffix(name, "::"+function)
	}
	seen := map[int32]bool{}
	for _, m := range t.marks {
		if m.scope < 0 || seen[m.scope] || !named(t.scopes[m.scope].name) {
			continue
		}
		seen[m.scope] = true
		i := sort.Search(len(t.rows), func(i int) bool { return t.rows[i].at > m.at })
		if t.format == DWARF && t.scopes[m.scope].parent < 0 && i < len(t.rows) && t.Body(t.rows[i].at) == t.Body(m.at) {
			m.at = t.rows[i].at
		}
		all = append(all, m.at)
	}
	for index, name := range t.names {
		if body := int(index) - t.module.NumImportedFuncs(); len(t.marks) == 0 && named(name) && body >= 0 && body < len(t.module.Code) {
			if _, it, err := t.module.Body(body, nil); err == nil {
				all = append(all, uint32(it.Pos()))
			}
		}
	}
	slices.Sort(all)
	return all
}

// Functions returns the names of functions that [Table.Entries] finds, without what is before the
// last "." or "::".
func (t *Table) Functions() (all []string) {
	add := func(name string) {
		if i := strings.LastIndexAny(name, ".:"); name != "" {
			all = append(all, name[i+1:])
		}
	}
	for _, s := range t.scopes {
		add(s.name)
	}
	for _, name := range t.names {
		add(name)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// Begins returns the offsets at which code of some files begins, also where other code was inlined into
// it: where a function does, and behind the code of other files in the same function.
func (t *Table) Begins(wanted func(file string) bool) (all []uint32) {
	own := map[string]bool{}
	for _, f := range t.files {
		own[f] = wanted(f)
	}
	within, body := false, -1
	for _, r := range t.rows {
		if b := t.Body(r.at); b != body {
			within, body = false, b
		}
		here := slices.ContainsFunc(t.Lines(r.at), func(p Place) bool { return own[p.File] && p.Line > 0 })
		if here && !within {
			all = append(all, r.at)
		}
		within = here
	}
	return all
}

// Files returns the source files of the module.
func (t *Table) Files() []string { return slices.Clone(t.files) }

// file returns the index of a file, or -1.
func (t *Table) file(name string) int32 {
	if name == "" {
		return -1
	}
	i, ok := t.byName[name]
	if !ok && t.work.Hold(sizeOfFile+len(name)) != nil {
		return -1
	}
	if !ok {
		i = int32(len(t.files))
		t.files, t.byName[name] = append(t.files, name), i
	}
	return i
}

// keptSection is the custom section that [Trim] adds: a frame of zstd with the sections of DWARF, in
// the order of sectionNames, each behind its length in four bytes. Bytes that nobody reads are zero.
const keptSection = "starling.source"

// keptSections returns the sections that Trim has kept, or nothing.
func (t *Table) keptSections() (kept [len(sectionNames)][]byte) {
	frame := t.module.Custom(keptSection).Content()
	if len(frame) == 0 {
		return kept
	}
	b, err := zstd.Decompress(frame, t.work.Room())
	if err != nil || t.work.Hold(len(b)) != nil {
		return kept
	}
	c := &cursor{b: b}
	for i := range kept {
		kept[i] = c.take(c.uint(4))
	}
	return kept
}

// Trim returns a module that keeps of its DWARF what describes the author's own files, compressed: a
// linker adds that of the whole standard library, which is larger than most tools. The code stays.
func Trim(b *work.Budget, module []byte, own func(file string) bool) ([]byte, error) {
	m, err := wasm.Decode(b, module)
	if err != nil || m.Section(wasm.SectionCode) == nil || m.Custom(".debug_info") == nil {
		return module, err
	}
	units := map[uint64]bool{}
	var e entry
	read, err := open(b, m, module, nil)
	if err != nil {
		return nil, err
	}
	all := read.dwarf
	for i := range all.units {
		if u := &all.units[i]; all.entry(u, u.body, &e) && own(all.text(&e, dwarf.AttrName)) {
			units[u.start] = true
		}
	}
	if read, err = open(b, m, module, units); err != nil {
		return nil, err
	}
	d := read.dwarf
	v := &viewer{debugInfo: d, at: d.base, left: maxParts}
	for i := range d.units {
		u := &d.units[i]
		d.entry(u, u.body, &e)
		for _, e := range d.below(&e) {
			d.text(e, dwarf.AttrName)
			d.rangesOf(e)(func(uint32, uint32) bool { return true })
			v.evaluate(u, v.expression(e)) // which may have the index of an address
		}
	}
	var kept []byte
	for _, s := range d.kept {
		kept = append(binary.LittleEndian.AppendUint32(kept, uint32(len(s))), s...)
	}
	m.Sections = slices.DeleteFunc(m.Sections, func(s wasm.Section) bool { return strings.HasPrefix(s.Name, ".debug_") })
	body := append(wasm.AppendName(nil, keptSection), zstd.Compress(kept)...)
	return append(wasm.AppendU32(append(m.Encode(), byte(wasm.SectionCustom)), uint32(len(body))), body...), nil
}
