package rewrite

import (
	"slices"
	"strconv"

	"github.com/starling-host/starling/internal/wasm"
	"github.com/starling-host/starling/internal/work"
)

// Bridge is two modules that stand between a rewritten module and a host in JavaScript.
// JavaScript has no 64-bit integers that are cheap, and no bits of a NaN, and its functions
// cannot end a guest without code of their own. So values cross in memory, as eight bytes
// each, little-endian, from address 0 of [BridgeMail]:
//
//   - Before is instantiated first. It imports the host's function [BridgeHost] [BridgeCall],
//     (i32) -> i32, and exports a function for each import of the module, under the import's
//     number in Imports. That function leaves its parameters in memory, calls the host with
//     the number, and returns the results that the host has left. If the host's function
//     returns anything but zero, it traps, which ends the guest.
//   - After imports the exports of the module from [BridgeGuest], and the memory from
//     [BridgeBefore]. It exports functions () -> (): for function n of Functions "call" and n,
//     which takes parameters from memory and leaves results there; and for global n of
//     Globals "get" and "set" and n.
type Bridge struct {
	Before, After []byte

	Imports   []Import // all functions that the module imports
	Functions []string // the functions that it exports
	Globals   []string // the mutable globals that it exports
	Types     []wasm.ValType
}

// The names by which the modules of a bridge find each other.
const (
	BridgeHost   = "host"
	BridgeCall   = "call"
	BridgeMail   = "mail"
	BridgeGuest  = "guest"
	BridgeBefore = "before"
)

// NewBridge returns the bridge of a rewritten module.
func NewBridge(w *work.Budget, rewritten []byte) (*Bridge, error) {
	m, err := wasm.Decode(w, rewritten)
	if err == nil {
		err = w.Spend(len(m.Imports)*len(m.Imports) + len(m.Exports))
	}
	if err != nil {
		return nil, Malformed(err)
	}
	b := &Bridge{}
	for _, im := range m.Imports {
		found := Import{im.Module, im.Name, m.Types[im.Type]}
		if !slices.ContainsFunc(b.Imports, func(o Import) bool { return o.Module == found.Module && o.Name == found.Name }) {
			b.Imports = append(b.Imports, found) // Go links some imports twice
		}
	}
	b.Before = b.before()
	b.After = b.after(m)
	return b, nil
}

// pieces of a module that is built: lists of the binary format without their counts.
type pieces struct {
	types, imports, funcs, exports, code [][]byte
	memory                               []byte
}

func (p *pieces) typeOf(t wasm.FuncType) []byte {
	p.types = append(p.types, t.Append(nil))
	return wasm.AppendU32(nil, uint32(len(p.types)-1))
}

// function adds a function that is exported, whose index in the index space is known.
func (p *pieces) function(name string, index uint32, t wasm.FuncType, body wasm.Asm) {
	p.funcs = append(p.funcs, p.typeOf(t))
	p.exports = append(p.exports, wasm.Export{Name: name, Kind: wasm.ExternFunc, Index: index}.Append(nil))
	p.code = append(p.code, append(wasm.AppendU32(nil, uint32(len(body))), body...))
}

func (p *pieces) encode() []byte {
	m := &wasm.Module{}
	for _, s := range []struct {
		id    wasm.SectionID
		items [][]byte
	}{
		{wasm.SectionType, p.types}, {wasm.SectionImport, p.imports}, {wasm.SectionFunction, p.funcs},
		{wasm.SectionExport, p.exports}, {wasm.SectionCode, p.code},
	} {
		m.SetBody(s.id, wasm.AppendItems(nil, s.items...))
	}
	if p.memory != nil {
		m.SetBody(wasm.SectionMemory, wasm.AppendItems(nil, p.memory))
	}
	return m.Encode()
}

// mailPage declares a memory of one page: 16 results or 128 parameters are far below.
var mailPage = []byte{0, 1}

func (b *Bridge) before() []byte {
	p := &pieces{memory: mailPage}
	p.imports = [][]byte{importOf(BridgeHost, BridgeCall, wasm.ExternFunc, p.typeOf(numberType))}
	p.exports = [][]byte{wasm.Export{Name: BridgeMail, Kind: wasm.ExternMemory}.Append(nil)}
	for i, im := range b.Imports {
		a := wasm.Asm{noLocals}
		for n, t := range im.Type.Params {
			a.I32(0).Index(wasm.OpLocalGet, uint32(n))
			toBits(&a, t)
			a.Access(wasm.OpI64Store, 8*uint32(n))
		}
		a.I32(int32(i)).Index(wasm.OpCall, 0)
		a.Block(wasm.OpIf, wasm.BlockEmpty).Op(wasm.OpUnreachable, wasm.OpEnd)
		fromMail(&a, im.Type.Results)
		a.Op(wasm.OpEnd)
		p.function(strconv.Itoa(i), uint32(i)+1, im.Type, a)
	}
	return p.encode()
}

