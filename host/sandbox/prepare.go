package sandbox

import (
	"cmp"
	"context"
	"errors"
	"os"

	"github.com/starling-host/starling/abi"
	"github.com/starling-host/starling/host/internal/cachefile"
	"github.com/starling-host/starling/host/internal/rewrite"
	"github.com/starling-host/starling/internal/wasm"
	"github.com/starling-host/starling/internal/work"
)

// Prepared is a checked and rewritten module, which any process may load with the same
// limits by [Engine.LoadPrepared].
type Prepared struct {
	Digest  Digest   // see [Module.Digest]
	ABI     string   // see [Module.ABI]
	Imports []string // see [Module.Imports]
	Limits  Limits   // see [Module.Limits]

	Wasm    []byte            // rewritten; its rewrite.Shell if there is a Folder
	Code    Digest            // of the whole rewritten module
	Size    int               // of the whole rewritten module, in bytes
	Data    []rewrite.Segment // see rewrite.Result; it may share memory with the module
	Globals []string          // see rewrite.Result
	First   []string          // the exports that run before every call, in their order
	Start   []byte            // unless empty, First has run: the state after it, and Data is the memory then
	Reserve uint64            // bytes of memory that an instance can have
	Module  []byte            // as it came; only for an engine whose calls are observed by the machine

	// Folder has only the code. It is empty without a cache: then the process that loads
	// the module compiles or interprets it.
	Folder string
}

// ErrSpoiled means that a prepared module does not load because its code is not the
// compiled code: a file was cut, or another version of the engine left it.
var ErrSpoiled = errors.New("the folder of compiled code does not have the module's")

// Read does the part of Load that depends on the module alone: it checks and rewrites it. With a
// dir it then asks missing whether code of the result is needed, and if so compiles it into that empty
// folder, on so many processors. On one, a panic of the engine refuses the module; on more, it ends
// the process. Errors are as for Load. The result has no Digest, no Limits and no Folder.
func Read(ctx context.Context, processors int, module []byte, o RewriteOptions, dir string, missing func(*Prepared) bool) (*Prepared, error) {
	rewritten, err := rewrite.Rewrite(work.For(ctx, len(module)), module, rewrite.DefaultLimits(), o)
	if err != nil {
		return nil, err
	}
	kind, err := checkExports(rewritten.Info)
	if err != nil {
		return nil, err
	}
	whole := rewritten.Wasm
	p := &Prepared{
		ABI: kind, Imports: importNames(rewritten.Info), Wasm: whole, Code: Sum(whole), Size: len(whole),
		Data: rewritten.Data, Globals: rewritten.Globals, First: preparation(rewritten.Info, kind),
		Reserve: uint64(min(rewritten.Info.Memory.Max, o.MemoryPages)) * wasm.PageSize,
	}
	if dir == "" {
		return p, nil
	}
	if p.Wasm, err = rewrite.Shell(work.For(ctx, len(whole)), whole); err == nil && missing(p) {
		err = accepted(func() error { return compile(ctx, processors, whole, p.Wasm, dir) })
	}
	return p, err
}

// Prepare does the part of Load that executes nothing of the module: it has the module read,
// unless that was done before and kept. Then it calls load with the result, and returns its
// error. If that is ErrSpoiled, the code is made again. Other errors are as for Load.
func (e *Engine) Prepare(ctx context.Context, wasmBytes []byte, limits Limits, load func(*Prepared) error) error {
	if !e.life.enter() {
		return ErrClosed
	}
	defer e.life.leave()
	limits, err := e.complete(limits)
	if err != nil {
		return err
	}
	digest := Sum(wasmBytes)
	key := e.key(digest, limits)
	if p := e.cache.recall(key, digest, limits); p != nil {
		if err := e.loadHere(ctx, p, load); !errors.Is(err, ErrSpoiled) {
			return err
		}
	}
	p, err := e.read(ctx, wasmBytes, digest, limits, false)
	if err != nil {
		return err
	}
	if err = e.loadHere(ctx, p, load); p.Folder != "" && errors.Is(err, ErrSpoiled) {
		lock := e.compiling[digest[0]]
		if err := lock.Acquire(ctx, exclusive); err != nil {
			return err
		}
		defer lock.Release(exclusive)
		err = load(p)      // another load may have made it again meanwhile
		const attempts = 3 // because two processes may compile into the same folder at once
		for i := 0; i < attempts && errors.Is(err, ErrSpoiled); i++ {
			if p, err = e.read(ctx, wasmBytes, digest, limits, true); err != nil {
				return err
			}
			err = load(p)
		}
	}
	if err == nil {
		e.cache.remember(key, p)
	}
	return err
}

