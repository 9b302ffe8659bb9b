package rewrite

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/starling-host/starling/abi"
	"github.com/starling-host/starling/internal/work"
	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/imports/wasi_snapshot_preview1"
)

// errStopped is the error with which the refill function of a test guest
// panics when the host ends it.
var errStopped = errors.New("stopped by refill")

// engines are the implementations that must agree.
var engines = map[string]func() wazero.RuntimeConfig{
	"compiler":    wazero.NewRuntimeConfigCompiler,
	"interpreter": wazero.NewRuntimeConfigInterpreter,
	"machine":     func() wazero.RuntimeConfig { return machineConfig{wazero.NewRuntimeConfig()} },
}

// guest is an instance of a rewritten module.
type guest struct {
	api.Module
	fuel, limit, depth api.MutableGlobal
	refill             func(*guest) // called by the guest
}

// newRuntime returns a runtime that offers refill, WASI with clocks and
// randomness that repeat, and the contract's imports as functions that return
// zero.
func newRuntime(t testing.TB, config func() wazero.RuntimeConfig, current **guest) wazero.Runtime {
	t.Helper()
	ctx := context.Background()
	r, err := bareRuntime(config, current)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close(ctx) })
	wasi_snapshot_preview1.MustInstantiate(ctx, r)
	contract := r.NewHostModuleBuilder(abi.Version)
	for name := range imports[abi.Version] {
		im, _ := ImportType(abi.Version, name)
		contract.NewFunctionBuilder().
			WithGoFunction(api.GoFunc(zeroResult), apiTypes(im.Params), apiTypes(im.Results)).Export(name)
	}
	if _, err := contract.Instantiate(ctx); err != nil {
		t.Fatal(err)
	}
	return r
}

// bareRuntime returns a runtime that offers only refill. The calling guest is
// the one that current points to at that time.
func bareRuntime(config func() wazero.RuntimeConfig, current **guest) (wazero.Runtime, error) {
	ctx := context.Background()
	c := config()
	m, machine := c.(machineConfig)
	if machine {
		c = m.RuntimeConfig
	}
	r := wazero.NewRuntimeWithConfig(ctx, c.WithCoreFeatures(api.CoreFeaturesV2))
	_, err := r.NewHostModuleBuilder(RefillModule).NewFunctionBuilder().
		WithGoFunction(api.GoFunc(func(context.Context, []uint64) {
			if g := *current; g != nil && g.refill != nil {
				g.refill(g)
				return
			}
			panic(errStopped)
		}), nil, nil).Export(RefillName).Instantiate(ctx)
	if machine {
		return machineRuntime{r}, err
	}
	return r, err
}

func zeroResult(_ context.Context, stack []uint64) {
	if len(stack) > 0 {
		stack[0] = 0
	}
}

func apiTypes[T ~byte](ts []T) []api.ValueType {
	out := make([]api.ValueType, len(ts))
	for i, t := range ts {
		out[i] = api.ValueType(t)
	}
	return out
}

// start instantiates a rewritten module with endless fuel.
func start(t testing.TB, engine string, metered *Result) *guest {
	t.Helper()
	ctx := context.Background()
	g := &guest{}
	r := newRuntime(t, engines[engine], &g)
	m, err := instantiate(ctx, r, metered)
	if err != nil {
		t.Fatalf("%s: %v", engine, err)
	}
	g.attach(m)
	g.limit.Set(1 << 62)
	return g
}

// instantiate makes an instance the way a host does: the engine's part, then
// the first contents of memory.
func instantiate(ctx context.Context, r wazero.Runtime, metered *Result) (api.Module, error) {
	var m api.Module
	var err error
	if on, ok := r.(machineRuntime); ok && metered.CostTable > 0 {
		m, err = on.instantiate(ctx, metered.Wasm)
	} else {
		m, err = r.InstantiateWithConfig(ctx, metered.Wasm, wazero.NewModuleConfig().WithName("").WithStartFunctions())
	}
	if err != nil {
		return nil, err
	}
	for _, d := range metered.Data {
		if len(d.Bytes) > 0 && !m.Memory().Write(d.Offset, d.Bytes) {
			return nil, fmt.Errorf("a segment at %#x is out of bounds", d.Offset)
		}
	}
	return m, nil
}

// attach makes g the guest in instance m.
func (g *guest) attach(m api.Module) {
	g.Module = m
	g.fuel = m.ExportedGlobal(GlobalFuel).(api.MutableGlobal)
	g.limit = m.ExportedGlobal(GlobalLimit).(api.MutableGlobal)
	g.depth = m.ExportedGlobal(GlobalDepth).(api.MutableGlobal)
}

// call calls an export from a counter of zero.
func (g *guest) call(name string, args ...uint64) ([]uint64, error) {
	g.fuel.Set(0)
	return g.ExportedFunction(name).Call(context.Background(), args...)
}

// mustRewrite rewrites with the defaults.
func mustRewrite(t testing.TB, b []byte, o Options) *Result {
	t.Helper()
	res, err := Rewrite(work.Trusted(context.Background()), b, DefaultLimits(), o)
	if err != nil {
		t.Fatal(err)
	}
	return res
}

// startPlain instantiates a module unchanged.
func startPlain(t testing.TB, wasmBytes []byte) api.Module {
	t.Helper()
	var none *guest
	r := newRuntime(t, engines["compiler"], &none)
	m, err := r.InstantiateWithConfig(context.Background(), wasmBytes, wazero.NewModuleConfig().WithName("").WithStartFunctions())
	if err != nil {
		t.Fatal(err)
	}
	return m
}
