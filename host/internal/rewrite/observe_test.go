package rewrite

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"strings"
	"testing"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"

	"github.com/starling-host/starling/internal/wasmtest"
)

// The budgets of an observed guest. The depth keeps every call stack below the
// 2,000 frames that wazero's interpreter has.
const (
	observedFuel  = 100_000 // of one call
	observedDepth = 20_000
	observedPages = 16
)

// observedImports are the imports that observed guests may have: results and
// parameters of every kind that the contract and WASI have.
var observedImports = []wasmtest.Import{
	{Module: "starling:v1", Name: "random", Type: wasmtest.Type(":I")},
	{Module: "wasi_snapshot_preview1", Name: "sched_yield", Type: wasmtest.Type(":i")},
	{Module: "wasi_snapshot_preview1", Name: "clock_time_get", Type: wasmtest.Type("iIi:i")},
}

// observer runs modules on one engine, one after the other, and records
// everything observable.
type observer struct {
	r   wazero.Runtime
	now *guest
	out *observation
}

// observation is everything observable in a run of a module.
type observation struct {
	seen []string // how each call ended, and each import call; then globals and memory
	fuel []uint64 // of each call, the start function's first; empty of an original

	returned int    // calls
	answers  uint64 // that the host has given
	cut      int    // the first call that a budget ended; -1 if none was
}

func newObserver(t testing.TB, engine string) *observer {
	t.Helper()
	return newObserverOf(t, engine, observedImports)
}

// newObserverOf is newObserver for guests that may import these.
func newObserverOf(t testing.TB, engine string, imports []wasmtest.Import) *observer {
	t.Helper()
	o := &observer{}
	ctx := context.Background()
	config := func() wazero.RuntimeConfig { return engines[engine]().WithMemoryLimitPages(observedPages) }
	r, err := bareRuntime(config, &o.now)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close(ctx) })
	hosts := map[string]wazero.HostModuleBuilder{}
	for _, im := range imports {
		if hosts[im.Module] == nil {
			hosts[im.Module] = r.NewHostModuleBuilder(im.Module)
		}
		params := apiTypes(im.Type.Params)
		answer := func(_ context.Context, stack []uint64) {
			if v := o.answer(im.Name, params, stack); len(stack) > 0 {
				stack[0] = v
			}
		}
		hosts[im.Module].NewFunctionBuilder().
			WithGoFunction(api.GoFunc(answer), params, apiTypes(im.Type.Results)).Export(im.Name)
	}
	for _, h := range hosts {
		if _, err := h.Instantiate(ctx); err != nil {
			t.Fatal(err)
		}
	}
	o.r = r
	return o
}

// answer is the host's side of a call: it records the arguments and answers
// with a number that depends on how many answers it has given.
func (o *observer) answer(name string, params []api.ValueType, args []uint64) uint64 {
	o.out.add("import "+name, params, args[:len(params)])
	o.out.answers++
	return uint64(uint32(o.out.answers * 0x9e3779b9))
}

// add records values of the given types.
func (s *observation) add(what string, types []api.ValueType, values []uint64) {
	for i, t := range types {
		v := values[i]
		if t == api.ValueTypeI32 || t == api.ValueTypeF32 {
			v = uint64(uint32(v)) // the upper half is garbage
		}
		what += fmt.Sprintf(" %#x", v)
	}
	s.seen = append(s.seen, what)
}

// original runs a module as it came. It makes the calls before number until; the
// start function is call 0.
func (o *observer) original(b []byte, calls []observedCall, until int) (*observation, error) {
	o.now, o.out = nil, &observation{cut: -1}
	ctx := context.Background()
	if until == 0 {
		return o.out, nil
	}
	compiled, err := o.r.CompileModule(ctx, b)
	if err != nil {
		return nil, err
	}
	defer compiled.Close(ctx)
	m, err := o.r.InstantiateModule(ctx, compiled, wazero.NewModuleConfig().WithName("").WithStartFunctions())
	o.out.ended("start", nil, nil, err)
	if err != nil {
		return o.out, nil
	}
	defer m.Close(ctx)
	for i, c := range calls {
		if i+1 == until {
			return o.out, nil
		}
		f := m.ExportedFunction(c.name)
		results, err := f.Call(ctx, c.args...)
		o.out.ended(c.name, resultTypes(f), results, err)
	}
	o.out.state(m)
	return o.out, nil
}

// metered runs a rewritten module. Its start function is call 0.
func (o *observer) metered(res *Result, calls []observedCall) (*observation, error) {
	o.now, o.out = &guest{}, &observation{cut: -1}
	ctx := context.Background()
	m, err := instantiate(ctx, o.r, res)
	if err != nil {
		return nil, err
	}
	defer m.Close(ctx)
	o.now.attach(m)
	if err := o.now.observe(o.out, "start", m.ExportedFunction(ExportStart), nil); err != nil {
		return o.out, nil // there is no instance when the start function fails
	}
	for _, c := range calls {
		o.now.observe(o.out, c.name, m.ExportedFunction(c.name), c.args)
	}
	o.out.state(m)
	return o.out, nil
}

// observe makes one call with fresh budgets. A missing function, as a start
// function may be, does nothing.
func (g *guest) observe(out *observation, name string, f api.Function, args []uint64) error {
	g.fuel.Set(0)
	g.limit.Set(observedFuel)
	g.depth.Set(observedDepth)
	var results []uint64
	var err error
	if f != nil {
		results, err = f.Call(context.Background(), args...)
	}
	out.fuel = append(out.fuel, g.fuel.Get())
	if overflow := int32(g.depth.Get()) < 0; !overflow && !errors.Is(err, errStopped) {
		out.ended(name, resultTypes(f), results, err)
		return err
	} else if out.cut < 0 {
		out.cut = len(out.fuel) - 1
	}
	out.add(fmt.Sprintf("%s: out of fuel or depth, %d slots left", name, int32(g.depth.Get())), nil, nil)
	return err
}

// resultTypes returns the types of a function's results.
func resultTypes(f api.Function) []api.ValueType {
	if f == nil {
		return nil
	}
	return f.Definition().ResultTypes()
}

// ended records how a call ended.
func (s *observation) ended(name string, types []api.ValueType, results []uint64, err error) {
	if err != nil {
		s.add(name+": "+trapText(err), nil, nil)
		return
	}
	s.returned++
	s.add(name+" returns", types, results)
}

// trapText is the engine's name of a trap: the first line of its error, without
// what may stand before the name.
func trapText(err error) string {
	text, _, _ := strings.Cut(err.Error(), "\n")
	if _, name, ok := strings.Cut(text, "wasm error: "); ok {
		return name
	}
	return text
}

// state records globals and memory, under wasmtest's names.
func (s *observation) state(m api.Module) {
	for i := 0; ; i++ {
		g := m.ExportedGlobal(fmt.Sprintf("g%d", i))
		if g == nil {
			break
		}
		s.add(fmt.Sprintf("g%d", i), []api.ValueType{g.Type()}, []uint64{g.Get()})
	}
	if mem := m.ExportedMemory("memory"); mem != nil {
		b, _ := mem.Read(0, mem.Size())
		h := fnv.New64a()
		h.Write(b)
		s.add(fmt.Sprintf("memory of %d bytes: %x", len(b), h.Sum(nil)), nil, nil)
	}
}
