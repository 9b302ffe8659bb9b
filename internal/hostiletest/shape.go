package hostiletest

import (
	"slices"
	"strings"

	"github.com/starling-host/starling/internal/wasm"
	"github.com/starling-host/starling/internal/wasmtest"
)

// function is a module with one function (i32) -> () of that code.
func function(locals uint32, code *wasm.Asm) []byte {
	m := wasmtest.Module{Memory: wasmtest.Pages(1), Funcs: []wasmtest.Func{{
		Type: wasmtest.Type("i:"), Locals: []wasm.LocalGroup{{Count: locals, Type: wasm.I32}}, Code: code,
	}}}
	return m.Bytes()
}

func asm() *wasm.Asm { return &wasm.Asm{} }

// times appends what piece appends, n times.
func times(n int, piece func(a *wasm.Asm, i uint32)) *wasm.Asm {
	a := asm()
	for i := range n {
		piece(a, uint32(i))
	}
	return a
}

// nested is n blocks of a kind within one another.
func nested(op wasm.Op) func(n int) []byte {
	return func(n int) []byte {
		a := times(n, func(a *wasm.Asm, _ uint32) {
			if op == wasm.OpIf {
				a.I32(1)
			}
			a.Block(op, wasm.BlockEmpty)
		})
		return function(0, asmAfter(a, times(n, func(a *wasm.Asm, _ uint32) { a.Op(wasm.OpEnd) })))
	}
}

func asmAfter(a *wasm.Asm, rest ...*wasm.Asm) *wasm.Asm {
	for _, b := range rest {
		*a = append(*a, *b...)
	}
	return a
}

// setAll sets each of the locals, and storeAll reads them, so that they are alive between.
func setAll(locals int) *wasm.Asm {
	return times(locals, func(a *wasm.Asm, i uint32) {
		a.Index(wasm.OpLocalGet, 1+i).I32(int32(i)).Op(wasm.OpI32Add).Index(wasm.OpLocalSet, 1+i)
	})
}

func storeAll(locals int) *wasm.Asm {
	return times(locals, func(a *wasm.Asm, i uint32) { a.I32(0).Index(wasm.OpLocalGet, 1+i).Access(wasm.OpI32Store, 0) })
}

// sequence is one function of n times the same piece.
func sequence(locals uint32, piece func(a *wasm.Asm, i uint32)) func(n int) []byte {
	return func(n int) []byte { return function(locals, times(n, piece)) }
}

// square makes many of the shapes below hostile.
const square = "a compiler that takes time by the square"

// small are the sizes of parts that a module can have many of at no cost.
var small = []int{10, 100, 1_000, 4_000, 10_000, 50_000}

// shapes are modules whose compilation grows faster than they do.
func shapes() []Load {
	return slices.Concat(branches(), tables(), rows(), quantities())
}

