//go:build !js

package sandbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"reflect"
	"slices"
	"syscall"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/experimental"

	"github.com/starling-host/starling/abi"
	"github.com/starling-host/starling/host/internal/rewrite"
	"github.com/starling-host/starling/internal/wasm"
)

// features are the accepted features of WebAssembly: version 2.0 without
// vector instructions, whose NaN results differ between processors. The gate
// in host/internal/rewrite refuses more.
const features = api.CoreFeaturesV2 &^ api.CoreFeatureSIMD

// explained: the engine reports the kind of each trap.
const explained = false

// engineWorks reports whether there is an engine for this machine. wazero panics when its
// compiler does not support it.
func engineWorks(ctx context.Context, c Config) (err error) {
	if c.Interpreter || c.Machine {
		return nil
	}
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("sandbox: the compiler does not support this machine (%v): use the interpreter", v)
		}
	}()
	return wazero.NewRuntimeWithConfig(ctx, runtimeConfig(false)).Close(ctx)
}

// runtimeConfig chooses the engine by name: by default wazero silently falls back to its
// interpreter. Closing on context end stays off, because it checks loops only, misses call
// trees without one, and costs several times what fuel does.
func runtimeConfig(interpreter bool) wazero.RuntimeConfig {
	config := wazero.NewRuntimeConfigCompiler()
	if interpreter {
		config = wazero.NewRuntimeConfigInterpreter()
	}
	return config.
		WithCoreFeatures(features).
		WithMemoryLimitPages(maxMemoryPages). // a module's own maximum is below; see Load
		WithCloseOnContextDone(false).
		WithDebugInfoEnabled(false)
}

// newRuntime returns a runtime that keeps its code in dir, unless that is empty.
func newRuntime(ctx context.Context, interpreter bool, dir string) (wazero.Runtime, wazero.CompilationCache, error) {
	config := runtimeConfig(interpreter)
	code := wazero.NewCompilationCache()
	if dir != "" {
		var err error
		if code, err = wazero.NewCompilationCacheWithDir(dir); err != nil {
			return nil, nil, hostFailed(fmt.Errorf("compilation cache: %w", err))
		}
	}
	return wazero.NewRuntimeWithConfig(ctx, config.WithCompilationCache(code)), code, nil
}

// wazeroCode is a compiled module in its own runtime.
type wazeroCode struct {
	runtime wazero.Runtime
	cache   wazero.CompilationCache
	module  wazero.CompiledModule
}

// compiled makes the engine find the code of a module, or compile, interpret or translate it without a
// folder.
func compiled(ctx context.Context, e *Engine, p *Prepared) (executable, error) {
	if e.machine {
		return translated(ctx, p, e.observers)
	}
	runtime, cache, err := newRuntime(ctx, e.interpreter, p.Folder)
	if err != nil {
		return nil, err
	}
	c := &wazeroCode{runtime: runtime, cache: cache}
	if c.module, err = runtime.CompileModule(ctx, p.Wasm); err == nil {
		err = registerHost(ctx, runtime)
	}
	if err != nil {
		return nil, errors.Join(err, c.close(ctx))
	}
	return c, nil
}

func (c *wazeroCode) close(ctx context.Context) error {
	return errors.Join(c.runtime.Close(ctx), c.cache.Close(ctx))
}

// registerHost provides the modules that a guest may import from. They keep no
// state: the state of a call is in the instance's context.
func registerHost(ctx context.Context, r wazero.Runtime) error {
	fuel := r.NewHostModuleBuilder(rewrite.RefillModule)
	for name, f := range fuelFuncs {
		call := func(ctx context.Context, stack []uint64) { f.do(sessionOf(ctx), stack) }
		fuel.NewFunctionBuilder().WithGoFunction(api.GoFunc(call), engineTypes(f.params), nil).Export(name)
	}
	if _, err := fuel.Instantiate(ctx); err != nil {
		return hostFailed(fmt.Errorf("registering the host's functions: %w", err))
	}
	for name, functions := range map[string][]hostFunc{abi.Version: starlingFuncs, abi.WASIModule: wasiFuncs} {
		builder := r.NewHostModuleBuilder(name)
		for _, f := range functions {
			t, _ := rewrite.ImportType(name, f.name)
			builder.NewFunctionBuilder().WithGoFunction(imported{f, name, t}, engineTypes(t.Params), engineTypes(t.Results)).Export(f.name)
		}
		if _, err := builder.Instantiate(ctx); err != nil {
			return hostFailed(fmt.Errorf("registering the host's functions: %w", err))
		}
	}
	return nil
}

