package sandbox

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"sync/atomic"

	"github.com/starling-host/starling/host/sandbox/internal/image"
	"golang.org/x/sync/semaphore"
)

// ErrClosed is returned by the methods of an [Engine] or a [Module] after Close.
var ErrClosed = errors.New("sandbox: closed")

// Config configures how modules are executed. The zero value compiles to
// machine code, keeps it in memory only, and resets instances in the best way
// that works on this machine.
type Config struct {
	// Interpreter executes modules in an interpreter. It computes the same
	// bytes with the same fuel, some thirty times slower, from code that shares
	// nothing with the compiler: it is the second opinion on a recorded run.
	Interpreter bool

	// Machine executes modules in this project's own engine, host/internal/machine. It
	// computes the same bytes with the same fuel, some fifteen times slower than the compiler,
	// shares no code with the other engines, and can record a call to go back in it.
	Machine bool

	// CacheDir keeps compiled machine code, and what each version of this program has
	// rewritten, so that both is done once on a machine and not once in a process. A
	// user who can write to this folder chooses the code that this process runs: it is
	// created with mode 0700, and a folder that anyone but this user could have written
	// to is refused. Whenever something is added, the cache is trimmed to 8 GiB, and to
	// files used in the last 30 days. The interpreter does not use it. Empty: no cache.
	CacheDir string

	// Read, if not nil, does what [Read] does somewhere else, such as in a process that may
	// die of it. Nil: modules are read in this process, where a budget bounds the gate and
	// the rewriter, and only the gate bounds the time and memory of compiling.
	Read func(ctx context.Context, module []byte, o RewriteOptions, dir string, missing func(*Prepared) bool) (*Prepared, error)

	// Reset is the method that makes instances pristine between calls. Empty: the
	// best method that works here, see [Engine.Resets].
	Reset Reset

	Observers

	// VerifyEvery is the number of resets between two comparisons of an instance with the
	// module's start, including all memory. A difference, which no module should be able to
	// cause, is an error of the call. Zero: never.
	VerifyEvery uint64
}

// Reset is a way to make a used instance pristine.
type Reset = image.Method

// The methods, from the best to the one that works everywhere.
const (
	ResetScan    = image.Scan    // the pages that PAGEMAP_SCAN lists are copied back (Linux 6.7)
	ResetCompare = image.Compare // all pages are compared, or dropped when there are many
	ResetFresh   = image.Fresh   // every call has a new instance
)

// Rung is one of these methods on this machine: the reason why it does not work, or nil.
type Rung = image.Rung

// Engine loads modules. It is safe for concurrent use.
type Engine struct {
	interpreter bool
	machine     bool
	reader      func(context.Context, []byte, RewriteOptions, string, func(*Prepared) bool) (*Prepared, error)
	verify      uint64
	heavy       uint64 // fuel of a start-up whose result is kept
	observers   Observers
	store       *image.Store
	cache       *cache
	life        lifetime
	idle        atomic.Int64 // instances in the pools of all modules

	// compiling is held while a module is compiled, by the first byte of its digest: a
	// second load of the same module waits and finds it in the cache. It is held for
	// reading while code is loaded, because the engine, where it does not find any, makes
	// code of the shell and keeps it in its place.
	compiling [256]*semaphore.Weighted // writing takes [exclusive]

	mu      sync.Mutex       // guards modules
	modules map[*Module]bool // that are not closed
}

// exclusive is the share of a semaphore that writing takes; reading takes one.
const exclusive = 1 << 30

// New starts an engine. It fails when this machine has no compiler and
// Config.Interpreter is not set, or when the cache folder is not safe.
func New(ctx context.Context, c Config) (e *Engine, err error) {
	e = &Engine{
		interpreter: c.Interpreter, machine: c.Machine, reader: c.Read, verify: c.VerifyEvery, observers: c.Observers,
		cache: &cache{}, modules: map[*Module]bool{}, heavy: heavyStart,
	}
	if e.reader == nil {
		e.reader = func(ctx context.Context, module []byte, o RewriteOptions, dir string, missing func(*Prepared) bool) (*Prepared, error) {
			return Read(ctx, 1, module, o, dir, missing)
		}
	}
	for i := range e.compiling {
		e.compiling[i] = semaphore.NewWeighted(exclusive)
	}
	if err := engineWorks(ctx, c); err != nil {
		return nil, err
	}
	if c.Machine { // whose instances have memory of their own
		c.Reset = ResetFresh
	} else if !c.Interpreter {
		if e.cache, err = openCache(c.CacheDir, c.Read != nil); err != nil {
			return nil, err
		}
	}
	if e.store, err = image.Open(c.Reset); err != nil {
		return nil, errors.Join(fmt.Errorf("sandbox: %w", err), e.cache.close())
	}
	return e, nil
}

// Resets returns the ways of resetting that were tried, the best first; the
// last one is in use.
func (e *Engine) Resets() []Rung { return e.store.Report() }

// Close waits for the calls in progress and releases all modules.
func (e *Engine) Close(ctx context.Context) error {
	if !e.life.end() {
		return nil
	}
	e.mu.Lock()
	open := maps.Clone(e.modules)
	e.mu.Unlock()
	var err error
	for m := range open {
		err = errors.Join(err, m.Close(ctx))
	}
	return errors.Join(err, e.cache.close(), e.store.Close())
}

// lifetime lets Close wait for users and turn later ones away. Unlike a
// read-write lock it never blocks a user behind a waiting Close, so a call
// that makes another call cannot deadlock with it.
type lifetime struct {
	mu    sync.Mutex // guards ended
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
