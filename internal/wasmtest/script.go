package wasmtest

import (
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/starling-host/starling/internal/wasm"
)

// Script is a program that calls imports of WASI as its input says. The input is an image of memory from
// ScriptAt on, which begins with the calls: the index of an import and nine parameters, each of
// eight bytes; ^0 ends them. A result takes the place of its index, and the output is the image
// after the last call.
type Script struct {
	imports []Import
	calls   []uint64
	data    []byte // behind the room for calls
	most    int    // calls
}

const (
	ScriptAt    = 0x10000  // where the image is
	ScriptRoom  = 24 << 20 // its length at most
	scriptWords = 10
)

// NewScript returns a script of at most so many calls. Its imports have fd_read and fd_write of WASI.
func NewScript(imports []Import, most int) *Script { return &Script{imports: imports, most: most} }

// Module returns the program, a WASI command.
func (p *Script) Module() []byte {
	m := &Module{
		Imports: p.imports, Memory: Pages(1 + ScriptRoom/wasm.PageSize),
		Exports: []Export{{Name: "memory", Kind: wasm.ExternMemory}},
		Data:    []Data{{Offset: 0, Bytes: string(binary.LittleEndian.AppendUint64(nil, ScriptAt|ScriptRoom<<32))}},
	}
	const at, length = 0, 1 // locals
	a := new(wasm.Asm)
	load := func(op wasm.Op, word int) { a.Index(wasm.OpLocalGet, at).Access(op, uint32(8*word)) }
	a.I32(0).I32(0).I32(1).I32(8).Index(wasm.OpCall, p.index("fd_read")).Op(wasm.OpDrop)
	a.I32(0).Access(wasm.OpI32Load, 8).Index(wasm.OpLocalSet, length).I32(ScriptAt).Index(wasm.OpLocalSet, at)
	a.Block(wasm.OpBlock, wasm.BlockEmpty).Block(wasm.OpLoop, wasm.BlockEmpty)
	load(wasm.OpI64Load, 0)
	a.I64(-1).Op(wasm.OpI64Eq).Index(wasm.OpBrIf, 1)
	for i, im := range p.imports {
		a.Block(wasm.OpBlock, wasm.BlockEmpty)
		load(wasm.OpI64Load, 0)
		a.I64(int64(i)).Op(wasm.OpI64Ne).Index(wasm.OpBrIf, 0).Index(wasm.OpLocalGet, at)
		for n, t := range im.Type.Params {
			if load(wasm.OpI64Load, n+1); t == wasm.I32 {
				a.Op(wasm.OpI32WrapI64)
			}
		}
		if a.Index(wasm.OpCall, uint32(i)); len(im.Type.Results) == 0 {
			a.I32(0)
		}
		a.Op(wasm.OpI64ExtendI32U).Access(wasm.OpI64Store, 0)
		a.Index(wasm.OpLocalGet, at).I32(8*scriptWords).Op(wasm.OpI32Add).Index(wasm.OpLocalSet, at).Index(wasm.OpBr, 1).Op(wasm.OpEnd)
	}
	a.Op(wasm.OpUnreachable).Op(wasm.OpEnd, wasm.OpEnd)
	a.I32(0).Index(wasm.OpLocalGet, length).Access(wasm.OpI32Store, 4)
	a.I32(1).I32(0).I32(1).I32(8).Index(wasm.OpCall, p.index("fd_write")).Op(wasm.OpDrop)
	m.Funcs = []Func{{Export: "_start", Type: Type(":"), Code: a, Locals: []wasm.LocalGroup{{Count: 2, Type: wasm.I32}}}}
	return m.Bytes()
}

func (p *Script) index(name string) uint32 {
	return uint32(slices.IndexFunc(p.imports, func(im Import) bool { return im.Name == name }))
}

// Room puts bytes into memory and returns their address.
func (p *Script) Room(b []byte) uint64 {
	at := ScriptAt + uint64(8*(scriptWords*p.most+1)+len(p.data))
	p.data = append(append(p.data, b...), make([]byte, -len(b)&7)...)
	return at
}

// Vector puts the list of one area with a text into memory and returns its address.
func (p *Script) Vector(text string) uint64 {
	return p.Room(binary.LittleEndian.AppendUint64(nil, p.Room([]byte(text))|uint64(len(text))<<32))
}

// Call appends a call and returns its number. A text is its address and its length.
func (p *Script) Call(name string, params ...any) int {
	words := []uint64{uint64(p.index(name))}
	for _, v := range params {
		switch v := v.(type) {
		case int:
			words = append(words, uint64(v))
		case uint64:
			words = append(words, v)
		case string:
			words = append(words, p.Room([]byte(v)), uint64(len(v)))
		default:
			panic(fmt.Sprintf("wasmtest: a parameter is a %T", v))
		}
	}
	if p.calls = append(p.calls, append(words, make([]uint64, scriptWords-len(words))...)...); len(p.calls) > scriptWords*p.most {
		panic("wasmtest: too many calls")
	}
	return len(p.calls)/scriptWords - 1
}

// Input returns the image.
func (p *Script) Input() []byte {
	b := make([]byte, 8*(scriptWords*p.most+1))
	for i, v := range append(slices.Clone(p.calls), ^uint64(0)) {
		binary.LittleEndian.PutUint64(b[8*i:], v)
	}
	return append(b, p.data...)
}

// Ran is the image after a script.
type Ran []byte

// Result returns the result of a call.
func (r Ran) Result(call int) uint64 { return binary.LittleEndian.Uint64(r[8*scriptWords*call:]) }

// At returns memory.
func (r Ran) At(address uint64, n int) string { return string(r[address-ScriptAt:][:n]) }
