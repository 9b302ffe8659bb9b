package sandbox

import (
	"context"

	"github.com/starling-host/starling/eventlog/chain"
)

// Prepared is a module that was checked and compiled here, and that another
// process is to load with the same limits.
type Prepared struct {
	Digest  chain.Hash // see [Module.Digest]
	ABI     string     // see [Module.ABI]
	Imports []string   // see [Module.Imports]
	Limits  Limits     // see [Module.Limits]

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
	m, rewritten, err := e.check(wasmBytes, limits)
	if err != nil {
		return nil, err
	}
	if e.compile != nil {
		turn := &e.compiling[m.digest[0]]
		turn.Lock()
		defer turn.Unlock()
		if err := e.cache.fill(ctx, rewritten.Wasm, e.compile); err != nil {
			return nil, err
		}
	}
	return &Prepared{
		Digest: m.digest, ABI: m.abi, Imports: m.Imports(), Limits: m.limits,
		CacheDir: e.cache.root, Folder: e.cache.folder(rewritten.Wasm),
	}, nil
}
