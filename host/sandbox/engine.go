package sandbox

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/starling-host/starling/abi"
	"github.com/starling-host/starling/host/rewrite"
	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
)

// features are what the engine accepts: WebAssembly 2.0 without vector
// instructions, whose NaN results differ between processors. The gate in
// host/rewrite refuses more.
const features = api.CoreFeaturesV2 &^ api.CoreFeatureSIMD

// ErrClosed is returned by everything that is asked of an [Engine] or a
// [Module] after Close.
var ErrClosed = errors.New("sandbox: closed")

// Config says how modules are executed. The zero value compiles to machine
// code and keeps it in memory only.
type Config struct {
	// Interpreter executes modules in an interpreter. It computes the same
	// bytes with the same fuel, some thirty times slower and with at most 2000
	// nested calls, from code that shares nothing with the compiler: it is the
	// second opinion on a recorded run.
	Interpreter bool

	// CacheDir keeps compiled machine code, so that a module is compiled once
	// on a machine and not once in a process. Whoever can write to this folder
	// chooses what code this process runs: it is created with mode 0700, and a
	// folder that anyone but this user could have written to is refused. Empty:
	// no cache.
	CacheDir string
}

// Engine compiles modules. It is safe for concurrent use.
type Engine struct {
	runtime wazero.Runtime
	cache   wazero.CompilationCache // nil without Config.CacheDir
	life    lifetime

	// compiling is held while a module is compiled, by the first byte of its
	// digest: wazero finds a module in the cache folder, shows it to other
	// callers, and only then makes the code by which it is entered. So one
	// module is compiled once at a time, and different ones mostly together.
	compiling [256]sync.Mutex
}

// New starts an engine. It fails when this machine has no compiler and
// Config.Interpreter is not set, or when the cache folder is not safe.
func New(ctx context.Context, c Config) (_ *Engine, err error) {
	// The engine panics on a machine that it has no compiler for.
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("sandbox: the compiler does not support this machine (%v): use the interpreter", v)
		}
	}()
	e := &Engine{}
	if c.CacheDir != "" {
		if e.cache, err = openCache(c.CacheDir); err != nil {
			return nil, err
		}
	}
	e.runtime = wazero.NewRuntimeWithConfig(ctx, e.config(c))
	if err := e.registerHost(ctx); err != nil {
		return nil, errors.Join(err, e.Close(ctx))
	}
	return e, nil
}

// config chooses the engine by name: left to itself wazero falls back to its
// interpreter without a word. Closing on context end stays off, because it
// checks loops only, misses call trees without one, and costs several times
// what fuel does.
func (e *Engine) config(c Config) wazero.RuntimeConfig {
	config := wazero.NewRuntimeConfigCompiler()
	if c.Interpreter {
		config = wazero.NewRuntimeConfigInterpreter()
	}
	config = config.
		WithCoreFeatures(features).
		WithMemoryLimitPages(maxMemoryPages). // a module's own maximum is below; see Load
		WithCloseOnContextDone(false).
		WithDebugInfoEnabled(false)
	if e.cache != nil {
		config = config.WithCompilationCache(e.cache)
	}
	return config
}

// registerHost provides the modules that a guest may import from. They keep no
// state: what a call needs is in the call's context.
func (e *Engine) registerHost(ctx context.Context) error {
	modules := map[string][]hostFunc{
		abi.Version:          starlingFuncs,
		abi.WASIModule:       wasiFuncs,
		rewrite.RefillModule: fuelFuncs,
	}
	for name, functions := range modules {
		builder := e.runtime.NewHostModuleBuilder(name)
		for _, f := range functions {
			t, _ := rewrite.ImportType(name, f.name) // refill, which no guest may ask for, is () -> ()
			builder.NewFunctionBuilder().WithGoFunction(f, engineTypes(t.Params), engineTypes(t.Results)).Export(f.name)
		}
		if _, err := builder.Instantiate(ctx); err != nil {
			return fmt.Errorf("sandbox: registering the host's functions: %w", err)
		}
	}
	return nil
}

// Close waits for the calls in progress and releases all machine code.
func (e *Engine) Close(ctx context.Context) error {
	if !e.life.end() {
		return nil
	}
	err := e.runtime.Close(ctx)
	if e.cache != nil {
		err = errors.Join(err, e.cache.Close(ctx))
	}
	return err
}

// lifetime lets Close wait for users and turn later ones away. Unlike a
// read-write lock it never blocks a user behind a waiting Close, so a call
// that makes another call cannot deadlock with it.
type lifetime struct {
	mu    sync.Mutex
	ended bool
	users sync.WaitGroup
}

func (l *lifetime) enter() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.ended {
		l.users.Add(1)
	}
	return !l.ended
}

func (l *lifetime) leave() { l.users.Done() }

// end reports whether this was the call that ended it.
func (l *lifetime) end() bool {
	l.mu.Lock()
	first := !l.ended
	l.ended = true
	l.mu.Unlock()
	l.users.Wait()
	return first
}