// branches are blocks, and jumps out of them.
func branches() []Load {
	return []Load{
		{"nested blocks", square, small, nested(wasm.OpBlock)},
		{"nested loops", square, small, nested(wasm.OpLoop)},
		{"nested ifs", square, small, nested(wasm.OpIf)},
		{"ifs in a row", square, small, sequence(0, func(a *wasm.Asm, _ uint32) {
			a.Index(wasm.OpLocalGet, 0).Block(wasm.OpIf, wasm.BlockEmpty).Op(wasm.OpEnd)
		})},
		{"ifs times locals", "blocks times the values alive across them", []int{50, 1_000}, func(n int) []byte {
			return function(4_000, asmAfter(setAll(4_000), times(n, func(a *wasm.Asm, i uint32) {
				a.Index(wasm.OpLocalGet, 0).Block(wasm.OpIf, wasm.BlockEmpty).I32(1).Index(wasm.OpLocalSet, 1+i*7%4_000).Op(wasm.OpEnd)
			}), storeAll(4_000)))
		}},
		{"loops times locals", "values carried through loops", []int{10, 500}, func(n int) []byte {
			return function(4_000, asmAfter(setAll(4_000), times(n, func(a *wasm.Asm, i uint32) {
				a.Block(wasm.OpLoop, wasm.BlockEmpty).Index(wasm.OpLocalGet, 1+i).I32(1).Op(wasm.OpI32Sub).
					Index(wasm.OpLocalTee, 1+i).Index(wasm.OpBrIf, 0).Op(wasm.OpEnd)
			}), storeAll(4_000)))
		}},
		{"nested loops times locals", "values carried through all the loops around them", []int{10, 100}, func(n int) []byte {
			return function(1_000, asmAfter(
				times(n, func(a *wasm.Asm, _ uint32) { a.Block(wasm.OpLoop, wasm.BlockEmpty) }), setAll(1_000),
				times(n, func(a *wasm.Asm, _ uint32) { a.Index(wasm.OpLocalGet, 0).Index(wasm.OpBrIf, 0).Op(wasm.OpEnd) })))
		}},
		{"branches out of one block", "labels that meet", small, func(n int) []byte {
			a := asm().Block(wasm.OpBlock, wasm.BlockEmpty)
			return function(0, asmAfter(a, times(n, func(a *wasm.Asm, _ uint32) { a.Index(wasm.OpLocalGet, 0).Index(wasm.OpBrIf, 0) })).Op(wasm.OpEnd))
		}},
	}
}

// tables are lists of targets, and of the values that they carry or calls take.
func tables() []Load {
	return []Load{
		{"labels of one br_table", square, small, func(n int) []byte { return function(0, asm().I32(0).BrTable(make([]uint32, n+1)...)) }},
		{"br_tables in a row", "a block for each label", []int{10, 50, 300, 600}, sequence(0, func(a *wasm.Asm, _ uint32) {
			a.Block(wasm.OpBlock, wasm.BlockEmpty).Index(wasm.OpLocalGet, 0).BrTable(make([]uint32, 501)...).Op(wasm.OpEnd)
		})},
		{"br_table with many results", "labels times the values that they carry", []int{10, 1_000}, func(n int) []byte {
			results := make([]wasm.ValType, n)
			for i := range results {
				results[i] = wasm.I32
			}
			a := times(n, func(a *wasm.Asm, _ uint32) { a.I32(1) }).Index(wasm.OpLocalGet, 0).BrTable(make([]uint32, 10*n)...)
			m := wasmtest.Module{Funcs: []wasmtest.Func{{Type: wasm.FuncType{Params: []wasm.ValType{wasm.I32}, Results: results}, Code: a}}}
			return m.Bytes()
		}},
		{"calls with many operands", "operands times calls", []int{10, 128, 1_000}, func(n int) []byte {
			params := make([]wasm.ValType, n)
			for i := range params {
				params[i] = wasm.I32
			}
			a := asm()
			for range 1000 {
				asmAfter(a, times(n, func(a *wasm.Asm, _ uint32) { a.I32(1) })).Index(wasm.OpCall, 0)
			}
			m := wasmtest.Module{Funcs: []wasmtest.Func{{Type: wasm.FuncType{Params: params}, Code: a}}}
			return m.Bytes()
		}},
	}
}

