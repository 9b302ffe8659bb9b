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

// EngineOptions say what executes tools. The zero value is the best engine that this
// machine has, in this process. A run and its replay give the same bytes in every engine.
type EngineOptions struct {
	// Processes executes tools in processes of their own, which give up everything but
	// their pipes. The program must call [WorkerMain] first.
	Processes bool

	// Kind names one engine. Empty is the best one that works here. Worker processes
	// choose by themselves.
	Kind EngineKind

	// MaxCalls bounds the calls that processes take at a time. Zero is the default of a
	// program with one user, whose modules are compiled before all else.
	MaxCalls int

	// Scheduler has the CPU slots in which processes compute, for a program that divides
	// them between more than calls. Nil is one slot for each processor, for this engine.
	Scheduler *guest.Scheduler

	// Adjust changes the configuration of the engine in this process, such as its hooks
	// for traces and profiles. Nil changes nothing.
	Adjust func(*sandbox.Config)

	// Warn is told what a person in front of the machine should know. Nil discards.
	Warn func(text string)
}

// EngineKind is one way to execute a module.
type EngineKind string

// The engines. They share no code, and give the same bytes and the same count of fuel.
const (
	Compiler    EngineKind = "compiler"
	Interpreter EngineKind = "interpreter" // some thirty times slower
)

// WorkerMain makes a worker of this process if it was started as one, and does not return
// then. A program that executes tools in processes calls it before anything else.
func WorkerMain() { guest.WorkerMain() }

// CodeCacheFolder returns the folder of compiled code, or empty when the user has no cache
// folder. Code is then compiled in each process.
func CodeCacheFolder() string {
	base, err := os.UserCacheDir()
	if err != nil {
		return ""
	}
	return filepath.Join(base, "starling-host", "compiled")
}

// Engine executes modules. It must be closed.
type Engine struct {
	guest.Engine
	stop func(context.Context) error
}

// NewEngine starts the engine that the options ask for. Nothing may use it any more when it
// is closed.
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
			Interpreter: config.Interpreter, CacheDir: config.CacheDir, MaxCalls: o.MaxCalls, Compiler: o.compiler(), Scheduler: o.Scheduler,
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

// NewSandbox starts the engine of this process that the options ask for.
func NewSandbox(ctx context.Context, o EngineOptions) (engine *sandbox.Engine, err error) {
	var why error
	for _, config := range o.configs() {
		if engine, err = sandbox.New(ctx, config); err == nil {
			if config.Interpreter && o.Kind == "" && o.Warn != nil {
				o.Warn("modules are interpreted, which takes some thirty times as long: " + PlainError(why))
			}
			return engine, nil
		}
		why = err
	}
	return nil, err
}

// configs are the ways to execute modules that the options allow, the best first. The
// folder of compiled code may be unusable, and some machines have no compiler.
func (o EngineOptions) configs() (allowed []sandbox.Config) {
	all := []sandbox.Config{{CacheDir: CodeCacheFolder(), Compile: o.compile}, {Compile: o.compile}, {Interpreter: true}}
	for _, c := range all {
		if o.Kind != "" && c.Interpreter != (o.Kind == Interpreter) {
			continue
		}
		if o.Adjust != nil {
			o.Adjust(&c)
		}
		allowed = append(allowed, c)
	}
	return allowed
}

// compiler is how processes compile modules: before all else if a person waits for one.
func (o EngineOptions) compiler() guest.Compiler { return guest.Compiler{Foreground: o.MaxCalls == 0} }

// compile compiles a module in a process that may die of it. Where no process can be
// started it compiles in this one and says so: the module can take this program's memory
// and time then, and the user has chosen to run it.
func (o EngineOptions) compile(ctx context.Context, rewritten []byte, dir string) error {
	err := guest.Compiler{Foreground: true}.Compile(ctx, rewritten, dir)
	if !errors.Is(err, guest.ErrNoProcess) {
		return err
	}
	if o.Warn != nil {
		o.Warn("the module is compiled without bounds on time and memory: " + PlainError(err))
	}
	return sandbox.Compile(ctx, rewritten, dir)
}

// lazyEngine is started when it is first needed.
type lazyEngine struct {
	o EngineOptions

	mu      sync.Mutex // guards what follows
	started *Engine
	closed  bool
}

func (e *lazyEngine) start(ctx context.Context) (guest.Engine, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return nil, eventlog.ErrLogClosed
	}
	if e.started == nil {
		started, err := NewEngine(ctx, e.o)
		if err != nil {
			return nil, err
		}
		e.started = started
	}
	return e.started, nil
}

func (e *lazyEngine) close() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.started != nil {
		e.started.Close()
	}
	e.started, e.closed = nil, true
}
