package sandbox

import (
	"context"

	"github.com/starling-host/starling/eventlog/chain"
	"github.com/starling-host/starling/host/rewrite"
	"github.com/starling-host/starling/host/wasm"
)

// Prepared is a module that was checked and rewritten, and that any process may load
// with the same limits: all that [Engine.LoadPrepared] has to know.
type Prepared struct {
	Digest  chain.Hash // see [Module.Digest]
	ABI     string     // see [Module.ABI]
	Imports []string   // see [Module.Imports]
	Limits  Limits     // see [Module.Limits]

	Wasm    []byte            // as it was rewritten
	Data    []rewrite.Segment // see rewrite.Result; of the memory that was given to Prepare
	Globals []string          // see rewrite.Result
	First   []string          // the exports that run before every call, in their order
	Reserve uint64            // bytes of memory that an instance can have

	// CacheDir is where an engine finds the code, as its Config.CacheDir. Folder,
	// in it, is all that it reads there. Both are empty if there is no such place.
	CacheDir string
	Folder   string
}

// Prepare does what Load does as far as nothing of the module is executed: it
// checks and rewrites it, and has Config.Compile compile it unless that was done
// before. The errors are those of Load.
func (e *Engine) Prepare(ctx context.Context, wasmBytes []byte, limits Limits) (*Prepared, error) {
	if !e.life.enter() {
		return nil, ErrClosed
	}
	defer e.life.leave()
	p, err := e.check(wasmBytes, limits)
	if err != nil {
		return nil, err
	}
	if e.compile != nil {
		turn := &e.compiling[p.Digest[0]]
		turn.Lock()
		defer turn.Unlock()
		if err := e.cache.fill(ctx, p.Wasm, e.compile); err != nil {
			return nil, err
		}
	}
	p.CacheDir, p.Folder = e.cache.root, e.cache.folder(p.Wasm)
	return p, nil
}

// check gates and rewrites a module. What it returns is not compiled yet, and its data is
// that of wasmBytes.
func (e *Engine) check(wasmBytes []byte, limits Limits) (*Prepared, error) {
	limits, err := complete(limits)
	if err != nil {
		return nil, err
	}
	rewritten, err := rewrite.Rewrite(wasmBytes, rewrite.DefaultLimits(), rewrite.Options{
		MemoryPages: limits.MemoryPages, Depth: limits.Depth, Profile: e.profile != nil,
	})
	if err != nil {
		return nil, err
	}
	kind, err := checkExports(rewritten.Info)
	if err != nil {
		return nil, err
	}
	return &Prepared{
		Digest: chain.Sum(wasmBytes), ABI: kind, Imports: importNames(rewritten.Info), Limits: limits,
		Wasm: rewritten.Wasm, Data: rewritten.Data, Globals: rewritten.Globals, First: preparation(rewritten.Info, kind),
		Reserve: uint64(min(rewritten.Info.Memory.Max, limits.MemoryPages)) * wasm.PageSize,
	}, nil
}
