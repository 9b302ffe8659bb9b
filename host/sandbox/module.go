package sandbox

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/starling-host/starling/eventlog/chain"
	"github.com/starling-host/starling/host/rewrite"
	"github.com/tetratelabs/wazero"
)

// Module is a compiled module. It is safe for concurrent use: each call has an
// instance of its own.
type Module struct {
	engine   *Engine
	compiled wazero.CompiledModule
	data     []rewrite.Segment // memory's first contents
	digest   chain.Hash
	abi      string
	imports  []string
	prepare  []string // the exports that run sealed, before every call
	limits   Limits
	life     lifetime
}

// Load checks, rewrites and compiles a module. The limits hold for each of its
// calls; those that are zero take the value of [DefaultLimits].
//
// A module that is not accepted is a [*rewrite.Refusal], whether the gate, the
// contract or the compiler refused it. Other errors are the host's: limits
// that cannot be kept, a closed engine.
func (e *Engine) Load(ctx context.Context, wasm []byte, limits Limits) (*Module, error) {
	limits, err := complete(limits)
	if err != nil {
		return nil, err
	}
	if !e.life.enter() {
		return nil, ErrClosed
	}
	defer e.life.leave()
	rewritten, err := rewrite.Rewrite(wasm, rewrite.DefaultLimits(), rewrite.Options{MemoryPages: limits.MemoryPages, Depth: limits.Depth})
	if err != nil {
		return nil, err
	}
	m := &Module{engine: e, digest: chain.Sum(wasm), limits: limits, data: rewritten.Data, imports: importNames(rewritten.Info)}
	if m.abi, err = checkExports(rewritten.Info); err != nil {
		return nil, err
	}
	m.prepare = preparation(rewritten.Info, m.abi)
	if m.compiled, err = e.compile(ctx, m.digest, rewritten.Wasm); err != nil {
		return nil, err
	}
	return m, nil
}

// compile runs the engine's validator and compiler. A panic in either is a
// mistake that some module found: that module is refused and the process lives.
func (e *Engine) compile(ctx context.Context, digest chain.Hash, wasm []byte) (compiled wazero.CompiledModule, err error) {
	turn := &e.compiling[digest[0]]
	turn.Lock()
	defer turn.Unlock()
	defer func() {
		if v := recover(); v != nil {
			err = refuse("the engine panics when it compiles it", "")
		}
	}()
	compiled, err = e.runtime.CompileModule(ctx, wasm)
	if err != nil {
		return nil, refuse("the engine cannot compile it: "+err.Error(), "")
	}
	return compiled, nil
}

func refuse(what, hint string) *rewrite.Refusal {
	return &rewrite.Refusal{What: what, Func: -1, Offset: -1, Hint: hint}
}

// Digest returns the BLAKE3-256 of the bytes that were loaded: the module's
// identity.
func (m *Module) Digest() chain.Hash { return m.digest }

// ABI returns abi.Version, or abi.Command for a WASI command.
func (m *Module) ABI() string { return m.abi }

// Imports returns what the module imports, as module.name, sorted.
func (m *Module) Imports() []string { return slices.Clone(m.imports) }

// Limits returns the bounds of each call, the defaults filled in.
func (m *Module) Limits() Limits { return m.limits }

// Close waits for the module's calls in progress and releases its code.
func (m *Module) Close(ctx context.Context) error {
	if !m.life.end() {
		return nil
	}
	return m.compiled.Close(ctx)
}

// enter keeps the module and its engine from closing until leave.
func (m *Module) enter() (leave func(), err error) {
	if !m.engine.life.enter() {
		return nil, ErrClosed
	}
	if !m.life.enter() {
		m.engine.life.leave()
		return nil, ErrClosed
	}
	return func() { m.life.leave(); m.engine.life.leave() }, nil
}

// instanceConfig makes instances that have no name, so that no module can
// import from another, and that run nothing by themselves. Without a random
// source of ours the engine would seed one of its own at each instance, at
// half the price of the instance; no function that we offer reads it.
var instanceConfig = wazero.NewModuleConfig().WithName("").WithStartFunctions().WithRandSource(strings.NewReader(""))

// instantiate gives the session a fresh instance.
func (m *Module) instantiate(ctx context.Context, s *session) error {
	module, err := m.engine.runtime.InstantiateModule(ctx, m.compiled, instanceConfig)
	if err != nil {
		return fmt.Errorf("sandbox: the engine cannot instantiate the module: %w", err)
	}
	i := &instance{module: module, memory: module.Memory()}
	if err := i.bindMeter(); err != nil {
		return errors.Join(err, module.Close(ctx))
	}
	for _, d := range m.data {
		i.memory.Write(d.Offset, d.Bytes)
	}
	s.instance = i
	return nil
}

// ready instantiates the module and runs what comes before every call: the
// start function, _initialize and starling_warmup, sealed and unattended. It
// is the same for every call, a function of the module's bytes alone.
func (m *Module) ready(ctx context.Context, s *session) error {
	if err := m.instantiate(ctx, s); err != nil {
		return err
	}
	s.allow(prepareFuel)
	for _, export := range m.prepare {
		if _, err := s.invoke(ctx, export); err != nil {
			return fmt.Errorf("in %s: %w", s.phase, s.exited(err))
		}
	}
	return nil
}

func importNames(info rewrite.Info) []string {
	names := make([]string, len(info.Imports))
	for i, im := range info.Imports {
		names[i] = im.Module + "." + im.Name
	}
	slices.Sort(names)
	return slices.Compact(names) // Go links some imports twice
}
