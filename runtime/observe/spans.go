package observe

import (
	"context"
	"errors"

	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/runtime/internal/budget"
	"github.com/starling-host/starling/runtime/provider"
)

// Run describes a run that begins. Empty fields are left out, here and in the
// other descriptions. A run of one tool has neither provider nor model.
type Run struct {
	RunID    string // shown without its namespace, which is the name of a tenant
	Provider string // provider.Info.ID
	Model    string
}

// RunEnd describes the end of a run.
type RunEnd struct {
	Terminal     event.Kind // zero if it stopped without a terminal event
	ErrorType    string     // of RunFailed
	InputTokens  int64
	OutputTokens int64
	CostUSD      float64
}

// Call describes a request to a provider.
type Call struct {
	Provider        string // provider.Info.ID
	Model           string
	MaxOutputTokens int
}

// CallEnd describes the end of a response. Fields that are unknown after a failure are left
// zero.
type CallEnd struct {
	Usage      provider.Usage
	CostUSD    float64
	StopReason string
	RequestID  string
	Err        error
}

// ToolCall describes an attempt of a tool.
type ToolCall struct {
	CallID  string
	Tool    string
	Attempt uint32
}

// ToolEnd describes the end of an attempt.
type ToolEnd struct {
	ErrorType  string // an Error constant of package event, or ""
	Fuel       uint64
	PeakMemory uint64
}

// ProviderErrorType returns the type of an error of a provider: its class
// (rate_limit, auth, server or network), cancelled or timeout if a context
// ended, budget for a [*budget.Exceeded], and provider for any other. It is ""
// for nil.
func ProviderErrorType(err error) string {
	var exceeded *budget.Exceeded
	switch {
	case err == nil:
		return ""
	case errors.As(err, &exceeded):
		return event.ErrorBudget
	case errors.Is(err, provider.ErrRateLimit):
		return errorRateLimit
	case errors.Is(err, provider.ErrAuth):
		return errorAuth
	case errors.Is(err, provider.ErrServer):
		return errorServer
	case errors.Is(err, provider.ErrNetwork):
		return errorNetwork
	case errors.Is(err, context.Canceled):
		return event.ErrorCancelled
	case errors.Is(err, context.DeadlineExceeded):
		return event.ErrorTimeout
	}
	return event.ErrorProvider
}
