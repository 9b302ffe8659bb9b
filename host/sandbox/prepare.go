package sandbox

import (
	"context"
	"os"

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

	Wasm    []byte            // as it was rewritten; its rewrite.Shell if there is a Folder
	Size    int               // of the whole module, in bytes, as it was rewritten
	Data    []rewrite.Segment // see rewrite.Result; of the memory that was given to Prepare
	Globals []string          // see rewrite.Result
	First   []string          // the exports that run before every call, in their order
	Reserve uint64            // bytes of memory that an instance can have

	// Folder has the code, and nothing else. It is empty if the engine keeps none: then
	// who loads the module compiles it, or interprets it.
	Folder string
}

// Prepare does what Load does as far as nothing of the module is executed: it
// checks and rewrites it, and has it compiled unless that was done before or there is
// no folder to keep it in. The errors are those of Load.
func (e *Engine) Prepare(ctx context.Context, wasmBytes []byte, limits Limits) (*Prepared, error) {
	if !e.life.enter() {
		return nil, ErrClosed
	}
	defer e.life.leave()
	p, err := e.check(wasmBytes, limits)
	if err != nil {
		return nil, err
	}
	if p.Folder = e.cache.folder(p.Wasm); p.Folder == "" {
		return p, nil
	}
	if err := e.fill(ctx, p); err != nil {
		return nil, err
	}
	p.Wasm, err = rewrite.Shell(p.Wasm)
	return p, err
}

// fill has a module compiled into its folder, unless that was done before.
func (e *Engine) fill(ctx context.Context, p *Prepared) error {
	turn := &e.compiling[p.Digest[0]]
	turn.Lock()
	defer turn.Unlock()
	return fillFolder(ctx, p.Folder, p.Wasm, e.compile)
}

// PrepareAgain prepares a module whose prepared form did not load: its code may be a file that
// was cut, by a full disk for example, so it is made once more.
func (e *Engine) PrepareAgain(ctx context.Context, wasmBytes []byte, spoiled *Prepared) (*Prepared, error) {
	if err := os.RemoveAll(spoiled.Folder); err != nil {
		return nil, hostFailed(err)
	}
	return e.Prepare(ctx, wasmBytes, spoiled.Limits)
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
		Wasm: rewritten.Wasm, Size: len(rewritten.Wasm), Data: rewritten.Data, Globals: rewritten.Globals, First: preparation(rewritten.Info, kind),
		Reserve: uint64(min(rewritten.Info.Memory.Max, limits.MemoryPages)) * wasm.PageSize,
	}, nil
}
