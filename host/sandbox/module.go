package sandbox

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/starling-host/starling/host/internal/rewrite"
)

// Module is a compiled module at its start. It is safe for concurrent use: a
// call in progress has an instance to itself.
type Module struct {
	engine *Engine
	code   executable

	digest  Digest
	abi     string
	imports []string
	limits  Limits
	size    int
	reserve uint64   // bytes of memory that an instance can have
	globals []string // the exports of the module's own mutable globals

	start *start
	pool  pool
	life  lifetime
}

// Load checks, rewrites and compiles a module and brings it to its start: it
// runs the start function, _initialize and starling_warmup, once, with constant
// clock and randomness and without effects. The limits hold for each of its
// calls; zero limits take the value of [DefaultLimits].
//
// A module that is not accepted is a [*rewrite.Refusal], whether the gate, the
// contract or the compiler refused it. If its start fails, every call returns
// that error. Other errors are the host's: limits that cannot be kept, a closed
// engine.
func (e *Engine) Load(ctx context.Context, wasmBytes []byte, limits Limits) (*Module, error) {
	var m *Module
	err := e.Prepare(ctx, wasmBytes, limits, func(p *Prepared) (err error) {
		m, err = e.LoadPrepared(ctx, p)
		return err
	})
	return m, err
}

// LoadPrepared does the rest of Load for a module prepared by an engine with the same limits and
// profile, perhaps in another process. It trusts that source and repeats no check, unless p is [Engine.Unread].
// The module keeps
// p.Wasm, which must not be changed. After a heavy start-up p has the resulting start, so that other
// processes begin with it; its data is then valid until the module is closed. The error may be
// [ErrSpoiled].
func (e *Engine) LoadPrepared(ctx context.Context, p *Prepared) (*Module, error) {
	if !e.life.enter() {
		return nil, ErrClosed
	}
	defer e.life.leave()
	if p.Wasm == nil {
		read, err := Read(ctx, 1, p.Module, e.rewriting(p.Limits), "", nil)
		if err != nil {
			return nil, err
		}
		e.identify(read, p.Module, Sum(p.Module), p.Limits)
		*p = *read
	}
	return e.build(ctx, p)
}

// build passes a module to the engine and brings it to its start.
func (e *Engine) build(ctx context.Context, p *Prepared) (*Module, error) {
	m := &Module{
		engine: e, digest: p.Digest, abi: p.ABI, imports: p.Imports, limits: p.Limits, size: p.Size,
		reserve: p.Reserve, globals: p.Globals, pool: pool{total: &e.idle},
	}
	err := m.compile(ctx, p)
	switch {
	case err != nil:
	case len(p.Start) > 0:
		err = m.resume(p)
	default:
		if m.start, err = m.prepare(p.Data, p.First); err == nil {
			err = m.keep(p)
		}
	}
	if err != nil {
		return nil, errors.Join(err, m.free(ctx))
	}
	e.mu.Lock()
	e.modules[m] = true
	e.mu.Unlock()
	return m, nil
}

// compile makes the engine find the code of the module, or compile or interpret it without
// a folder.
func (m *Module) compile(ctx context.Context, p *Prepared) error {
	err := accepted(func() (err error) {
		m.code, err = compiled(ctx, m.engine, p)
		return err
	})
	if err != nil && p.Folder != "" {
		return hostFailed(fmt.Errorf("%w: %w", ErrSpoiled, err))
	}
	return err
}

// Digest returns the BLAKE3-256 of the bytes that were loaded: the module's
// identity.
func (m *Module) Digest() Digest { return m.digest }

// ABI returns abi.Version, or abi.Command for a WASI command.
func (m *Module) ABI() string { return m.abi }

// Imports returns the module's imports, as module.name, sorted.
func (m *Module) Imports() []string { return slices.Clone(m.imports) }

// Limits returns the bounds of each call, the defaults filled in.
func (m *Module) Limits() Limits { return m.limits }

// Size returns the size of the rewritten module in bytes.
func (m *Module) Size() int { return m.size }

// Start describes the initial state of every call of a module. It is the same wherever the
// module is loaded with the same limits.
type Start struct {
	// Digest is BLAKE3-256 of the memory, of the module's own mutable globals in
	// the order of their indices, as eight bytes each, and of the number of
	// pages as four, little-endian.
	Digest Digest
	Pages  uint32 // of memory, 64 KiB each
	Fuel   uint64 // that start function, _initialize and starling_warmup took
}

// Start returns the initial state of calls, or the error of every call if start-up fails.
func (m *Module) Start() (Start, error) {
	if !m.enter() {
		return Start{}, ErrClosed
	}
	defer m.leave()
	s := Start{Pages: m.start.pages, Fuel: m.start.meter.Fuel}
	if m.start.failure == nil {
		s.Digest = m.start.digest(len(m.globals))
	}
	return s, m.start.failure
}

// Close waits for the module's calls in progress and releases its code and
// memory.
func (m *Module) Close(ctx context.Context) error {
	if !m.life.end() {
		return nil
	}
	m.engine.mu.Lock()
	delete(m.engine.modules, m)
	m.engine.mu.Unlock()
	return m.free(ctx)
}

// free releases the resources of the module, which may be partly built.
func (m *Module) free(ctx context.Context) (err error) {
	m.pool.close()
	if m.start != nil && m.start.image != nil {
		err = m.start.image.Close()
	}
	if m.code != nil {
		err = errors.Join(err, m.code.close(ctx))
		m.code = nil
	}
	return err
}

// enter keeps the module and its engine from closing until leave. It reports
// whether it could.
func (m *Module) enter() bool {
	if !m.engine.life.enter() {
		return false
	}
	if !m.life.enter() {
		m.engine.life.leave()
		return false
	}
	return true
}

func (m *Module) leave() {
	m.life.leave()
	m.engine.life.leave()
}

func importNames(info rewrite.Info) []string {
	names := make([]string, len(info.Imports))
	for i, im := range info.Imports {
		names[i] = im.Module + "." + im.Name
	}
	slices.Sort(names)
	return slices.Compact(names) // Go links some imports twice
}

// Loader loads modules: into this process, or into processes of their own.
type Loader interface {
	Load(ctx context.Context, wasm []byte, limits Limits) (Loaded, error)
}

// Observable is a loader whose calls can be observed.
type Observable interface {
	Loader

	// Observed returns a loader whose modules are executed in the same place, by the
	// machine and for observers. The caller must call close.
	Observed(ctx context.Context, o Observers) (l Loader, close func(), err error)
}

// Loaded is a module that executes calls. Results, errors and meters are as documented
// for [*Module].
type Loaded interface {
	Call(ctx context.Context, c Call, imports Imports) (Result, error)
	Describe(ctx context.Context) ([]byte, error)
	Digest() Digest
	ABI() string
	Imports() []string
	Limits() Limits
	Size() int
	Close(ctx context.Context) error
}

// Inline returns the loader that executes modules in this process.
func Inline(e *Engine) Observable { return inline{e} }

type inline struct{ engine *Engine }

// Load is [Engine.Load].
func (i inline) Load(ctx context.Context, wasm []byte, limits Limits) (Loaded, error) {
	m, err := i.engine.Load(ctx, wasm, limits)
	if err != nil {
		return nil, err
	}
	return m, nil
}

// Observed implements [Observable].
func (inline) Observed(ctx context.Context, o Observers) (Loader, func(), error) {
	e, err := New(ctx, Config{Machine: true, Observers: o})
	if err != nil {
		return nil, nil, err
	}
	return inline{e}, func() { _ = e.Close(context.WithoutCancel(ctx)) }, nil
}
