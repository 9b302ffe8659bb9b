package rewrite

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/starling-host/starling/internal/wasm"
	"github.com/starling-host/starling/internal/wasmtest"
	"github.com/starling-host/starling/internal/work"
	"github.com/tetratelabs/wazero/api"
)

// TestIndexSmuggling has modules that are invalid as they come and would be
// valid once the rewriter has appended to the index spaces: some could give
// themselves fuel. Each must be refused by the gate, before the engine.
func TestIndexSmuggling(t *testing.T) {
	run := func(a *wasm.Asm) wasmtest.Module {
		return wasmtest.Module{Memory: wasmtest.Pages(1), Table: wasmtest.Pages(1), Funcs: []wasmtest.Func{{Export: "run", Code: a}}}
	}
	tests := []struct {
		name   string
		module wasmtest.Module
	}{
		{"writing the counter", run(code().I64(0).Index(wasm.OpGlobalSet, 0))},
		{"writing the limit", run(code().I64(-1).Index(wasm.OpGlobalSet, 1))},
		{"reading the depth", run(code().Index(wasm.OpGlobalGet, 2).Op(wasm.OpDrop))},
		{"calling a helper", run(code().I32(1).Index(wasm.OpCall, 3).Op(wasm.OpDrop))},
		{"a local that is not there", run(code().Index(wasm.OpLocalGet, 0).Op(wasm.OpDrop))},
		{"a call through an added type", run(code().I32(0).Index(wasm.OpCallIndirect, 1))},
		{"a block of an added type", run(code().Block(wasm.OpBlock, 1).Op(wasm.OpEnd))},
		{"a branch around the epilogue", run(code().Index(wasm.OpBr, 1))},
		{"a branch of a table around the epilogue", run(code().I32(0).BrTable(0, 1))},
		{"an export of the counter", wasmtest.Module{Exports: []wasmtest.Export{{Name: "g", Kind: wasm.ExternGlobal}}}},
		{"an export of the refill function", wasmtest.Module{Exports: []wasmtest.Export{{Name: "f", Kind: wasm.ExternFunc}}}},
		{"an export of a table that is not there", wasmtest.Module{Exports: []wasmtest.Export{{Name: "t", Kind: wasm.ExternTable}}}},
		{"a helper in the table", wasmtest.Module{Memory: wasmtest.Pages(1), Table: wasmtest.Pages(4),
			Elements: []wasmtest.Element{{Funcs: []uint32{0}}}}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := Rewrite(work.Trusted(context.Background()), tt.module.Bytes(), DefaultLimits(), Options{})
			var r *Refusal
			if !errors.As(err, &r) || !strings.Contains(r.What, "index") {
				t.Errorf("got %v, want a refusal of an index", err)
			}
		})
	}
}

