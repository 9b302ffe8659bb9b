package observe

import (
	"context"
	"errors"

	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/runtime/budget"
	"github.com/starling-host/starling/runtime/provider"
)

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
		return errorBudget
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
	return errorProvider
}
