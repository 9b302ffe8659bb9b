package eventlog

import (
	"context"

	"github.com/starling-host/starling/eventlog/chain"
)

// ModuleStore keeps the modules that runs name by digest, so that a log alone
// is enough to replay its runs.
type ModuleStore interface {
	// PutModule stores wasm and returns its BLAKE3-256 digest, once it is
	// durable. Storing a module again changes nothing.
	PutModule(ctx context.Context, wasm []byte) (chain.Hash, error)
	// Module returns the module with that digest, or [ErrModuleNotFound]. The
	// bytes are hashed again: other bytes than were asked for are
	// [ErrLogCorrupt].
	Module(ctx context.Context, digest chain.Hash) ([]byte, error)
	// HasModule reports whether the module is stored, without reading it.
	HasModule(ctx context.Context, digest chain.Hash) (bool, error)
}
