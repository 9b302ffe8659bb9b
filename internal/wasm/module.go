package wasm

import (
	"bytes"
	"slices"
)

// SectionID is the id of a section.
type SectionID byte

// The sections, by id. They stand in this order, except that data count
// stands before code; custom sections may stand anywhere.
const (
	SectionCustom    SectionID = 0
	SectionType      SectionID = 1
	SectionImport    SectionID = 2
	SectionFunction  SectionID = 3
	SectionTable     SectionID = 4
	SectionMemory    SectionID = 5
	SectionGlobal    SectionID = 6
	SectionExport    SectionID = 7
	SectionStart     SectionID = 8
	SectionElement   SectionID = 9
	SectionCode      SectionID = 10
	SectionData      SectionID = 11
	SectionDataCount SectionID = 12

	sectionTag SectionID = 13 // of exception handling
)

// rank is the position of a section in the prescribed order.
func (id SectionID) rank() int {
	switch id {
	case SectionDataCount:
		return 2*int(SectionCode) - 1
	default:
		return 2 * int(id)
	}
}

// Section is one section of the binary.
type Section struct {
	ID     SectionID
	Offset int    // of Body in the module it was read from
	Body   []byte // without id and size
	Name   string // of a custom section
	raw    []byte // id, size and body as read; nil when Body is new
}

// Module is a module: its sections and their decoded content. The decoded
// fields are a view; they do not change when a section is replaced.
type Module struct {
	Sections []Section

	Types     []FuncType
	Imports   []Import
	Funcs     []uint32 // type index of each function that is not imported
	Tables    []Table
	Memories  []Limits
	Globals   []Global
	Exports   []Export
	Start     *uint32
	Elements  []Element
	DataCount *uint32
	Code      []Code
	Data      []Data

	bytes    []byte
	imported []uint32 // type index of each imported function
}

// NumImportedFuncs is the index of the first function that has a body here.
func (m *Module) NumImportedFuncs() int { return len(m.imported) }

// NumFuncs is the size of the function index space.
func (m *Module) NumFuncs() int { return len(m.imported) + len(m.Funcs) }

// FuncTypeIndex returns the index into Types that function index declares,
// which need not exist. The function must exist.
func (m *Module) FuncTypeIndex(index int) uint32 {
	if index < len(m.imported) {
		return m.imported[index]
	}
	return m.Funcs[index-len(m.imported)]
}

// TypeOfBlock returns the parameters and results of a block type, whose index must exist.
func (m *Module) TypeOfBlock(b BlockType) FuncType {
	if index, ok := b.Index(); ok {
		return m.Types[index]
	}
	if result, ok := b.Result(); ok {
		return FuncType{Results: []ValType{result}}
	}
	return FuncType{}
}

// Bytes returns the module's bytes from pos to end, as the decoded view counts
// them.
func (m *Module) Bytes(pos, end int) []byte { return m.bytes[pos:end] }

// Section returns the section with the given id, or nil.
func (m *Module) Section(id SectionID) *Section {
	for i := range m.Sections {
		if m.Sections[i].ID == id {
			return &m.Sections[i]
		}
	}
	return nil
}

// Custom returns the first custom section of that name, or nil.
func (m *Module) Custom(name string) *Section {
	for i := range m.Sections {
		if s := &m.Sections[i]; s.ID == SectionCustom && s.Name == name {
			return s
		}
	}
	return nil
}

// Content returns the bytes of a custom section behind its name, and nothing without a section.
func (s *Section) Content() []byte {
	if s == nil {
		return nil
	}
	r := NewReader(s.Body, 0, len(s.Body))
	r.Bytes(r.U32())
	return s.Body[r.Pos():]
}

// SetBody replaces the body of a section that is not custom, or inserts the
// section at its place. A nil body removes it.
func (m *Module) SetBody(id SectionID, body []byte) {
	at := len(m.Sections)
	for i := range m.Sections {
		s := &m.Sections[i]
		if s.ID == id && body != nil {
			*s = Section{ID: id, Body: body}
			return
		}
		if s.ID != SectionCustom && s.ID.rank() >= id.rank() {
			at = i
			break
		}
	}
	if body != nil {
		m.Sections = slices.Insert(m.Sections, at, Section{ID: id, Body: body})
	} else if at < len(m.Sections) && m.Sections[at].ID == id {
		m.Sections = slices.Delete(m.Sections, at, at+1)
	}
}

// DropCustom removes all custom sections.
func (m *Module) DropCustom() {
	m.Sections = slices.DeleteFunc(m.Sections, func(s Section) bool { return s.ID == SectionCustom })
}

// Encode writes the module. When no section was replaced these are the bytes
// passed to [Decode].
func (m *Module) Encode() []byte {
	size := len(header)
	for i := range m.Sections {
		size += len(m.Sections[i].raw) + len(m.Sections[i].Body) + 6
	}
	out := append(make([]byte, 0, size), header...)
	for i := range m.Sections {
		s := &m.Sections[i]
		if s.raw != nil {
			out = append(out, s.raw...)
			continue
		}
		out = append(out, byte(s.ID))
		out = AppendU32(out, uint32(len(s.Body)))
		out = append(out, s.Body...)
	}
	return out
}

const header = "\x00asm\x01\x00\x00\x00"

// componentHeader begins a component: layer 1, version 0x0d.
var componentHeader = []byte("\x00asm\x0d\x00\x01\x00")

// IsComponent reports whether b begins like a component of the component
// model, which wraps core modules and is not one.
func IsComponent(b []byte) bool { return bytes.HasPrefix(b, componentHeader) }
