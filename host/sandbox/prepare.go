package sandbox

import (
	"context"
	"errors"

	"github.com/starling-host/starling/host/internal/rewrite"
	"github.com/starling-host/starling/host/internal/wasm"
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
	Size    int               // of the whole rewritten module, in bytes
	Data    []rewrite.Segment // see rewrite.Result; it may share memory with Prepare's input
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

// Prepare does the part of Load that executes nothing of the module: it checks, rewrites
// and compiles it, unless that was done before and kept. Then it calls load with the
// result, and returns its error. If that is ErrSpoiled, the code is made again. Other
// errors are as for Load.
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
	p, err := e.check(ctx, wasmBytes, digest, limits)
	if err != nil {
		return err
	}
	if p.Folder = e.cache.folder(p.Wasm); p.Folder == "" {
		return load(p)
	}
	if err = e.withCode(ctx, p, load); err == nil {
		e.cache.remember(key, p)
	}
	return err
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

// withCode compiles a module, unless its code exists, and loads its shell. Spoiled code
// is compiled again, unless another load has done so meanwhile. Another process that
// finds the same may spoil it once more.
func (e *Engine) withCode(ctx context.Context, p *Prepared, load func(*Prepared) error) (err error) {
	whole := p.Wasm
	if p.Wasm, err = rewrite.Shell(work.For(ctx, len(whole)), whole); err != nil {
		return err
	}
	compile := func(dir string) error { return e.compile(ctx, whole, dir) }
	lock := e.compiling[p.Digest[0]]
	if !e.cache.use(p.Folder) {
		if err := lock.Acquire(ctx, exclusive); err != nil {
			return err
		}
		err = e.cache.fill(p.Folder, compile)
		lock.Release(exclusive)
		if err != nil {
			return err
		}
	}
	if err := e.loadHere(ctx, p, load); !errors.Is(err, ErrSpoiled) {
		return err
	}
	if err := lock.Acquire(ctx, exclusive); err != nil {
		return err
	}
	defer lock.Release(exclusive)
	err = load(p)
	const attempts = 3 // because two processes may compile into the same folder at once
	for i := 0; i < attempts && errors.Is(err, ErrSpoiled); i++ {
		if err := errors.Join(empty(p.Folder), e.cache.fill(p.Folder, compile)); err != nil {
			return err
		}
		err = load(p)
	}
	return err
}

// Unread returns a module that the engine which loads it, perhaps in another process, checks and rewrites
// itself.
func (e *Engine) Unread(wasmBytes []byte, limits Limits) (*Prepared, error) {
	limits, err := e.complete(limits)
	return &Prepared{Digest: Sum(wasmBytes), Module: wasmBytes, Limits: limits}, err
}

// check gates and rewrites a module. The result is not compiled yet, and its data shares
// memory with wasmBytes.
func (e *Engine) check(ctx context.Context, wasmBytes []byte, digest Digest, limits Limits) (*Prepared, error) {
	rewritten, err := rewrite.Rewrite(work.For(ctx, len(wasmBytes)), wasmBytes, rewrite.DefaultLimits(), rewrite.Options{
		MemoryPages: limits.MemoryPages, Depth: limits.Depth, Profile: e.observers.Profile != nil, Explain: explained,
	})
	if err != nil {
		return nil, err
	}
	kind, err := checkExports(rewritten.Info)
	if err != nil {
		return nil, err
	}
	var module []byte
	if e.machine && (e.observers.Profile != nil || e.observers.Source != nil) {
		module = wasmBytes
	}
	return &Prepared{
		Module: module, Digest: digest, ABI: kind, Imports: importNames(rewritten.Info), Limits: limits,
		Wasm: rewritten.Wasm, Size: len(rewritten.Wasm), Data: rewritten.Data, Globals: rewritten.Globals, First: preparation(rewritten.Info, kind),
		Reserve: uint64(min(rewritten.Info.Memory.Max, limits.MemoryPages)) * wasm.PageSize,
	}, nil
}
