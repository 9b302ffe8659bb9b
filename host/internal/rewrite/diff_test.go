package rewrite

import (
	"context"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/starling-host/starling/internal/treetest"
	"github.com/starling-host/starling/internal/wasm"
	"github.com/starling-host/starling/internal/wasmtest"
	"github.com/starling-host/starling/internal/work"
)

// observedCall is a call that a comparison makes.
type observedCall struct {
	name string
	args []uint64
}

// comparison holds the engines while many modules go through them.
type comparison struct{ compiler, interpreter, machine *observer }

func newComparison(t testing.TB) *comparison {
	return &comparison{newObserver(t, "compiler"), newObserver(t, "interpreter"), newObserver(t, "machine")}
}

// program is the subject of a comparison.
type program struct {
	metered  []byte // before it is metered
	original []byte
	calls    []observedCall
}

// generate returns the program of a seed. The two modules are the same bytes; or,
// more often, the original itself makes each NaN canonical, and the other leaves
// that to the rewriter.
func generate(seed []byte) program {
	h := fnv.New64a()
	h.Write(seed)
	r := rand.New(rand.NewPCG(h.Sum64(), 1))
	c := wasmtest.Config{Imports: observedImports[:r.IntN(len(observedImports)+1)], CanonicalNaNs: true}
	p := program{original: wasmtest.Generate(seed, c)}
	c.CanonicalNaNs = r.IntN(4) == 0
	p.metered = wasmtest.Generate(seed, c)
	p.calls = callsOf(p.metered, r)
	return p
}

// callsOf returns two calls of each exported function.
func callsOf(b []byte, r *rand.Rand) []observedCall {
	m, err := wasm.Decode(work.Trusted(context.Background()), b)
	if err != nil {
		return nil
	}
	var calls []observedCall
	for range 2 {
		for _, e := range m.Exports {
			if e.Kind != wasm.ExternFunc {
				continue
			}
			c := observedCall{name: e.Name}
			for _, t := range m.Types[m.FuncTypeIndex(int(e.Index))].Params {
				c.args = append(c.args, argument(t, r))
			}
			calls = append(calls, c)
		}
	}
	return calls
}

// argument returns a value of type t, often a small or an odd one.
func argument(t wasm.ValType, r *rand.Rand) uint64 {
	v := r.Uint64()
	if r.IntN(2) == 0 {
		v = uint64(int64(r.IntN(9) - 2))
		switch t {
		case wasm.F32:
			v = operands['f'][r.IntN(len(operands['f']))]
		case wasm.F64:
			v = operands['F'][r.IntN(len(operands['F']))]
		}
	}
	if t == wasm.I32 || t == wasm.F32 {
		v = uint64(uint32(v))
	}
	return v
}

// check compares everything observable of a program: metered on all engines, to
// the unit of fuel; and metered with original, up to where the budgets let the
// metered one go. The original runs on the interpreter, because the compiler has
// defects; only metering avoids one of them, see fusion. It returns the metered
// observation.
func (c *comparison) check(p program) (*observation, error) {
	res, err := Rewrite(work.Trusted(context.Background()), p.metered, DefaultLimits(), Options{MemoryPages: observedPages, Depth: observedDepth})
	if err != nil {
		return nil, err
	}
	seen, err := c.agree(p, res)
	if err != nil {
		return nil, err
	}
	return seen, seen.sameAs(c.interpreter, p)
}

// agree compares a metered program on all engines. The machine has no defect that is known.
func (c *comparison) agree(p program, res *Result) (*observation, error) {
	metered, err := c.compiler.metered(res, p.calls)
	if err != nil {
		return nil, fmt.Errorf("compiler, metered: %w", err)
	}
	interpreted, err := c.interpreter.metered(res, p.calls)
	if err != nil {
		return nil, fmt.Errorf("interpreter, metered: %w", err)
	}
	translated, err := c.machine.metered(res, p.calls)
	if err != nil {
		return nil, fmt.Errorf("machine, metered: %w", err)
	}
	if diff := cmp.Diff(interpreted, translated, cmp.AllowUnexported(observation{})); diff != "" {
		return nil, fmt.Errorf("metered (-interpreter +machine):\n%s", diff)
	}
	diff := cmp.Diff(metered, interpreted, cmp.AllowUnexported(observation{}))
	if diff != "" && !c.disagree(p, interpreted.cut) {
		return nil, fmt.Errorf("metered (-compiler +interpreter):\n%s", diff)
	}
	return interpreted, nil
}

// disagree reports whether the engines disagree about the original as well: then
// the program triggers a defect of wazero, which metering neither made nor hid.
func (c *comparison) disagree(p program, cut int) bool {
	until := cut
	if until < 0 {
		until = len(p.calls) + 1
	}
	compiled, err := c.compiler.original(p.original, p.calls, until)
	if err != nil {
		return false
	}
	interpreted, err := c.interpreter.original(p.original, p.calls, until)
	return err == nil && !cmp.Equal(compiled.seen, interpreted.seen)
}

// sameAs runs the original up to the call that a budget cut, and compares.
func (s *observation) sameAs(o *observer, p program) error {
	until := s.cut
	if until < 0 {
		until = len(p.calls) + 1
	}
	original, err := o.original(p.original, p.calls, until)
	if err != nil {
		return fmt.Errorf("original: %w", err)
	}
	want, got := original.seen, s.seen
	if s.cut >= 0 {
		got = got[:min(len(want), len(got))] // the rest has no counterpart
	}
	if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
		return fmt.Errorf("(-original +metered):\n%s", diff)
	}
	return nil
}

// randomSeed returns a seed for a module of some size, the same for the same n.
func randomSeed(n uint64) []byte {
	r := rand.New(rand.NewPCG(n, 2))
	seed := make([]byte, 50+r.IntN(1500))
	for i := range seed {
		seed[i] = byte(r.Uint32())
	}
	return seed
}

// TestDifferential sends random modules through the comparison.
func TestDifferential(t *testing.T) {
	n := treetest.Count(200, 300, 5_000)
	c := newComparison(t)
	calls, returned, cut := 0, 0, 0
	for i := range n {
		seen, err := c.check(generate(randomSeed(uint64(i))))
		if err != nil {
			t.Fatalf("seed %d: %v", i, err)
		}
		calls, returned = calls+len(seen.fuel), returned+seen.returned
		if seen.cut >= 0 {
			cut++
		}
	}
	t.Logf("%d modules, %d of %d calls return, %d modules meet a budget", n, returned, calls, cut)
	if returned < calls/2 {
		t.Errorf("only %d of %d calls return: most of the code is never reached", returned, calls)
	}
}

// FuzzDifferential is [TestDifferential] for the modules that a fuzzer thinks of.
func FuzzDifferential(f *testing.F) {
	for i := range uint64(50) {
		f.Add(randomSeed(i))
	}
	c := newComparison(f)
	f.Fuzz(func(t *testing.T, seed []byte) {
		if _, err := c.check(generate(seed)); err != nil {
			t.Fatal(err)
		}
	})
}
