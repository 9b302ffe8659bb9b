package tool

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/starling-host/starling/eventlog/event"
)

// Tool is something that an agent may call. Implementations must be safe for
// concurrent use.
type Tool interface {
	// Name identifies the tool within one agent and in the log.
	Name() string

	// Description tells a model what the tool is for.
	Description() string

	// Schema is the JSON Schema of the input.
	Schema() json.RawMessage

	// Execute runs the tool. The input is canonical JSON and belongs to the
	// tool; what the tool does to it never reaches the log. An empty result
	// stands for null. A tool that reads a clock, draws randomness or touches
	// the world does so through package step, with this ctx.
	Execute(ctx context.Context, input json.RawMessage) (json.RawMessage, error)
}

// Sandboxed is a tool that can reach the world only through recorded effects.
// The runtime relies on that: it lets a sandboxed tool start before the log is
// known to be durable, because the first effect waits for it.
type Sandboxed interface {
	Tool

	// Sandbox is what determines the tool's bytes beside its input and its
	// effects. It must not change while the tool is in use.
	Sandbox() *event.Sandbox
}

// Wrapper is a tool around another tool.
type Wrapper interface {
	Tool

	// Unwrap returns the inner tool.
	Unwrap() Tool
}

// SandboxOf returns the sandbox of t, or of the tool that t wraps, or nil when
// there is none.
func SandboxOf(t Tool) *event.Sandbox {
	for t != nil {
		if s, ok := t.(Sandboxed); ok {
			return s.Sandbox()
		}
		w, ok := t.(Wrapper)
		if !ok {
			return nil
		}
		t = w.Unwrap()
	}
	return nil
}

// The classes of failure.
var (
	// ErrPanicked: the tool panicked, or its module trapped.
	ErrPanicked = errors.New("tool: panicked")

	// ErrTransient: the same call may succeed when it is made again. Only a
	// call of which the caller says that it may be repeated ever is.
	ErrTransient = errors.New("tool: transient failure")

	// ErrTimeout: a deadline of the host ended the call.
	ErrTimeout = errors.New("tool: deadline exceeded")

	// ErrCancelled: the caller ended the call.
	ErrCancelled = errors.New("tool: cancelled")

	// ErrFuel: the call spent its fuel.
	ErrFuel = errors.New("tool: out of fuel")

	// ErrLimit: the call ran into another of its limits.
	ErrLimit = errors.New("tool: limit reached")

	// ErrMemory and ErrEffects are [ErrLimit] of the two limits that callers raise most:
	// linear memory, and the number of effects.
	ErrMemory, ErrEffects error = &limitError{}, &limitError{}

	// ErrLost: the call was being made in another process, and that process
	// died or had to be ended.
	ErrLost = errors.New("tool: lost")

	// ErrHost: the host could not make the call, or not to its end, and nobody
	// knows what would have come of it. It is no outcome, and so the one class
	// that is never recorded: the run stops where it is.
	ErrHost = errors.New("tool: host failure")
)

// limitError matches ErrLimit, and reads the same.
type limitError struct{ _ byte } // of a size, so that two of them are not equal

func (*limitError) Error() string        { return ErrLimit.Error() }
func (*limitError) Is(target error) bool { return target == ErrLimit }

// Recover turns a panic into an error that wraps [ErrPanicked], and the
// panic's value when that is an error. The text has no stack, so that the same
// panic is the same text on replay. It must be deferred directly:
//
//	defer tool.Recover(&err)
func Recover(err *error) {
	switch v := recover().(type) {
	case nil:
	case error:
		*err = fmt.Errorf("%w: %w", ErrPanicked, v)
	default:
		*err = fmt.Errorf("%w: %v", ErrPanicked, v)
	}
}
