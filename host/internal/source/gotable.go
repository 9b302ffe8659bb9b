package source

import (
	"bytes"
	"encoding/binary"
	"sort"

	"github.com/starling-host/starling/internal/wasm"
	"github.com/starling-host/starling/internal/work"
)

// goMagic is what a table begins with, since Go 1.20, for addresses of 8 bytes.
var goMagic = []byte{0xf1, 0xff, 0xff, 0xff, 0, 0, 1, 8}

// goTable is the table of functions of Go since 1.20, see pcHeader and _func in package runtime. A
// position in a function is a point, a number that grows with calls and inlined functions. Only some
// points have a place in the code: where execution can resume after a call. So all instructions up to
// the next one get the line of the last point among them, which is that of the call.
type goTable struct {
	memory, table                      []byte // the table is in the memory
	names, units, files, values, funcs uint64 // offsets in the table
	functionData                       uint64 // the address that function data count from
	work                               *work.Budget
	held                               int // bytes of the values of a function
}

// readGo reads the table of a module that the Go compiler made, and reports whether there is one.
func (t *Table) readGo() bool {
	memory := t.image()
	for from := 0; ; from++ {
		i := bytes.Index(memory[from:], goMagic)
		if i < 0 || t.work.Spend(1+(2*len(memory)+len(t.module.Code))/64) != nil { // for what follows
			return false
		}
		from += i
		c := at(memory, uint64(from)+8)
		count := c.uint(8)
		c.take(16) // the number of files, and an address
		g := goTable{memory: memory, table: memory[from:], names: c.uint(8), units: c.uint(8), files: c.uint(8), values: c.uint(8), funcs: c.uint(8), work: t.work}
		if c.failed || count > uint64(len(t.module.Code)) {
			continue
		}
		// The runtime's description of the module begins with the addresses of the table and of the names.
		begins := binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(nil, uint64(from)), uint64(from)+g.names)
		if i := bytes.Index(memory, begins); i >= 0 {
			g.functionData = at(memory, uint64(i)+40*8).uint(8)
		}
		// Bodies count from the first function, in steps of 1 since Go 1.26, before that of 1<<16.
		first := at(g.table, g.funcs).uint(4)
		step := max(at(g.table, g.funcs+8).uint(4)-first, 1)
		if t.work.Hold(len(t.module.Code)) != nil {
			return false
		}
		seen := make([]bool, len(t.module.Code))
		for i := range count {
			f := at(g.table, g.funcs+8*i)
			body, offset := (f.uint(4)-first)/step, f.uint(4)
			if body < uint64(len(seen)) && !seen[body] && t.work.Spend(1) == nil {
				seen[body] = true
				t.readGoFunction(&g, int(body), at(g.table, g.funcs+offset))
			}
		}
		return len(t.rows) > 0
	}
}

// image returns the memory that a module begins with which has the table of Go somewhere, or nil.
func (t *Table) image() []byte {
	size, found := uint64(0), false
	for _, d := range t.module.Data {
		size = max(size, uint64(uint32(d.Start.Value))+uint64(d.End-d.Pos))
		found = found || bytes.Contains(t.module.Bytes(d.Pos, d.End), goMagic)
	}
	if !found || t.work.Hold(int(size)) != nil {
		return nil
	}
	memory := make([]byte, size)
	for _, d := range t.module.Data {
		if start := uint64(uint32(d.Start.Value)); start < size {
			copy(memory[start:], t.module.Bytes(d.Pos, d.End))
		}
	}
	return memory
}

// goValue is the value of all points below end that no value before it is of.
type goValue struct {
	end   uint64
	value int64
}

type goValues []goValue

// read reads a table of values.
func (g *goTable) read(offset uint64) (all goValues) {
	c, last := at(g.table, g.values+offset), goValue{value: -1}
	for offset != 0 && g.work.Spend(1) == nil && g.work.Hold(sizeOfMark) == nil {
		g.held += sizeOfMark
		change := c.zigzag()
		if change == 0 && last.end > 0 {
			break
		}
		last.value += change
		last.end += c.uleb()
		if c.failed {
			break
		}
		all = append(all, last)
	}
	return all
}

// of returns the value of a point, or -1.
func (v goValues) of(point uint64) int64 {
	i := sort.Search(len(v), func(i int) bool { return v[i].end > point })
	if i == len(v) {
		return -1
	}
	return v[i].value
}

