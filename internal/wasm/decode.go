package wasm

import (
	"bytes"
	"cmp"
	"fmt"
	"reflect"

	"github.com/starling-host/starling/internal/work"
)

// maxCustomSections is a limit of spec/determinism.md. The format has none, and compilers emit fewer
// than twenty.
const maxCustomSections = 1000

// Decode reads a module. b must not change while the module is in use. Each item draws from the
// budget, and so does the memory that the module keeps. The error is a [*FormatError], or that of the
// budget.
func Decode(w *work.Budget, b []byte) (*Module, error) { return decode(w, b, false) }

// DecodeLibrary is Decode for a module that is joined with others: its constants may be
// expressions, see [Const].
func DecodeLibrary(w *work.Budget, b []byte) (*Module, error) { return decode(w, b, true) }

func decode(w *work.Budget, b []byte, extended bool) (*Module, error) {
	m, err := Split(b)
	if err != nil {
		return nil, err
	}
	for i := range m.Sections {
		s := &m.Sections[i]
		r := NewReader(b, s.Offset, s.Offset+len(s.Body))
		r.extended, r.work = extended, w
		m.readSection(s.ID, &r)
		if s.ID != SectionCustom {
			r.finish("section")
		}
		if r.err != nil {
			return nil, r.err
		}
	}
	return m, m.checkCounts()
}

// Split reads the frame of a module and decodes none of its sections: the
// result has Sections alone. It is the first look at bytes of unknown origin,
// because its cost depends neither on their claims nor on their content.
func Split(b []byte) (*Module, error) {
	if err := checkHeader(b); err != nil {
		return nil, err
	}
	m := &Module{bytes: b}
	r := NewReader(b, len(header), len(b))
	custom, rank := 0, 0
	for r.Len() > 0 {
		start := r.pos
		s := Section{ID: SectionID(r.Byte())}
		body := r.sub(r.U32())
		s.Offset, s.Body, s.raw = body.pos, b[body.pos:body.end], b[start:r.pos]
		switch {
		case s.ID == SectionCustom:
			s.Name = body.Name()
			if custom++; custom > maxCustomSections {
				r.failAt(start, "more than %d custom sections", maxCustomSections)
			}
		case s.ID == sectionTag:
			r.failFeature(start, "exception handling", "section 13")
		case s.ID > SectionDataCount:
			r.failAt(start, "unknown section %d", s.ID)
		case s.ID.rank() <= rank:
			r.failAt(start, "section %d is out of order", s.ID)
		default:
			rank = s.ID.rank()
		}
		if err := cmp.Or(r.err, body.err); err != nil {
			return nil, err
		}
		m.Sections = append(m.Sections, s)
	}
	return m, nil
}

func checkHeader(b []byte) error {
	magic := header[:4]
	switch {
	case len(b) == 0:
		return &FormatError{Msg: "empty"}
	case !bytes.HasPrefix(b, []byte(magic[:min(len(b), 4)])):
		return &FormatError{Msg: "not a WebAssembly binary: it does not begin with \\0asm"}
	case len(b) < len(header):
		return &FormatError{Offset: len(b), Msg: "unexpected end in the header"}
	case IsComponent(b):
		return &FormatError{Offset: 4, Msg: "this is a component, not a core module", Feature: "component model"}
	case string(b[:len(header)]) != header:
		return &FormatError{Offset: 4, Msg: "unknown version of the format"}
	}
	return nil
}

func (m *Module) readSection(id SectionID, r *Reader) {
	switch id {
	case SectionType:
		m.Types = list(r, "types", 2, (*Reader).funcType) // 3 known sections
	case SectionImport:
		m.Imports = list(r, "imports", 4, (*Reader).readImport)
		for i := range m.Imports {
			if m.Imports[i].Kind == ExternFunc {
				m.imported = append(m.imported, m.Imports[i].Type)
			}
		}
	case SectionFunction:
		m.Funcs = list(r, "functions", 1, (*Reader).U32)
	case SectionTable:
		m.Tables = list(r, "tables", 3, (*Reader).table)
	case SectionMemory:
		m.Memories = list(r, "memories", 2, (*Reader).limits)
	case SectionGlobal:
		m.Globals = list(r, "globals", 5, (*Reader).global)
	case SectionExport:
		m.Exports = list(r, "exports", 3, (*Reader).export)
	case SectionStart:
		m.Start = new(r.U32())
	case SectionElement:
		m.Elements = list(r, "element segments", 3, (*Reader).element)
	case SectionDataCount:
		m.DataCount = new(r.U32())
	case SectionCode:
		m.Code = list(r, "function bodies", 3, (*Reader).code)
	case SectionData:
		m.Data = list(r, "data segments", 2, (*Reader).data)
	}
}

// list reads a counted list. The count is checked against the bytes left and drawn from the budget, so
// the allocation is bounded by the module's size.
func list[T any](r *Reader, what string, itemBytes int, item func(*Reader) T) []T {
	n := r.Count(what, itemBytes)
	if r.charge(n, int(reflect.TypeFor[T]().Size())); r.err != nil {
		return nil
	}
	items := make([]T, 0, n)
	for len(items) < n && r.err == nil {
		items = append(items, item(r))
	}
	return items
}

// checkCounts compares the counts that two sections state about one thing.
func (m *Module) checkCounts() error {
	if len(m.Funcs) != len(m.Code) {
		return &FormatError{Offset: m.offset(SectionCode), Msg: fmt.Sprintf("%d functions but %d bodies", len(m.Funcs), len(m.Code))}
	}
	if m.DataCount != nil && int64(*m.DataCount) != int64(len(m.Data)) {
		return &FormatError{Offset: m.offset(SectionDataCount), Msg: fmt.Sprintf("data count is %d but there are %d data segments", *m.DataCount, len(m.Data))}
	}
	return nil
}

func (m *Module) offset(id SectionID) int {
	if s := m.Section(id); s != nil {
		return s.Offset
	}
	return len(m.bytes)
}