// TestDepthIsGivenBack leaves functions in every possible way, many times: in
// the end the whole budget must be available again.
func TestDepthIsGivenBack(t *testing.T) {
	get := func() *wasm.Asm { return code().Index(wasm.OpCall, 0).Op(wasm.OpDrop) } // no leaf any more
	intBlock := wasm.BlockOf(wasm.I32)
	ways := []wasmtest.Func{
		{Type: wasmtest.Type("i:i"), Code: get().Index(wasm.OpLocalGet, 0).Block(wasm.OpIf, wasm.BlockEmpty).I32(1).Op(wasm.OpReturn, wasm.OpEnd).I32(2)},
		{Type: wasmtest.Type("i:i"), Code: get().Block(wasm.OpBlock, wasm.BlockEmpty).Block(wasm.OpLoop, wasm.BlockEmpty).I32(7).Index(wasm.OpBr, 2).Op(wasm.OpEnd, wasm.OpEnd).I32(9)},
		{Type: wasmtest.Type("i:i"), Code: get().I32(5).Index(wasm.OpLocalGet, 0).Index(wasm.OpBrIf, 0).Op(wasm.OpDrop).I32(6)},
		{Type: wasmtest.Type("i:i"), Code: get().Block(wasm.OpBlock, intBlock).I32(3).Index(wasm.OpLocalGet, 0).BrTable(0, 1, 1).Op(wasm.OpEnd)},
		{Type: wasmtest.Type("i:i"), Code: get().I32(1).I32(2).Op(wasm.OpReturn)},
		{Type: wasmtest.Type("i:i"), Code: get().I32(3).I32(0).Op(wasm.OpReturn, wasm.OpUnreachable)},
		{Type: wasmtest.Type("i:iI"), Code: get().Index(wasm.OpLocalGet, 0).Block(wasm.OpIf, wasm.BlockEmpty).I32(1).I64(2).Op(wasm.OpReturn, wasm.OpEnd).I32(3).I64(4)},
	}
	loop := code().Block(wasm.OpLoop, wasm.BlockEmpty)
	for i := range ways {
		loop.Index(wasm.OpLocalGet, 0).I32(1).Op(wasm.OpI32And).Index(wasm.OpCall, uint32(i+1))
		if len(ways[i].Type.Results) == 2 {
			loop.Op(wasm.OpDrop)
		}
		loop.Index(wasm.OpLocalGet, 1).Op(wasm.OpI32Add).Index(wasm.OpLocalSet, 1)
	}
	loop.Index(wasm.OpLocalGet, 0).I32(1).Op(wasm.OpI32Sub).Index(wasm.OpLocalTee, 0).Index(wasm.OpBrIf, 0).Op(wasm.OpEnd).Index(wasm.OpLocalGet, 1)
	m := wasmtest.Module{Funcs: append([]wasmtest.Func{{Type: wasmtest.Type(":i"), Code: code().I32(1)}}, ways...)}
	m.Funcs = append(m.Funcs, wasmtest.Func{Export: "run", Type: wasmtest.Type("i:i"), Locals: []wasm.LocalGroup{{Count: 1, Type: wasm.I32}}, Code: loop})
	metered := mustRewrite(t, m.Bytes(), Options{})
	for engine := range engines {
		g := start(t, engine, metered)
		_, err := g.call("run", 1000)
		if err != nil {
			t.Fatalf("%s: %v", engine, err)
		}
		if d := g.depth.Get(); d != DefaultDepth {
			t.Errorf("%s: depth %d, want %d", engine, d, DefaultDepth)
		}
	}
}

// TestDepthOverflow: endless recursion ends at the same frame everywhere, with
// a state that tells it from other traps.
func TestDepthOverflow(t *testing.T) {
	m := wasmtest.Module{
		Globals: []wasmtest.Global{{Type: wasm.I32, Mutable: true}},
		Exports: []wasmtest.Export{{Name: "frames", Kind: wasm.ExternGlobal}},
		Funcs: []wasmtest.Func{{Export: "run", Code: code().
			Index(wasm.OpGlobalGet, 0).I32(1).Op(wasm.OpI32Add).Index(wasm.OpGlobalSet, 0).Index(wasm.OpCall, 0)}},
	}
	// slots of a frame: 16, no locals, operands at most 2
	metered := mustRewrite(t, m.Bytes(), Options{Depth: 18_000})
	for engine := range engines {
		g := start(t, engine, metered)
		if _, err := g.call("run"); err == nil {
			t.Fatalf("%s: endless recursion returned", engine)
		}
		if frames := g.ExportedGlobal("frames").Get(); frames != 1000 || int32(g.depth.Get()) != -18 {
			t.Errorf("%s: %d frames, depth %d", engine, frames, int32(g.depth.Get()))
		}
	}
}

// TestStartIsMoved: a start function that never ends must not run while the
// engine instantiates, when it has no budget yet.
func TestStartIsMoved(t *testing.T) {
	m := wasmtest.Module{Start: new(uint32), Funcs: []wasmtest.Func{{Code: code().Block(wasm.OpLoop, wasm.BlockEmpty).Index(wasm.OpBr, 0).Op(wasm.OpEnd)}}}
	g := start(t, "compiler", mustRewrite(t, m.Bytes(), Options{}))
	g.limit.Set(1000)
	if _, err := g.call(ExportStart); !errors.Is(err, errStopped) {
		t.Errorf("got %v, want the refill function's panic", err)
	}
}

