package sandbox

import (
	"context"

	"github.com/starling-host/starling/internal/hint"
)

// The interface to the engine. On every system but js the engine is wazero, and these
// interfaces are the used part of its types; see wazero.go. On js it is the engine that
// executes this program, which is WebAssembly itself; see javascript.go.
type (
	// executable is a module compiled by the engine.
	executable interface {
		// instantiate makes an instance that runs nothing by itself.
		instantiate(i *instance) (running, error)
		close(ctx context.Context) error
	}

	// running is a module in memory.
	running interface {
		memory() memory
		global(name string) global // nil if it is not exported, or not mutable
		function(name string) function
		close()
	}

	memory interface {
		Size() uint32 // in bytes
		Grow(pages uint32) (before uint32, ok bool)
		Write(offset uint32, b []byte) bool
		// Read returns a view, or a copy, that is valid until the guest runs again and must
		// not be written.
		Read(offset, length uint32) ([]byte, bool)
	}

	global interface {
		Type() byte
		Get() uint64
		Set(uint64)
	}

	function interface {
		CallWithStack(ctx context.Context, stack []uint64) error
	}
)

// ErrTooDeep is the cause of a call without an outcome, because the engine's own call stack
// is too small for it. This is not the guest's failure: another engine decides.
var ErrTooDeep = hint.New("the engine's own call stack is too small for this call", "use the compiler, which has a larger stack: --engine compiler")
