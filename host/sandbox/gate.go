package sandbox

import (
	"context"
	"errors"

	"github.com/starling-host/starling/abi"
	"github.com/starling-host/starling/host/internal/cachefile"
	"github.com/starling-host/starling/host/internal/rewrite"
	"github.com/starling-host/starling/internal/wasm"
	"github.com/starling-host/starling/internal/work"
)

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
