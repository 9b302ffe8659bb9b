package wasmtest

import (
	"fmt"

	"github.com/starling-host/starling/internal/wasm"
)

// Config configures generated modules. The zero value means no imports, and the engine's
// NaNs.
type Config struct {
	// CanonicalNaNs puts, behind each instruction that computes a float, code
	// that replaces a NaN by the positive canonical one. The specification leaves
	// the bits of such a NaN open, but for its deterministic profile, and this
	// makes any engine one of that profile. Otherwise the module is the same as
	// without.
	CanonicalNaNs bool

	Imports []Import // functions that the module imports
}

// The bounds of a module.
const (
	maxFuncs   = 6
	maxParams  = 4
	maxResults = 3
	maxGlobals = 6
	maxTable   = 8
	maxOps     = 1500 // instructions of one function; ends of blocks come on top
)

// valTypes are the types of all values.
var valTypes = []wasm.ValType{wasm.I32, wasm.I64, wasm.F32, wasm.F64}

// generator makes one module.
type generator struct {
	src   source
	c     Config
	m     Module
	funcs []wasm.FuncType // of all functions, imports first
	table []int           // the function in each entry of the table, or -1
}

// Generate returns the binary of the module for a seed. It exports functions "f0", "f1",
// ..., all globals as "g0", "g1", ..., and its memory, if it has one, as "memory".
func Generate(seed []byte, c Config) []byte {
	g := &generator{src: source{seed: seed}, c: c}
	g.declareTypes()
	g.declareMemory()
	g.declareGlobals()
	g.declareFuncs()
	g.declareTable()
	rest := g.src
	for i := range g.m.Funcs {
		g.src = rest.share(len(g.m.Funcs) - i)
		g.defineFunc(i)
	}
	g.exportAll()
	return g.m.Bytes()
}

// declareTypes makes the types that functions and blocks have. Equal ones may
// be among them.
func (g *generator) declareTypes() {
	g.m.Types = []wasm.FuncType{{}}
	for range 2 + g.src.below(6) {
		g.m.Types = append(g.m.Types, wasm.FuncType{Params: g.types(maxParams), Results: g.types(maxResults)})
	}
}

// types returns a list of at most n types.
func (g *generator) types(n int) []wasm.ValType {
	list := make([]wasm.ValType, g.src.below(n+1))
	for i := range list {
		list[i] = pick(&g.src, valTypes)
	}
	return list
}

func (g *generator) declareMemory() {
	if g.src.oneIn(16) {
		return
	}
	min := 1 - g.src.below(12)/11
	g.m.Memory = &wasm.Limits{Min: uint32(min)}
	if g.src.oneIn(2) {
		g.m.Memory.Max, g.m.Memory.HasMax = uint32(min+g.src.below(4)), true
	}
	for range g.src.below(4) * min {
		bytes := make([]byte, g.src.below(24))
		for i := range bytes {
			bytes[i] = byte(g.src.below(256))
		}
		g.m.Data = append(g.m.Data, Data{Offset: int32(g.src.below(256) * 16), Bytes: string(bytes)})
	}
}

func (g *generator) declareGlobals() {
	for range g.src.below(maxGlobals + 1) {
		t := pick(&g.src, valTypes)
		g.m.Globals = append(g.m.Globals, Global{
			Type: t, Mutable: !g.src.oneIn(4), Value: int64(constant(&g.src, t)),
		})
	}
}

func (g *generator) declareFuncs() {
	for _, im := range g.c.Imports {
		g.m.Imports = append(g.m.Imports, im)
		g.funcs = append(g.funcs, im.Type)
	}
	for range 1 + g.src.below(maxFuncs) {
		t := pick(&g.src, g.m.Types)
		g.m.Funcs = append(g.m.Funcs, Func{Type: t})
		g.funcs = append(g.funcs, t)
	}
	if g.src.oneIn(4) {
		start := len(g.funcs)
		g.m.Funcs = append(g.m.Funcs, Func{})
		g.funcs = append(g.funcs, wasm.FuncType{})
		g.m.Start = new(uint32(start))
	}
}

// declareTable fills a table with functions and leaves some entries empty.
func (g *generator) declareTable() {
	size := g.src.below(maxTable + 1)
	if size == 0 {
		return
	}
	g.m.Table = Pages(uint32(size))
	for i := range size {
		f := g.src.below(len(g.funcs) + 1)
		if f == len(g.funcs) {
			g.table = append(g.table, -1)
			continue
		}
		g.table = append(g.table, f)
		g.m.Elements = append(g.m.Elements, Element{Offset: int32(i), Funcs: []uint32{uint32(f)}})
	}
}

func (g *generator) defineFunc(i int) {
	b := newBody(g, len(g.m.Imports)+i)
	b.run()
	f := &g.m.Funcs[i]
	f.Export = fmt.Sprintf("f%d", i)
	f.Code = &b.code
	for _, t := range b.locals[len(f.Type.Params):] {
		f.Locals = append(f.Locals, wasm.LocalGroup{Count: 1, Type: t})
	}
}

func (g *generator) exportAll() {
	for i := range g.m.Globals {
		g.m.Exports = append(g.m.Exports, Export{Name: fmt.Sprintf("g%d", i), Kind: wasm.ExternGlobal, Index: uint32(i)})
	}
	if g.m.Memory != nil {
		g.m.Exports = append(g.m.Exports, Export{Name: "memory", Kind: wasm.ExternMemory})
	}
}
