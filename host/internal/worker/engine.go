package worker

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/starling-host/starling/host/internal/scheduler"
	"github.com/starling-host/starling/host/sandbox"
	"github.com/starling-host/starling/runtime/tool"
)

// Config sets the number of workers and their limits.
type Config struct {
	// Machine, CacheDir and Observers are as in sandbox.Config.
	Machine  bool
	CacheDir string
	sandbox.Observers

	// Compiler bounds compilations.
	Compiler Compiler

	// MaxCalls is how many calls may be in progress; others wait, and their time
	// begins later. Zero means four for each processor.
	MaxCalls int

	// Scheduler has the CPU slots in which calls compute: a call holds one while its
	// guest runs, and not while it waits for an exchange or is demoted. See
	// scheduler.For for whose slots they are. Nil means one for each processor, for this
	// engine alone.
	Scheduler *scheduler.Scheduler

	// MaxIdle is how many processes are kept without a call, each with its loaded
	// module. More, but no more than MaxCalls, are kept for a second. Zero means
	// two for each processor.
	MaxIdle int

	// Grace is how long the worker may take to answer after a call's time has
	// ended or it was cancelled. After that it is killed. Zero means 250 ms.
	Grace time.Duration

	// Logger receives reports of workers that died. Nil discards.
	Logger *slog.Logger
}

const (
	// ownMemory is how many bytes a process may have beside the memory of its module. A
	// 10 MB Go program needs less than 192 MiB, and the files of a call 256 MiB and room to send them.
	ownMemory = 1 << 30

	defaultGrace = 250 * time.Millisecond
)

func (c Config) complete() Config {
	if c.MaxCalls <= 0 {
		c.MaxCalls = 4 * runtime.GOMAXPROCS(0)
	}
	c.Scheduler = cmp.Or(c.Scheduler, scheduler.New(runtime.GOMAXPROCS(0)))
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	if c.MaxIdle <= 0 {
		c.MaxIdle = 2 * runtime.GOMAXPROCS(0)
	}
	if c.Grace <= 0 {
		c.Grace = defaultGrace
	}
	return c
}

// ErrClosed is returned by everything that is asked of an [Engine] after Close.
var ErrClosed = errors.New("worker: closed")

// Engine loads modules into processes of their own. It is safe for concurrent
// use.
type Engine struct {
	config   Config
	host     *sandbox.Engine // keeps code; reads and runs nothing
	observed bool            // see Observed

	places  chan struct{} // holds one for each call in progress
	closing chan struct{}
	close   sync.Once
	reapers sync.WaitGroup // of all processes

	// Each of these has a quarter of the processors: for starting processes, for processes
	// demoted from the beginning, and for effects of demoted calls.
	starts, demotedStarts, demotedEffects *scheduler.Scheduler

	linger time.Duration       // see idleProcess
	pause  func(time.Duration) // see effectPause

	mu      sync.Mutex     // guards what follows
	idle    []*idleProcess // least recently used first
	tidying *time.Timer    // calls tidy; set while there are more than MaxIdle
}

var _ sandbox.Observable = (*Engine)(nil)

// New starts an engine. It fails where sandbox.New does. It does not try to
// start a process: [Probe] does.
func New(ctx context.Context, c Config) (*Engine, error) {
	c = c.complete()
	host, err := sandbox.New(ctx, sandbox.Config{
		Machine: c.Machine, CacheDir: c.CacheDir, Read: c.Compiler.Read, Reset: sandbox.ResetFresh, Observers: c.Observers,
	})
	if err != nil {
		return nil, err
	}
	quarter := runtime.GOMAXPROCS(0) / 4
	e := &Engine{
		config: c, host: host, closing: make(chan struct{}), places: make(chan struct{}, c.MaxCalls), linger: linger, pause: time.Sleep,
		starts: scheduler.New(quarter), demotedStarts: scheduler.New(quarter), demotedEffects: scheduler.New(quarter),
	}
	e.tidying = time.AfterFunc(time.Hour, e.tidy)
	e.tidying.Stop()
	return e, nil
}