func (b *Bridge) after(m *wasm.Module) []byte {
	p := &pieces{imports: [][]byte{importOf(BridgeBefore, BridgeMail, wasm.ExternMemory, mailPage)}}
	var functions, globals []wasm.Asm
	for _, e := range m.Exports {
		switch {
		case e.Kind == wasm.ExternFunc:
			t := m.Types[m.FuncTypeIndex(int(e.Index))]
			p.imports = append(p.imports, importOf(BridgeGuest, e.Name, e.Kind, p.typeOf(t)))
			functions = append(functions, calling(t, uint32(len(b.Functions))))
			b.Functions = append(b.Functions, e.Name)
		case e.Kind == wasm.ExternGlobal && m.Globals[e.Index].Mutable:
			t := m.Globals[e.Index].Type
			p.imports = append(p.imports, importOf(BridgeGuest, e.Name, e.Kind, []byte{byte(t), 1}))
			n := uint32(len(b.Globals))
			get := wasm.Asm{noLocals}
			get.I32(0).Index(wasm.OpGlobalGet, n)
			toBits(&get, t)
			get.Access(wasm.OpI64Store, 0).Op(wasm.OpEnd)
			set := wasm.Asm{noLocals}
			fromMail(&set, []wasm.ValType{t})
			set.Index(wasm.OpGlobalSet, n).Op(wasm.OpEnd)
			globals = append(globals, get, set)
			b.Globals, b.Types = append(b.Globals, e.Name), append(b.Types, t)
		}
	}
	index := uint32(len(functions))
	add := func(name string, body wasm.Asm) {
		p.function(name, index, wasm.FuncType{}, body)
		index++
	}
	for i, body := range functions {
		add("call"+strconv.Itoa(i), body)
	}
	for i, body := range globals {
		add([]string{"get", "set"}[i%2]+strconv.Itoa(i/2), body)
	}
	return p.encode()
}

// calling is the body that calls a function with parameters and results in memory.
func calling(t wasm.FuncType, index uint32) wasm.Asm {
	a := wasm.AppendU32(nil, uint32(len(t.Results)))
	for _, r := range t.Results {
		a = append(a, 1, byte(r))
	}
	body := wasm.Asm(a)
	fromMail(&body, t.Params)
	body.Index(wasm.OpCall, index)
	for n := len(t.Results) - 1; n >= 0; n-- {
		body.Index(wasm.OpLocalSet, uint32(n))
	}
	for n, r := range t.Results {
		body.I32(0).Index(wasm.OpLocalGet, uint32(n))
		toBits(&body, r)
		body.Access(wasm.OpI64Store, 8*uint32(n))
	}
	body.Op(wasm.OpEnd)
	return body
}

func importOf(module, name string, kind wasm.ExternKind, of []byte) []byte {
	b := wasm.AppendName(wasm.AppendName(nil, module), name)
	return append(append(b, byte(kind)), of...)
}

// toBits makes an i64 of the value on the stack.
func toBits(a *wasm.Asm, t wasm.ValType) {
	switch t {
	case wasm.F32:
		a.Op(wasm.OpI32ReinterpretF32, wasm.OpI64ExtendI32U)
	case wasm.I32:
		a.Op(wasm.OpI64ExtendI32U)
	case wasm.F64:
		a.Op(wasm.OpI64ReinterpretF64)
	}
}

// fromMail puts the first values in memory on the stack.
func fromMail(a *wasm.Asm, types []wasm.ValType) {
	for n, t := range types {
		a.I32(0).Access(wasm.OpI64Load, 8*uint32(n))
		switch t {
		case wasm.I32:
			a.Op(wasm.OpI32WrapI64)
		case wasm.F32:
			a.Op(wasm.OpI32WrapI64, wasm.OpF32ReinterpretI32)
		case wasm.F64:
			a.Op(wasm.OpF64ReinterpretI64)
		}
	}
}
