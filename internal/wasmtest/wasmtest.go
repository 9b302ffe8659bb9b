package wasmtest

import (
	"encoding/binary"

	"github.com/starling-host/starling/internal/wasm"
)

// Module is a module to build. Its zero value is the empty module.
type Module struct {
	Types    []wasm.FuncType // in front of those that Imports and Funcs need
	Imports  []Import
	Funcs    []Func
	Table    *wasm.Limits // of funcref
	Memory   *wasm.Limits
	Globals  []Global
	Exports  []Export // after those that Funcs name
	Start    *uint32
	Elements []Element
	Data     []Data
	Customs  []Custom // at the end
}

// Import is an imported function.
type Import struct {
	Module, Name string
	Type         wasm.FuncType
}

// Func is a function. Code lacks its last end instruction.
type Func struct {
	Export string // "" for none
	Type   wasm.FuncType
	Locals []wasm.LocalGroup
	Code   *wasm.Asm
}

// Global is a global with the constant of the given bits.
type Global struct {
	Type    wasm.ValType
	Mutable bool
	Value   int64
}

// Export is an export beside those of Funcs.
type Export struct {
	Name  string
	Kind  wasm.ExternKind
	Index uint32
}

// Element is an active segment of functions.
type Element struct {
	Offset int32
	Funcs  []uint32
}

// Data is an active data segment.
type Data struct {
	Offset int32
	Bytes  string
}

// Custom is a custom section.
type Custom struct{ Name, Body string }

// Type returns a function type. Letters stand for the types: i for i32, I for
// i64, f for f32, F for f64; results stand behind a colon, as in "iI:i".
func Type(letters string) wasm.FuncType {
	var t wasm.FuncType
	list := &t.Params
	for _, c := range letters {
		switch c {
		case ':':
			list = &t.Results
		case 'i':
			*list = append(*list, wasm.I32)
		case 'I':
			*list = append(*list, wasm.I64)
		case 'f':
			*list = append(*list, wasm.F32)
		case 'F':
			*list = append(*list, wasm.F64)
		default:
			panic("wasmtest: unknown letter in type " + letters)
		}
	}
	return t
}

// Pages are the limits of a memory or table without maximum.
func Pages(n uint32) *wasm.Limits { return &wasm.Limits{Min: n} }

// Header is the beginning of every module.
const Header = "\x00asm\x01\x00\x00\x00"

// Section returns a section with the given body.
func Section(id wasm.SectionID, body []byte) []byte {
	return append(wasm.AppendU32([]byte{byte(id)}, uint32(len(body))), body...)
}

// Vector returns a list: its length and its items.
func Vector(items ...[]byte) []byte {
	b := wasm.AppendU32(nil, uint32(len(items)))
	for _, item := range items {
		b = append(b, item...)
	}
	return b
}

// Bytes returns the binary.
func (m *Module) Bytes() []byte {
	w := writer{out: []byte(Header), types: m.Types}
	w.imports(m)
	w.functions(m)
	if m.Table != nil {
		w.section(wasm.SectionTable, Vector(limits([]byte{byte(wasm.FuncRef)}, m.Table)))
	}
	if m.Memory != nil {
		w.section(wasm.SectionMemory, Vector(limits(nil, m.Memory)))
	}
	w.list(wasm.SectionGlobal, items(m.Globals, Global.encode))
	w.exports(m)
	if m.Start != nil {
		w.section(wasm.SectionStart, wasm.AppendU32(nil, *m.Start))
	}
	w.list(wasm.SectionElement, items(m.Elements, Element.encode))
	w.list(wasm.SectionCode, items(m.Funcs, Func.encode))
	w.list(wasm.SectionData, items(m.Data, Data.encode))
	for _, c := range m.Customs {
		w.section(wasm.SectionCustom, append(wasm.AppendName(nil, c.Name), c.Body...))
	}
	types := Section(wasm.SectionType, Vector(items(w.types, func(t wasm.FuncType) []byte { return t.Append(nil) })...))
	return append(append([]byte(Header), types...), w.out[len(Header):]...)
}

type writer struct {
	out   []byte
	types []wasm.FuncType
}

func (w *writer) section(id wasm.SectionID, body []byte) {
	w.out = append(w.out, Section(id, body)...)
}

func (w *writer) list(id wasm.SectionID, items [][]byte) {
	if len(items) > 0 {
		w.section(id, Vector(items...))
	}
}

func items[T any](list []T, encode func(T) []byte) [][]byte {
	var out [][]byte
	for _, item := range list {
		out = append(out, encode(item))
	}
	return out
}

func (w *writer) typeIndex(t wasm.FuncType) uint32 {
	for i := range w.types {
		if w.types[i].Equal(t) {
			return uint32(i)
		}
	}
	w.types = append(w.types, t)
	return uint32(len(w.types) - 1)
}

func (w *writer) imports(m *Module) {
	w.list(wasm.SectionImport, items(m.Imports, func(im Import) []byte {
		b := wasm.AppendName(wasm.AppendName(nil, im.Module), im.Name)
		return wasm.AppendU32(append(b, byte(wasm.ExternFunc)), w.typeIndex(im.Type))
	}))
}

func (w *writer) functions(m *Module) {
	w.list(wasm.SectionFunction, items(m.Funcs, func(f Func) []byte {
		return wasm.AppendU32(nil, w.typeIndex(f.Type))
	}))
}

func (w *writer) exports(m *Module) {
	var all []Export
	for i, f := range m.Funcs {
		if f.Export != "" {
			all = append(all, Export{f.Export, wasm.ExternFunc, uint32(len(m.Imports) + i)})
		}
	}
	w.list(wasm.SectionExport, items(append(all, m.Exports...), func(e Export) []byte {
		return wasm.AppendU32(append(wasm.AppendName(nil, e.Name), byte(e.Kind)), e.Index)
	}))
}

func limits(b []byte, l *wasm.Limits) []byte {
	if !l.HasMax {
		return wasm.AppendU32(append(b, 0), l.Min)
	}
	return wasm.AppendU32(wasm.AppendU32(append(b, 1), l.Min), l.Max)
}

func (g Global) encode() []byte {
	a := wasm.Asm{byte(g.Type), 0}
	if g.Mutable {
		a[1] = 1
	}
	switch g.Type {
	case wasm.I32:
		a.I32(int32(g.Value))
	case wasm.I64:
		a.I64(g.Value)
	case wasm.F32:
		a = binary.LittleEndian.AppendUint32(wasm.OpF32Const.Append(a), uint32(g.Value))
	case wasm.F64:
		a = binary.LittleEndian.AppendUint64(wasm.OpF64Const.Append(a), uint64(g.Value))
	}
	return *a.Op(wasm.OpEnd)
}

func (f Func) encode() []byte {
	body := wasm.AppendU32(nil, uint32(len(f.Locals)))
	for _, g := range f.Locals {
		body = append(wasm.AppendU32(body, g.Count), byte(g.Type))
	}
	if f.Code != nil {
		body = append(body, *f.Code...)
	}
	body = wasm.OpEnd.Append(body)
	return append(wasm.AppendU32(nil, uint32(len(body))), body...)
}

func (e Element) encode() []byte {
	a := wasm.Asm{0}
	a.I32(e.Offset).Op(wasm.OpEnd)
	b := wasm.AppendU32(a, uint32(len(e.Funcs)))
	for _, f := range e.Funcs {
		b = wasm.AppendU32(b, f)
	}
	return b
}

func (d Data) encode() []byte {
	a := wasm.Asm{0}
	a.I32(d.Offset).Op(wasm.OpEnd)
	return wasm.AppendName(a, d.Bytes)
}
