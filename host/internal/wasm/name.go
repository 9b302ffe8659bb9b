package wasm

import "strings"

// maxNameBytes bounds what FuncName returns of a module's own text.
const maxNameBytes = 128

// FuncName returns the name that the name section gives to a function, or "".
// The section is a note for people: a malformed one yields "", and the name is
// cut to 128 bytes of valid UTF-8. It is read anew each time, so that a module
// costs nothing for it until it is needed.
func (m *Module) FuncName(index int) string {
	for i := range m.Sections {
		s := &m.Sections[i]
		if s.ID != SectionCustom || s.Name != "name" {
			continue
		}
		r := NewReader(m.bytes, s.Offset, s.Offset+len(s.Body))
		r.Bytes(r.U32()) // the section's own name
		return funcName(&r, index)
	}
	return ""
}

// funcName looks up a name in the subsection of function names, id 1: a list
// of ascending indices, with names.
func funcName(r *Reader, index int) string {
	for r.Len() > 0 {
		id := r.Byte()
		sub := r.sub(r.U32())
		if id != 1 {
			continue
		}
		for range sub.Count("names", 2) {
			at, name := sub.U32(), sub.Bytes(sub.U32())
			if sub.err != nil || int64(at) > int64(index) {
				return ""
			}
			if int64(at) == int64(index) {
				return strings.ToValidUTF8(string(name[:min(len(name), maxNameBytes)]), "")
			}
		}
	}
	return ""
}