// readGoFunction adds the lines of a function body and of the functions inlined into it.
func (t *Table) readGoFunction(g *goTable, body int, f *cursor) {
	defer func() {
		g.work.Release(g.held)
		g.held = 0
	}()
	f.take(4)
	name := at(g.table, g.names+f.uint(4)).text(g.work)
	f.take(12)
	files, lines, inlined := g.read(f.uint(4)), g.read(f.uint(4)), goValues{}
	pcData, unit := f.uint(4), f.uint(4)
	f.take(7)
	funcData, tree := f.byte(), uint64(0)
	if pcData > 2 && funcData > 3 && g.functionData != 0 {
		inlined = g.read(at(f.b, uint64(f.pos)+4*2).uint(4))
		tree = g.functionData + at(f.b, uint64(f.pos)+4*(pcData+3)).uint(4)
	}
	place := func(point uint64) (file, line int32) {
		number := files.of(point)
		if number < 0 {
			return -1, 0
		}
		return t.file(at(g.table, g.files+at(g.table, g.units+4*(unit+uint64(number))).uint(4)).text(g.work)), int32(lines.of(point))
	}
	if g.work.Hold(sizeOfScope) != nil || g.work.Spend(t.module.Code[body].End-t.module.Code[body].Pos) != nil {
		return
	}
	copies := map[int64]int32{-1: int32(len(t.scopes))}
	t.scopes = append(t.scopes, scope{name: name, parent: -1, function: int32(len(t.scopes)), file: -1})
	// copyOf returns the scope of an entry of the tree of inlined functions.
	var copyOf func(index int64, depth int) int32
	copyOf = func(index int64, depth int) int32 {
		s, ok := copies[index]
		c := at(g.memory, tree+16*uint64(index)+4)
		if name, caller := at(g.table, g.names+c.uint(4)).text(g.work), c.uint(4); !ok && depth < maxInlined && g.work.Hold(sizeOfScope) == nil {
			file, line := place(caller)
			parent := copyOf(inlined.of(caller), depth+1)
			s = int32(len(t.scopes))
			t.scopes = append(t.scopes, scope{name: name, parent: parent, function: s, file: file, line: line})
		}
		copies[index] = s
		return s
	}
	last, in := row{file: -2}, copies[-1]
	t.marks = append(t.marks, mark{uint32(t.module.Code[body].Pos), in})
	t.points(body, func(offset uint32, point uint64) {
		r := row{at: offset, breakable: true}
		if r.file, r.line = place(point); (r.file != last.file || r.line != last.line) && g.work.Hold(sizeOfRow) == nil {
			t.rows, last = append(t.rows, r), r
		}
		if s := copyOf(inlined.of(point), 0); s != in && g.work.Hold(sizeOfMark) == nil {
			t.marks, in = append(t.marks, mark{offset, s}), s
		}
	})
}

// points yields where the code of resume points begins in a function body, and the last of those that
// begin there. The function begins with a loop around a br_table, whose index is the point and whose
// labels are the ends of as many blocks around it. That belongs to no point.
func (t *Table) points(body int, yield func(offset uint32, point uint64)) {
	_, it, err := t.module.Body(body, nil)
	var last []uint64 // the highest point of each label
	depth := 0
	for err == nil && last == nil && it.Next() {
		if it.Op == wasm.OpBrTable {
			last, depth = make([]uint64, it.Depth()), it.Depth()
			point := uint64(0)
			for label := range it.Labels {
				if int(label) < len(last) {
					last[label] = point
				}
				point++
			}
		}
	}
	if last == nil {
		yield(uint32(t.module.Code[body].Pos), 0)
		return
	}
	for label := 0; label < len(last) && it.Next(); {
		if it.Op == wasm.OpEnd && it.Depth() < depth {
			yield(uint32(it.Pos()), last[label])
			depth--
			label++
		}
	}
}

// resumed returns where execution goes on from an offset at which a function finds out where it is to
// resume, by its first parameter.
func (t *Table) resumed(body int, offset uint32, locals []uint64) uint32 {
	at := offset
	if t.format == Go && len(locals) > 0 {
		t.points(body, func(from uint32, last uint64) {
			if at == offset && last >= locals[0] && from > offset {
				at = from
			}
		})
	}
	return at
}
