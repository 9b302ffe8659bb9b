package rewrite

import (
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/starling-host/starling/host/wasm"
	"github.com/starling-host/starling/host/wasm/wasmgen"
)

// observedCall is a call that a comparison makes.
type observedCall struct {
	name string
	args []uint64
}

// comparison holds the two engines while many modules go through them.
type comparison struct{ compiler, interpreter *observer }

func newComparison(t testing.TB) *comparison {
	return &comparison{newObserver(t, "compiler"), newObserver(t, "interpreter")}
}

// generate returns the module of a seed, what it may compute with, and the calls
// to make.
func generate(seed []byte) ([]byte, wasmgen.NaNs, []observedCall) {
	h := fnv.New64a()
	h.Write(seed)
	r := rand.New(rand.NewPCG(h.Sum64(), 1))
	nans := wasmgen.NaNs(r.IntN(3))
	b := wasmgen.Module(seed, wasmgen.Config{NaNs: nans, Imports: observedImports[:r.IntN(len(observedImports)+1)]})
	return b, nans, callsOf(b, r)
}

// callsOf returns two calls of each exported function.
func callsOf(b []byte, r *rand.Rand) []observedCall {
	m, err := wasm.Decode(b)
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

// check compares everything that can be seen of a module: metered on both
// engines, to the bit and to the unit of fuel; and metered with original, as far
// as the budgets let the metered one go. It returns the metered observation.
func (c *comparison) check(b []byte, nans wasmgen.NaNs, calls []observedCall) (*observation, error) {
	res, err := Rewrite(b, DefaultLimits(), Options{MemoryPages: observedPages, Depth: observedDepth})
	if err != nil {
		return nil, err
	}
	metered, err := c.compiler.metered(res, calls)
	if err != nil {
		return nil, fmt.Errorf("compiler, metered: %w", err)
	}
	interpreted, err := c.interpreter.metered(res, calls)
	if err != nil {
		return nil, fmt.Errorf("interpreter, metered: %w", err)
	}
	if diff := cmp.Diff(metered, interpreted, cmp.AllowUnexported(observation{})); diff != "" {
		return nil, fmt.Errorf("metered (-compiler +interpreter):\n%s", diff)
	}
	if nans == wasmgen.NaNsFree {
		return metered, nil // the bits of NaNs are not the same on the original
	}
	for engine, o := range map[string]*observer{"compiler": c.compiler, "interpreter": c.interpreter} {
		if err := metered.sameAs(o, b, nans, calls); err != nil {
			return nil, fmt.Errorf("%s: %w", engine, err)
		}
	}
	return metered, nil
}

// sameAs runs the original up to the call that a budget cut, and compares.
func (s *observation) sameAs(o *observer, b []byte, nans wasmgen.NaNs, calls []observedCall) error {
	until := s.cut
	if until < 0 {
		until = len(calls) + 1
	}
	original, err := o.original(b, calls, until)
	if err != nil {
		return fmt.Errorf("original: %w", err)
	}
	want, got := original.exact, s.exact
	if nans == wasmgen.NaNsHidden {
		want, got = original.alike, s.alike
	}
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
	n := 2000
	if testing.Short() {
		n = 200
	}
	c := newComparison(t)
	calls, returned, cut := 0, 0, 0
	for i := range n {
		b, nans, list := generate(randomSeed(uint64(i)))
		seen, err := c.check(b, nans, list)
		if err != nil {
			t.Fatalf("seed %d, NaNs %d: %v", i, nans, err)
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
		b, nans, calls := generate(seed)
		if _, err := c.check(b, nans, calls); err != nil {
			t.Fatalf("NaNs %d: %v", nans, err)
		}
	})
}
