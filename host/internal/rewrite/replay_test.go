package rewrite

import (
	"context"
	"crypto/sha256"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/starling-host/starling/internal/wasm"
	"github.com/starling-host/starling/internal/wasmtest"
	"github.com/starling-host/starling/internal/work"
	"pgregory.net/rapid"
)

// state is everything about a guest that an execution determines.
type state struct {
	Fuel, Depth uint64
	Pages       uint32
	Memory      [32]byte
	Results     []uint64
	Stopped     bool
}

// observe calls run and returns the state that it leaves.
func observe(t testing.TB, g *guest, arg uint64) state {
	t.Helper()
	results, err := g.call("run", arg)
	if err != nil && !errors.Is(err, errStopped) {
		t.Fatal(err)
	}
	s := state{Fuel: g.fuel.Get(), Depth: uint64(uint32(g.depth.Get())), Stopped: err != nil}
	for _, r := range results {
		s.Results = append(s.Results, uint64(uint32(r)))
	}
	if m := g.Memory(); m != nil {
		s.Pages, s.Memory = m.Size()/wasm.PageSize, sha256.Sum256(contents(g))
	}
	return s
}

// initialized starts a Go guest.
func initialized(t testing.TB, engine string, metered *Result) *guest {
	t.Helper()
	g := start(t, engine, metered)
	if _, err := g.call("_initialize"); err != nil {
		t.Fatal(err)
	}
	return g
}

// TestEnginesAgree runs a real Go program, with its runtime, garbage collector
// and JSON: fuel, depth, results and all of memory are the same in both engines,
// and the results equal the original's.
func TestEnginesAgree(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIPPED in short mode: compiles a Go program several times")
	}
	module := goGuest(t)
	metered := mustRewrite(t, module, Options{})
	compiled := observe(t, initialized(t, "compiler", metered), 20)
	interpreted := observe(t, initialized(t, "interpreter", metered), 20)
	if diff := cmp.Diff(compiled, interpreted); diff != "" {
		t.Errorf("compiler and interpreter differ:\n%s", diff)
	}
	if compiled.Depth != DefaultDepth {
		t.Errorf("depth %d is left of %d", compiled.Depth, DefaultDepth)
	}
	plain := startPlain(t, module)
	if _, err := plain.ExportedFunction("_initialize").Call(context.Background()); err != nil {
		t.Fatal(err)
	}
	want, err := plain.ExportedFunction("run").Call(context.Background(), 20)
	if err != nil || uint64(uint32(want[0])) != compiled.Results[0] {
		t.Errorf("metered result %v, original %v, %v", compiled.Results, want, err)
	}
}

// TestKillReplays stops a Go program at arbitrary checks, as a deadline would,
// and replays each stop with the limit one below the recorded counter: the same
// check stops it, in the other engine too, with the same memory.
func TestKillReplays(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIPPED in short mode: compiles a Go program several times")
	}
	metered := mustRewrite(t, goGuest(t), Options{})
	for i, slices := range []int{1, 7, 40} {
		live := initialized(t, "compiler", metered)
		live.limit.Set(0)
		left := slices
		live.refill = func(g *guest) {
			if left--; left == 0 {
				panic(errStopped)
			}
			g.limit.Set(g.fuel.Get() + 9_973) // slices are the host's own business
		}
		recorded := observe(t, live, 1000)
		if !recorded.Stopped {
			t.Fatal("the guest ended before it was stopped")
		}
		engine := []string{"interpreter", "compiler"}[i%2]
		again := initialized(t, engine, metered)
		again.limit.Set(recorded.Fuel - 1)
		if diff := cmp.Diff(recorded, observe(t, again, 1000)); diff != "" {
			t.Errorf("stop after %d slices, replayed on the %s:\n%s", slices, engine, diff)
		}
	}
}

// TestEachCheckHasItsOwnCounter: in random programs no two checks see the same
// value, so a counter names a check.
func TestEachCheckHasItsOwnCounter(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := drawProgram(t)
		m := wasmtest.Module{Memory: wasmtest.Pages(1)}
		for i, f := range p {
			a := f.assemble()
			a.I32(0).I32(0).I32(0).Memory(wasm.OpMemoryFill) // two checks in a row
			a.I32(0).I32(0).I32(0).Memory(wasm.OpMemoryCopy)
			export := ""
			if i == 0 {
				export = "run"
			}
			m.Funcs = append(m.Funcs, wasmtest.Func{Export: export, Type: wasmtest.Type("i:"), Code: a})
		}
		res, err := Rewrite(work.Trusted(context.Background()), m.Bytes(), DefaultLimits(), Options{})
		if err != nil {
			t.Fatal(err)
		}
		var seen []uint64
		runOnce(t, "interpreter", res, 5, func(g *guest) {
			seen = append(seen, g.fuel.Get())
			if len(seen) == 500 {
				panic(errStopped)
			}
		})
		for i := 1; i < len(seen); i++ {
			if seen[i] <= seen[i-1] {
				t.Fatalf("two checks in a row see %d and %d", seen[i-1], seen[i])
			}
		}
	})
}

// fuelOf runs a module with endless fuel and returns the counter.
func fuelOf(t *rapid.T, engine string, metered *Result, arg int32) uint64 {
	return runOnce(t, engine, metered, arg, func(g *guest) { g.limit.Set(1 << 62) })
}

// runOnce runs a module in an instance of its own, whose limit is 0 at first,
// and returns the counter.
func runOnce(t *rapid.T, engine string, metered *Result, arg int32, refill func(*guest)) uint64 {
	ctx := context.Background()
	g := &guest{refill: refill}
	r, err := bareRuntime(engines[engine], &g)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close(ctx)
	m, err := instantiate(ctx, r, metered)
	if err != nil {
		t.Fatal(err)
	}
	g.attach(m)
	if _, err := g.call("run", uint64(uint32(arg))); err != nil && !errors.Is(err, errStopped) {
		t.Fatal(err)
	}
	return g.fuel.Get()
}