// read has a module read. Its code, which nothing is executed of, is in the cache afterwards. While
// another load compiles the same module, this one waits for that code, unless the caller has the lock: then
// the code replaces what is there.
func (e *Engine) read(ctx context.Context, module []byte, digest Digest, limits Limits, locked bool) (*Prepared, error) {
	dir, compiled, unlock := "", false, func() {}
	if e.cache.root != "" {
		var err error
		if dir, err = unfinished(e.cache.folders(), compiling); err != nil {
			return nil, err
		}
		defer os.RemoveAll(dir)
	}
	defer func() { unlock() }()
	var waited error
	p, err := e.reader(ctx, module, e.rewriting(limits), dir, func(p *Prepared) bool {
		folder := e.cache.folder(p.Code)
		if compiled = locked || !e.cache.use(folder); compiled && !locked {
			lock := e.compiling[digest[0]]
			if waited = lock.Acquire(ctx, exclusive); waited == nil {
				unlock = func() { lock.Release(exclusive) }
			}
			compiled = waited == nil && !e.cache.use(folder)
		}
		return compiled
	})
	if err = cmp.Or(err, waited); err != nil {
		return nil, err
	}
	if dir != "" {
		p.Folder = e.cache.folder(p.Code)
	}
	switch {
	case compiled && locked:
		err = e.cache.replace(dir, p.Folder)
	case compiled:
		err = e.cache.keep(dir, p.Folder)
	}
	e.identify(p, module, digest, limits)
	return p, err
}

// rewriting returns the options that modules are read with.
func (e *Engine) rewriting(l Limits) RewriteOptions {
	return RewriteOptions{MemoryPages: l.MemoryPages, Depth: l.Depth, Profile: e.observers.Profile != nil, Explain: explained}
}

// identify completes what Read returns.
func (e *Engine) identify(p *Prepared, module []byte, digest Digest, limits Limits) {
	p.Digest, p.Limits = digest, limits
	if e.machine && (e.observers.Profile != nil || e.observers.Source != nil) {
		p.Module = module
	}
}

// loadHere calls load while no other load puts code of that module into its folder.
func (e *Engine) loadHere(ctx context.Context, p *Prepared, load func(*Prepared) error) error {
	lock := e.compiling[p.Digest[0]]
	if err := lock.Acquire(ctx, 1); err != nil {
		return err
	}
	defer lock.Release(1)
	return load(p)
}

// Unread returns a module that the engine which loads it, perhaps in another process, checks and rewrites
// itself.
func (e *Engine) Unread(wasmBytes []byte, limits Limits) (*Prepared, error) {
	limits, err := e.complete(limits)
	return &Prepared{Digest: Sum(wasmBytes), Module: wasmBytes, Limits: limits}, err
}

// The limits of the gate, its findings in a module, and its reason to refuse one.
// GateInfo has the counts of an accepted module, and Headroom compares one count with
// its limit.
type (
	GateLimits = rewrite.Limits
	GateInfo   = rewrite.Info
	Headroom   = rewrite.Headroom
	Refusal    = rewrite.Refusal
)

// Strip is the hint for a module that is too large.
const Strip = rewrite.Strip

// DefaultGateLimits returns the bounds of the gate.
func DefaultGateLimits() GateLimits { return rewrite.DefaultLimits() }

// The options and the result of rewriting a module.
type (
	RewriteOptions = rewrite.Options
	Rewritten      = rewrite.Result
)

// Rewrite checks a module and rewrites its code to behave the same everywhere: exact fuel,
// depth, and one bit pattern for every NaN. spec/determinism.md describes it.
func Rewrite(ctx context.Context, module []byte, l GateLimits, o RewriteOptions) (*Rewritten, error) {
	return rewrite.Rewrite(work.For(ctx, len(module)), module, l, o)
}

// CostTableVersion names the table of instruction costs.
const CostTableVersion = rewrite.CostTableVersion

// A page of linear memory in bytes, and how many a module can have.
const (
	PageSize = wasm.PageSize
	MaxPages = wasm.MaxPages
)

// Pages returns the number of pages that hold the given number of bytes.
func Pages(bytes uint64) uint64 { return wasm.Pages(bytes) }

// CheckCacheFolder makes the folder of a cache, and refuses one that another user could
// write to.
func CheckCacheFolder(dir string) error { return cachefile.Folder(dir) }

// accepted passes a module to the engine. If the engine refuses or panics, the module is
// refused: a panic is a bug of the engine that the module triggers, and the process lives.
func accepted(take func() error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = refuse("the engine panics when it compiles it", "")
		}
	}()
	if err = take(); err != nil && !errors.Is(err, abi.ErrHost) {
		err = refuse("the engine cannot compile it: "+err.Error(), "")
	}
	return err
}

func refuse(what, hint string) *rewrite.Refusal {
	return &rewrite.Refusal{What: what, Func: -1, Offset: -1, Hint: hint}
}