// TestMemoryLimit: the maximum in the module is the lower of the two, and a
// module that needs more at once is refused.
func TestMemoryLimit(t *testing.T) {
	tests := []struct {
		name     string
		declared wasm.Limits
		option   uint32
		want     uint32 // 0: refused
	}{
		{"none declared", wasm.Limits{Min: 1}, 10, 10},
		{"a lower one declared", wasm.Limits{Min: 1, Max: 4, HasMax: true}, 10, 4},
		{"a higher one declared", wasm.Limits{Min: 1, Max: 40, HasMax: true}, 10, 10},
		{"the default", wasm.Limits{Min: 1}, 0, DefaultMemoryPages},
		{"more at start than allowed", wasm.Limits{Min: 11}, 10, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			m := wasmtest.Module{Memory: &tt.declared}
			res, err := Rewrite(work.Trusted(context.Background()), m.Bytes(), DefaultLimits(), Options{MemoryPages: tt.option})
			var r *Refusal
			if errors.As(err, &r) && tt.want == 0 {
				if r.Value != 11 || r.Limit != 10 {
					t.Errorf("got %+v", r)
				}
				return
			}
			out, err := wasm.Decode(work.Trusted(context.Background()), res.Wasm)
			if err != nil || out.Memories[0] != (wasm.Limits{Min: 1, Max: tt.want, HasMax: true}) {
				t.Errorf("got %+v, %v", out.Memories, err)
			}
		})
	}
}

// TestBulkOperations compares fill and copy in pieces with the instruction
// itself, at sizes around the piece, overlapping both ways, and out of bounds.
func TestBulkOperations(t *testing.T) {
	args := func(op wasm.Op) *wasm.Asm {
		return code().Index(wasm.OpLocalGet, 0).Index(wasm.OpLocalGet, 1).Index(wasm.OpLocalGet, 2).Memory(op)
	}
	m := wasmtest.Module{
		Memory:  wasmtest.Pages(64),
		Exports: []wasmtest.Export{{Name: "memory", Kind: wasm.ExternMemory}},
		Funcs: []wasmtest.Func{
			{Export: "fill", Type: wasmtest.Type("iii:"), Code: args(wasm.OpMemoryFill)},
			{Export: "copy", Type: wasmtest.Type("iii:"), Code: args(wasm.OpMemoryCopy)},
		},
	}
	const size = 64 * wasm.PageSize
	plain := startPlain(t, m.Bytes())
	metered := start(t, "compiler", mustRewrite(t, m.Bytes(), Options{}))
	for i := range uint32(size / 4) {
		plain.Memory().WriteUint32Le(4*i, i*2654435761)
		metered.Memory().WriteUint32Le(4*i, i*2654435761)
	}
	for _, c := range []struct {
		f       string
		d, s, n uint64
	}{
		{"fill", 10, 0x1ff, 0}, {"fill", size, 1, 0}, {"fill", size + 1, 1, 0}, {"fill", 3, 7, 1 << 20}, {"fill", 5, 8, 1<<20 + 1},
		{"fill", 1, 9, 3<<20 - 1}, {"fill", size - 5, 2, 6}, {"fill", 0, 2, 1<<32 - 1}, {"fill", 1<<32 - 1, 2, 2},
		{"copy", 0, 100, 3 << 20}, {"copy", 100, 0, 3 << 20}, {"copy", 7, 7, 2<<20 + 5}, {"copy", 1 << 20, 0, 3 << 20}, {"copy", 0, 1<<20 + 1, 2<<20 + 9},
		{"copy", 0, size - 5, 6}, {"copy", size - 5, 0, 6}, {"copy", size, size, 0}, {"copy", 0, size + 1, 0}, {"copy", 0, 1, 1<<32 - 1},
	} {
		_, errPlain := plain.ExportedFunction(c.f).Call(t.Context(), c.d, c.s, c.n)
		_, errMetered := metered.call(c.f, c.d, c.s, c.n)
		if (errPlain == nil) != (errMetered == nil) {
			t.Errorf("%+v: original %v, metered %v", c, errPlain, errMetered)
		}
		if !bytes.Equal(contents(plain), contents(metered)) {
			t.Fatalf("%+v: memory differs", c)
		}
	}
}

