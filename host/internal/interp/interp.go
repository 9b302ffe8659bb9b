package interp

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/starling-host/starling/internal/wasm"
	"github.com/starling-host/starling/internal/work"
)

// About is what the module of an interpreter says of itself. It stays in the tools that are made
// of the interpreter.
type About struct {
	Language    string `json:"language"`
	Name        string `json:"name"`
	Version     string `json:"version"`
	SourceBytes uint32 `json:"source_bytes"` // the room for the source, see [Pack]
	Depth       uint32 `json:"depth"`        // of the call stack, in slots; zero for the host's default
}

const (
	Section      = "starling.interpreter" // the custom section of the module, with an About in JSON
	maxSection   = 4 << 10
	sourceGlobal = "starling_source" // the exported global with the address of the room
)

// Of returns what a module says of the interpreter in it, or nil.
func Of(module []byte) *About {
	m, err := wasm.Split(module)
	if err != nil {
		return nil // the gate refuses it
	}
	s := m.Custom(Section)
	if s == nil || len(s.Body) > maxSection {
		return nil
	}
	about := &About{}
	if json.Unmarshal(s.Content(), about) != nil {
		return nil
	}
	return about
}

// Builtin is the module of an interpreter that is part of the program.
type Builtin struct {
	Wasm func() []byte // decompressed at the first call
}

// File is a source file of a tool.
type File struct {
	Name string // its path in the tool's folder, with slashes
	Text []byte
}

// TooLarge is the error of [Pack] for a source that has no room in the interpreter's module.
type TooLarge struct{ Bytes, Most int }

// Error has both numbers.
func (e *TooLarge) Error() string {
	return fmt.Sprintf("the source has %d bytes, and %d have room", e.Bytes, e.Most)
}

// Pack returns the module of an interpreter with the files of a tool, of which the first is the
// tool itself and the others are modules that it may import. Everything but the new data segment
// stays as it is, so all tools of an interpreter share its compiled code.
//
// The segment is the number of bytes that follow, and for each file the length of its name, its
// name, the length of its text and its text. Numbers are little-endian and have four bytes.
func Pack(base []byte, files ...File) ([]byte, error) {
	about := Of(base)
	m, err := wasm.Decode(work.Trusted(context.Background()), base) // of this program
	if err != nil {
		return nil, fmt.Errorf("interp: %w", err)
	}
	data := m.Section(wasm.SectionData)
	at := int32(-1)
	for _, e := range m.Exports {
		if e.Name == sourceGlobal && e.Kind == wasm.ExternGlobal && int(e.Index) < len(m.Globals) {
			at = int32(m.Globals[e.Index].Init.Value)
		}
	}
	if about == nil || data == nil || at < 0 {
		return nil, errors.New("interp: the module has no room for a source")
	}
	source := make([]byte, 4)
	for _, f := range files {
		for _, text := range []string{f.Name, string(f.Text)} {
			source = append(binary.LittleEndian.AppendUint32(source, uint32(len(text))), text...)
		}
	}
	if len(source) > int(about.SourceBytes) {
		return nil, &TooLarge{len(source), int(about.SourceBytes)}
	}
	binary.LittleEndian.PutUint32(source, uint32(len(source)-4))

	r := wasm.NewReader(data.Body, 0, len(data.Body))
	count := r.U32() + 1
	init := wasm.Asm{}
	init.I32(at).Op(wasm.OpEnd)
	body := append(wasm.AppendU32(make([]byte, 0, len(data.Body)+len(source)+32), count), data.Body[r.Pos():]...)
	body = append(append(body, 0), init...) // active, in memory 0
	m.SetBody(wasm.SectionData, append(wasm.AppendU32(body, uint32(len(source))), source...))
	if m.DataCount != nil {
		m.SetBody(wasm.SectionDataCount, wasm.AppendU32(nil, count))
	}
	return m.Encode(), nil
}
