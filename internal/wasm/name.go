package wasm

import "strings"

// maxNameBytes bounds what FuncName returns of a module's own text.
const maxNameBytes = 128

// FuncName returns the name that the name section gives to a function, or "".
// The section is a note for people: a malformed one yields "", and the name is
// cut to 128 bytes of valid UTF-8. It is read anew each time, so that a module
// costs nothing for it until it is needed.
func (m *Module) FuncName(index int) string {
	for at, name := range m.FuncNames {
		if int64(at) >= int64(index) {
			if int64(at) == int64(index) {
				return name
			}
			break
		}
	}
	return ""
}

// FuncNames yields the functions that the name section names, in ascending order, with
// their names as [Module.FuncName] returns them.
func (m *Module) FuncNames(yield func(index uint32, name string) bool) {
	r := m.names(1)
	for range r.Count("names", 2) {
		at, name := r.U32(), r.Bytes(r.U32())
		if r.err != nil || !yield(at, cutName(name)) {
			return
		}
	}
}

// Name returns the name that the name section gives to the module, or "".
func (m *Module) Name() string {
	r := m.names(0)
	return cutName(r.Bytes(r.U32()))
}

func cutName(name []byte) string {
	return strings.ToValidUTF8(string(name[:min(len(name), maxNameBytes)]), "")
}

// names returns a reader of a subsection of the name section: 0 names the module, 1 has a list
// of ascending function indices with names.
func (m *Module) names(id byte) Reader {
	for i := range m.Sections {
		s := &m.Sections[i]
		if s.ID != SectionCustom || s.Name != "name" {
			continue
		}
		r := NewReader(m.bytes, s.Offset, s.Offset+len(s.Body))
		r.Bytes(r.U32()) // the section's own name
		for r.Len() > 0 {
			is := r.Byte()
			if sub := r.sub(r.U32()); is == id {
				return sub
			}
		}
	}
	return Reader{}
}