func contents(m api.Module) []byte {
	b, _ := m.Memory().Read(0, m.Memory().Size())
	return b
}

// TestNothingRunsLongUnchecked measures the largest cost between two checks, in
// the hardest shapes: many calls of a leaf in a row, straight lines, arms with
// and without a check, and functions that return to one another and spend on the
// way.
func TestNothingRunsLongUnchecked(t *testing.T) {
	line := func(units int) *wasm.Asm {
		a := code()
		for range units / 2 {
			a.I32(0).Op(wasm.OpDrop)
		}
		return a
	}
	leaf := wasmtest.Func{Code: line(leafCost - costEntry)}
	manyCalls := code()
	for range 60_000 {
		manyCalls.Index(wasm.OpCall, 0)
	}
	arms := code()
	for range 300 { // the arm that is not taken has every check, were they put by position
		asmAfter(arms, line(leafCost*10)).I32(0).Block(wasm.OpIf, wasm.BlockEmpty)
		asmAfter(arms, line(2000)).Op(wasm.OpEnd)
	}
	down := asmAfter(code().
		Index(wasm.OpLocalGet, 0).Op(wasm.OpI32Eqz).Block(wasm.OpIf, wasm.BlockEmpty).Op(wasm.OpReturn, wasm.OpEnd).
		Index(wasm.OpLocalGet, 0).I32(1).Op(wasm.OpI32Sub).Index(wasm.OpCall, 0), line(200_000))
	returning := asmAfter(code().
		Index(wasm.OpLocalGet, 0).Op(wasm.OpI32Eqz).Block(wasm.OpIf, wasm.BlockEmpty).Op(wasm.OpReturn, wasm.OpEnd).
		Index(wasm.OpLocalGet, 0).I32(1).Op(wasm.OpI32Sub).Index(wasm.OpCall, 0), line(afterCall-4))
	tests := []struct {
		name  string
		funcs []wasmtest.Func
		arg   uint64
		most  uint64
	}{
		{"leaves", []wasmtest.Func{leaf, {Export: "run", Type: wasmtest.Type("i:"), Code: manyCalls}}, 0, checkEvery + leafCost + costCall},
		{"a straight line", []wasmtest.Func{{Export: "run", Type: wasmtest.Type("i:"), Code: line(250_000)}}, 0, checkEvery + 1},
		{"arms", []wasmtest.Func{{Export: "run", Type: wasmtest.Type("i:"), Code: arms}}, 0, checkEvery + 1},
		{"long returns", []wasmtest.Func{{Export: "run", Type: wasmtest.Type("i:"), Code: down}}, 100, checkEvery + 100*afterCall},
		{"short returns", []wasmtest.Func{{Export: "run", Type: wasmtest.Type("i:"), Code: returning}}, 1900, checkEvery + DefaultDepth},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			m := wasmtest.Module{Funcs: tt.funcs}
			l := DefaultLimits()
			l.BodyBytes, l.FunctionCost, l.ModuleCost = 64<<20, 1<<40, 1<<40 // what no limit stops
			res, err := Rewrite(work.Trusted(context.Background()), m.Bytes(), l, Options{})
			if err != nil {
				t.Fatal(err)
			}
			g := start(t, "compiler", res)
			var last, most uint64
			g.limit.Set(0) // every check calls
			g.refill = func(g *guest) {
				used := g.fuel.Get()
				if used <= last {
					t.Fatalf("two checks see %d and %d", last, used)
				}
				most, last = max(most, used-last), used
			}
			if _, err := g.call("run", tt.arg); err != nil {
				t.Fatal(err)
			}
			most = max(most, g.fuel.Get()-last)
			if most > tt.most {
				t.Errorf("%d units between two checks, want at most %d", most, tt.most)
			}
			t.Logf("%d units between two checks, %d in all", most, g.fuel.Get())
		})
	}
}