// rows are functions of one piece again and again.
func rows() []Load {
	return []Load{
		{"indirect calls in a row", "checks of types, and the checks of fuel behind them", []int{1_000, 17_000, 40_000}, func(n int) []byte {
			m := wasmtest.Module{Table: wasmtest.Pages(1), Funcs: []wasmtest.Func{{Type: wasmtest.Type("i:"), Code: times(n, func(a *wasm.Asm, _ uint32) {
				a.I32(0).Index(wasm.OpLocalGet, 0).Index(wasm.OpCallIndirect, 0)
			})}}}
			return m.Bytes()
		}},
		{"memory.fill in a row", "code for a loop at each", small, sequence(0, func(a *wasm.Asm, _ uint32) { a.I32(0).I32(0).I32(0).Memory(wasm.OpMemoryFill) })},
		{"memory.grow in a row", "exits to the host", small, sequence(0, func(a *wasm.Asm, _ uint32) { a.I32(0).Memory(wasm.OpMemoryGrow).Op(wasm.OpDrop) })},
		{"loads in a row", "bounds checks", []int{1_000, 10_000, 43_000}, sequence(0, func(a *wasm.Asm, _ uint32) {
			a.Index(wasm.OpLocalGet, 0).Access(wasm.OpI32Load, 0).Op(wasm.OpDrop)
		})},
		{"divisions in a row", "checks and fixed registers", []int{1_000, 20_000}, sequence(0, func(a *wasm.Asm, _ uint32) {
			a.Index(wasm.OpLocalGet, 0).Index(wasm.OpLocalGet, 0).Op(wasm.OpI32DivS, wasm.OpDrop)
		})},
		{"square roots that are stored", "a branch behind each, which the rewriter puts there", []int{500, 5_000, 40_000}, func(n int) []byte {
			m := wasmtest.Module{Memory: wasmtest.Pages(1), Funcs: []wasmtest.Func{{Type: wasmtest.Type("F:"), Code: times(n, func(a *wasm.Asm, _ uint32) {
				a.I32(0).Index(wasm.OpLocalGet, 0).Op(wasm.OpF64Sqrt).Access(wasm.OpF64Store, 0)
			})}}}
			return m.Bytes()
		}},
		{"operands that pile up", "registers", []int{1_000, 20_000}, func(n int) []byte {
			a := times(n, func(a *wasm.Asm, _ uint32) { a.Index(wasm.OpLocalGet, 0) })
			return function(0, asmAfter(a, times(n, func(a *wasm.Asm, _ uint32) { a.Op(wasm.OpDrop) })))
		}},
	}
}

// quantities are modules of many parts.
func quantities() []Load {
	return []Load{
		{"locals of many functions", "frames", []int{10, 1_000}, func(n int) []byte {
			m := wasmtest.Module{}
			for range n {
				m.Funcs = append(m.Funcs, wasmtest.Func{Type: wasmtest.Type(":"), Locals: []wasm.LocalGroup{{Count: 4_096, Type: wasm.I64}}, Code: asm()})
			}
			return m.Bytes()
		}},
		{"functions", "what each costs beside its code", []int{100, 10_000, 39_000, 41_000}, func(n int) []byte {
			m := wasmtest.Module{Funcs: make([]wasmtest.Func, n)}
			return m.Bytes()
		}},
		{"data segments", "allocations for each", []int{1_000, 100_000, 140_000}, func(n int) []byte {
			m := wasmtest.Module{Memory: wasmtest.Pages(1), Data: make([]wasmtest.Data, n)}
			return m.Bytes()
		}},
		{"element segments", "allocations for each", []int{100, 900, 2_000}, func(n int) []byte {
			m := wasmtest.Module{Table: wasmtest.Pages(1), Funcs: make([]wasmtest.Func, 1), Elements: make([]wasmtest.Element, n)}
			return m.Bytes()
		}},
		{"globals", "allocations for each", []int{100, 900, 100_000}, func(n int) []byte {
			m := wasmtest.Module{Globals: make([]wasmtest.Global, n)}
			for i := range m.Globals {
				m.Globals[i] = wasmtest.Global{Type: wasm.I64, Mutable: true}
			}
			return m.Bytes()
		}},
		{"types", "lookups by comparison", []int{100, 9_000, 100_000}, func(n int) []byte {
			m := wasmtest.Module{Types: make([]wasm.FuncType, n)}
			return m.Bytes()
		}},
		{"a custom section", "memory for what nobody reads", []int{1 << 10, 1 << 20, 40 << 20}, func(n int) []byte {
			m := wasmtest.Module{Customs: []wasmtest.Custom{{Name: "x", Body: strings.Repeat("x", n)}}}
			return m.Bytes()
		}},
	}
}