// Load has a module checked and compiled in one process and starts it in
// another, which is then ready for the first call. It returns the errors of
// sandbox.Engine.Load.
func (e *Engine) Load(ctx context.Context, wasmBytes []byte, limits sandbox.Limits) (sandbox.Loaded, error) {
	leave, err := e.enter(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	var m *Module
	load := func(prepared *sandbox.Prepared) error {
		pieces, err := prepared.Encode()
		if err != nil {
			return hostFailed(err)
		}
		code, err := e.host.Hold(prepared)
		if err != nil {
			return err
		}
		m = &Module{engine: e, loading: slices.Concat(pieces...), code: code, prepared: *prepared, starting: make(chan struct{}, 1)}
		m.prepared.Wasm, m.prepared.Data, m.prepared.Start, m.prepared.Module = nil, nil, nil, nil
		p, err := m.start(ctx)
		if err != nil {
			return errors.Join(err, code.Close())
		}
		if e.observed {
			m.prepared.ABI, m.prepared.Imports = p.loaded.ABI, p.loaded.Imports
		}
		if heavy := p.loaded; len(heavy.Start) > 0 {
			// Other processes begin with it, also those of other hosts. It comes from the module, like
			// its code, and can spoil no other one.
			if err = prepared.Resume(heavy.Start, heavy.Data); err == nil {
				pieces, err = prepared.Encode()
			}
			m.loading = slices.Concat(pieces...)
			if err != nil {
				p.end()
				return errors.Join(hostFailed(err), code.Close())
			}
		}
		p.loaded = nil
		m.giveBack(p)
		return nil
	}
	if e.observed { // the processes read the module
		var unread *sandbox.Prepared
		if unread, err = e.host.Unread(wasmBytes, limits); err == nil {
			err = load(unread)
		}
	} else {
		err = e.host.Prepare(ctx, wasmBytes, limits, load)
	}
	if err != nil {
		return nil, err
	}
	return m, nil
}

// Link returns the module that a component or a plug-in for Extism becomes, see [Compiler.Link].
func (e *Engine) Link(ctx context.Context, component []byte, room func(bytes int) error) ([]byte, error) {
	leave, err := e.enter(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	return e.config.Compiler.Link(ctx, component, room)
}

// enter waits for a place among the calls in progress, and returns what gives it back. A
// call that is made from within another one has the place of that: if it waited for one,
// all places could be of calls that wait for such as it.
func (e *Engine) enter(ctx context.Context) (leave func(), err error) {
	if ctx.Value(placeKey{}) == e {
		return func() {}, nil
	}
	select {
	case <-e.closing:
		return nil, ErrClosed
	default:
	}
	select {
	case e.places <- struct{}{}:
		return func() { <-e.places }, nil
	case <-e.closing:
		return nil, ErrClosed
	case <-ctx.Done():
		return nil, tool.ErrCancelled
	}
}

// placeKey is the context key for the engine of the call that makes an exchange.
type placeKey struct{}

// Close waits for the calls in progress, ends all processes and waits for
// their end.
func (e *Engine) Close(ctx context.Context) (err error) {
	e.close.Do(func() {
		close(e.closing)
		for range cap(e.places) {
			e.places <- struct{}{}
		}
		e.drop(func(*idleProcess) bool { return true })
		e.reapers.Wait()
		err = e.host.Close(ctx)
	})
	return err
}

// maxTexts is how much longer a frame may be than its limited parts: numbers and
// the text of an error.
const maxTexts = 64 << 10

// idleProcess is a process without a call.
type idleProcess struct {
	*process
	module *Module
	since  time.Time
}

// linger is how long a surplus process is kept. A frequent caller calls again at once,
// and starting a process takes a hundred times as long as a short call.
const linger = time.Second

// take returns the most recently used idle process of a module, or nil. Dead
// processes are dropped.
func (e *Engine) take(m *Module) *process {
	e.mu.Lock()
	defer e.mu.Unlock()
	for i, p := range slices.Backward(e.idle) {
		if p.module != m {
			continue
		}
		e.idle = slices.Delete(e.idle, i, i+1)
		if p.alive() {
			return p.process
		}
		p.hangUp()
	}
	return nil
}

// put keeps a process for later.
func (e *Engine) put(m *Module, p *process) {
	e.mu.Lock()
	e.idle = append(e.idle, &idleProcess{p, m, time.Now()})
	e.mu.Unlock()
	e.tidy()
}

// tidy ends surplus idle processes, and runs again for lingering ones.
func (e *Engine) tidy() {
	var surplus []*idleProcess
	e.mu.Lock()
	for len(e.idle) > e.config.MaxIdle {
		i := e.surplus()
		rest := e.linger - time.Since(e.idle[i].since)
		if rest > 0 && len(e.idle) <= e.config.MaxCalls {
			e.tidying.Reset(rest)
			break
		}
		surplus = append(surplus, e.idle[i])
		e.idle = slices.Delete(e.idle, i, i+1)
	}
	e.mu.Unlock()
	for _, p := range surplus {
		p.end()
	}
}

// surplus returns the place of the least needed idle process: of the module with
// the most of them, the one idle for longest. So a flood of calls cannot take the
// warm process of a module that is called now and then. The caller holds mu.
func (e *Engine) surplus() (place int) {
	have := map[*Module]int{}
	for _, p := range e.idle {
		have[p.module]++
	}
	for i, p := range e.idle {
		if have[p.module] > have[e.idle[place].module] {
			place = i
		}
	}
	return place
}

// drop ends the idle processes that which selects.
func (e *Engine) drop(which func(*idleProcess) bool) {
	var dropped []*idleProcess
	e.mu.Lock()
	e.idle = slices.DeleteFunc(e.idle, func(p *idleProcess) bool {
		if which(p) {
			dropped = append(dropped, p)
			return true
		}
		return false
	})
	e.mu.Unlock()
	for _, p := range dropped {
		p.end()
	}
}