// Call implements api.GoFunction. The instance travels in the context, because
// one host function serves all of them.
func (f imported) Call(ctx context.Context, stack []uint64) { f.call(sessionOf(ctx), stack) }

func sessionOf(ctx context.Context) *session { return &ctx.Value(instanceKey{}).(*instance).session }

// engineTypes converts types to the engine's. Both use the numbers of the binary format.
func engineTypes(types []wasm.ValType) []api.ValueType {
	out := make([]api.ValueType, len(types))
	for i, t := range types {
		out[i] = api.ValueType(t)
	}
	return out
}

// instanceConfig makes instances without a name, so that no module can import from another,
// and without automatic start. By default the engine would seed a random source for each
// instance, at half the price of the instance; no import reads it.
var instanceConfig = wazero.NewModuleConfig().WithName("").WithStartFunctions().WithRandSource(noRandom{})

type noRandom struct{}

func (noRandom) Read([]byte) (int, error) {
	return 0, errors.New("sandbox: the engine has no randomness of its own")
}

// instantiate makes an instance on the memory that i has mapped, or on the engine's own.
func (c *wazeroCode) instantiate(i *instance) (running, error) {
	ctx := context.Background()
	if i.mapping != nil {
		ctx = experimental.WithMemoryAllocator(ctx, experimental.MemoryAllocatorFunc(
			func(uint64, uint64) experimental.LinearMemory { return i.mapping }))
	}
	module, err := c.runtime.InstantiateModule(ctx, c.module, instanceConfig)
	if err != nil {
		return nil, err
	}
	return wazeroModule{module}, nil
}

type wazeroModule struct{ api.Module }

func (m wazeroModule) memory() memory { return m.Memory() }

func (m wazeroModule) global(name string) global {
	g, ok := m.ExportedGlobal(name).(api.MutableGlobal)
	if !ok {
		return nil
	}
	return g
}

func (m wazeroModule) function(name string) function { return m.ExportedFunction(name) }

func (m wazeroModule) close() {
	// The error would be the module's close function's, which does not exist.
	_ = m.Close(context.Background())
}

// shrink gives a memory its length back. WebAssembly has no way to do it, and
// the engine offers none. But its memory has an exported field whose length is
// the memory's; growing by a page afterwards makes the engine update the length
// for compiled code.
func (i *instance) shrink(pages uint32) error {
	buffer := reflect.ValueOf(i.memory).Elem().FieldByName("Buffer")
	if pages == 0 || !buffer.IsValid() || !buffer.CanSet() || buffer.Kind() != reflect.Slice {
		return errNoShrink
	}
	b := buffer.Bytes()
	buffer.SetBytes(b[: (pages-1)*wasm.PageSize : cap(b)])
	if _, ok := i.memory.Grow(1); !ok || i.memory.Size() != pages*wasm.PageSize {
		return errNoShrink
	}
	return nil
}

// compile compiles a rewritten module into the empty folder dir, on the given number of
// processors: the code gets the name under which the engine looks for the module's
// shell, and is the same for any number.
func compile(ctx context.Context, processors int, rewritten, shell []byte, dir string) error {
	ctx = experimental.WithCompilationWorkers(ctx, processors)
	code, err := compileInto(ctx, rewritten, dir)
	if err != nil {
		return err
	}
	wanted, err := compileInto(ctx, shell, dir)
	if err != nil {
		return err
	}
	if err := inPieces(code, wanted); err != nil {
		return hostFailed(err)
	}
	return nil
}

// inPieces replaces the file wanted with the file code, in pieces. Nothing is removed
// that is open, which not every system allows.
func inPieces(code, wanted string) error {
	from, err := os.Open(code)
	if err != nil {
		return err
	}
	err = errors.Join(os.Remove(wanted), writePieces(wanted, from), from.Close())
	return errors.Join(err, os.Remove(code))
}

// compileInto makes the engine keep a module's code in dir and returns the file.
func compileInto(ctx context.Context, module []byte, dir string) (string, error) {
	before, err := files(dir)
	if err != nil {
		return "", hostFailed(err)
	}
	r, code, err := newRuntime(ctx, false, dir)
	if err != nil {
		return "", err
	}
	_, err = r.CompileModule(ctx, module)
	if _, ofFile := errors.AsType[syscall.Errno](err); ofFile {
		err = hostFailed(err)
	}
	if err := errors.Join(err, r.Close(ctx), code.Close(ctx)); err != nil {
		return "", err
	}
	after, err := files(dir)
	for _, file := range after {
		if !slices.Contains(before, file) {
			return file, nil
		}
	}
	return "", hostFailed(cmp.Or(err, errNoCode))
}
