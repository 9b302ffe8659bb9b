package starling

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/host/guest"
	"github.com/starling-host/starling/host/sandbox"
)

// EngineOptions choose the engine that executes tools. The zero value is the fastest engine
// of this machine, in this process. Every engine gives the same bytes for a run and its
// replay.
type EngineOptions struct {
	// Processes executes tools in separate processes, which give up everything but their
	// pipes. The program must call [WorkerMain] first.
	Processes bool

	// Kind selects an engine. Empty is the fastest that works here. Worker processes choose
	// by themselves.
	Kind EngineKind

	// MaxCalls bounds the calls that processes take at a time. Zero is the default of a
	// program with one user, whose modules are compiled before all else.
	MaxCalls int

	// Scheduler hands out the CPU slots in which processes compute, for a program that also
	// uses them for other work. Nil is one slot for each processor, for this engine.
	Scheduler *guest.Scheduler

	// Adjust changes the configuration of the engine in this process, such as its hooks
	// for traces and profiles. Nil changes nothing.
	Adjust func(*sandbox.Config)

	// Warn receives warnings for the user of the machine. Nil discards them.
	Warn func(text string)
}

// EngineKind is one way to execute a module.
type EngineKind string

// The engines. They share no code, and give the same bytes and use the same fuel.
const (
	Compiler    EngineKind = "compiler"
	Machine     EngineKind = "machine"     // some fifteen times slower; records calls, see host/sandbox
	Interpreter EngineKind = "interpreter" // some thirty times slower
)

// WorkerMain turns this process into a worker if it was started as one, and then does not
// return. A program that executes tools in processes calls it first.
func WorkerMain() { guest.WorkerMain() }

// CodeCacheFolder returns the folder of compiled code, or "" if the user has no cache
// folder; then each process compiles code anew.
func CodeCacheFolder() string {
	base, err := os.UserCacheDir()
	if err != nil {
		return ""
	}
	return filepath.Join(base, "starling-host", "compiled")
}

// Engine executes modules. It must be closed.
type Engine struct {
	guest.Observable
	stop func(context.Context) error
}

// NewEngine starts the engine that the options select. Close it only after its last use.
func NewEngine(ctx context.Context, o EngineOptions) (*Engine, error) {
	if !o.Processes {
		inline, err := NewSandbox(ctx, o)
		if err != nil {
			return nil, err
		}
		return &Engine{guest.Inline(inline), inline.Close}, nil
	}
	var failed error
	for _, config := range o.configs() {
		p, err := guest.NewProcesses(ctx, guest.ProcessConfig{
			Machine: config.Machine, CacheDir: config.CacheDir, MaxCalls: o.MaxCalls, Scheduler: o.Scheduler,
			Compiler: guest.Compiler{Foreground: o.MaxCalls == 0}, // with priority, because a user waits for it
		})
		if err == nil {
			return &Engine{p, p.Close}, nil
		}
		failed = err
	}
	return nil, failed
}

// Close releases the engine.
func (e *Engine) Close() error { return e.stop(context.Background()) }

// NewSandbox starts the in-process engine that the options select.
func NewSandbox(ctx context.Context, o EngineOptions) (engine *sandbox.Engine, err error) {
	var why error
	for _, config := range o.configs() {
		if engine, err = sandbox.New(ctx, config); err == nil {
			if config.Machine && o.Kind == "" && o.Warn != nil {
				o.Warn("modules are not compiled, which takes some fifteen times as long: " + PlainError(why))
			}
			return engine, nil
		}
		why = err
	}
	return nil, err
}

// configs lists the engine configurations that the options allow, the fastest first. The
// folder of compiled code may be unusable, and some machines have no compiler.
func (o EngineOptions) configs() (allowed []sandbox.Config) {
	for _, e := range []struct {
		kind   EngineKind
		config sandbox.Config
	}{
		{Compiler, sandbox.Config{CacheDir: CodeCacheFolder(), Read: o.read}}, {Compiler, sandbox.Config{Read: o.read}},
		{Machine, sandbox.Config{Machine: true}}, {Interpreter, sandbox.Config{Interpreter: true}},
	} {
		if o.Kind != e.kind && (o.Kind != "" || e.kind == Interpreter) {
			continue
		}
		if o.Adjust != nil {
			o.Adjust(&e.config)
		}
		allowed = append(allowed, e.config)
	}
	return allowed
}

// read reads a module in a separate process that may die of it. If no process can be started,
// it reads the module in this one, and warns before it compiles it: the module can then exhaust
// this program's memory and time, but the user has chosen to run it.
func (o EngineOptions) read(ctx context.Context, module []byte, r sandbox.RewriteOptions, dir string, missing func(*sandbox.Prepared) bool) (*sandbox.Prepared, error) {
	p, err := guest.Compiler{Foreground: true}.Read(ctx, module, r, dir, missing)
	if !errors.Is(err, guest.ErrNoProcess) {
		return p, err
	}
	return sandbox.Read(ctx, 1, module, r, dir, func(p *sandbox.Prepared) bool {
		needed := missing(p)
		if needed && o.Warn != nil {
			o.Warn("the module is compiled without bounds on time and memory: " + PlainError(err))
		}
		return needed
	})
}

// lazyEngine starts at its first use.
type lazyEngine struct {
	o EngineOptions

	mu      sync.Mutex // guards the fields below
	started *Engine
	closed  bool
}

func (e *lazyEngine) start(ctx context.Context) (_ *Engine, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return nil, eventlog.ErrLogClosed
	}
	if e.started == nil {
		e.started, err = NewEngine(ctx, e.o)
	}
	return e.started, err
}

func (e *lazyEngine) close() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.started != nil {
		e.started.Close()
	}
	e.started, e.closed = nil, true
}
