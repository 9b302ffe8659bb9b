package step

import (
	"context"
	"errors"
	"fmt"

	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/runtime/provider"
	"github.com/starling-host/starling/runtime/tool"
)

var (
	// ErrBudgetExceeded is wrapped by the error of a run that has passed a cap. The
	// BudgetExceeded event says which.
	ErrBudgetExceeded = errors.New("step: budget exceeded")

	// ErrInvalidStream is wrapped by the error of a provider that broke the rules
	// of a stream.
	ErrInvalidStream = errors.New("step: invalid provider stream")

	// ErrMissingRawResponseHash: Config.RequireRawResponseHash is set, and the
	// provider did not say what it had received.
	ErrMissingRawResponseHash = errors.New("step: provider returned empty RawResponseHash")

	errAnswerTooLarge = fmt.Errorf("step: %w", tool.ErrLimit)
)

// ModelError is a turn without an answer, as it is in the log. In a replay Err has
// the recorded text alone.
type ModelError struct {
	Failure event.ModelFailure // of the last attempt
	Err     error
}

// Error returns the recorded text.
func (e *ModelError) Error() string { return e.Failure.Error }

// Unwrap returns the provider's own error.
func (e *ModelError) Unwrap() error { return e.Err }

// Is reports whether target is the sentinel of the failure's class.
func (e *ModelError) Is(target error) bool {
	for _, c := range modelClasses {
		if c.name == e.Failure.Class && c.sentinel == target {
			return true
		}
	}
	return false
}

// modelClasses are the classes of failure as they are recorded.
var modelClasses = []struct {
	name     string
	sentinel error
}{
	{"rate_limit", provider.ErrRateLimit},
	{"auth", provider.ErrAuth},
	{"server", provider.ErrServer},
	{"network", provider.ErrNetwork},
	{"invalid_stream", ErrInvalidStream},
	{"no_hash", ErrMissingRawResponseHash},
	{event.ErrorLimit, tool.ErrLimit},
	{event.ErrorPanic, tool.ErrPanicked},
	{event.ErrorCancelled, context.Canceled},
	{event.ErrorTimeout, context.DeadlineExceeded},
}

// modelClass classifies the error of an attempt. When ctx has ended that is why,
// whatever the provider makes of it.
func modelClass(ctx context.Context, err error) string {
	if ctx.Err() != nil {
		return worldType(ctx.Err())
	}
	for _, c := range modelClasses {
		if errors.Is(err, c.sentinel) && !byWorld(c.name) {
			return c.name
		}
	}
	return "provider"
}
