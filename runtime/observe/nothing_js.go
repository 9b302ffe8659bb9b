package observe

import (
	"context"
	"time"

	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/runtime/step"
)

// On js nothing is measured: a program there verifies runs, which are replayed.

// Metrics measure nothing.
type Metrics struct{}

// RunStarted does nothing.
func (*Metrics) RunStarted() {}

// RunResumed does nothing.
func (*Metrics) RunResumed() {}

// RunEnded does nothing.
func (*Metrics) RunEnded(event.Kind, string, time.Duration) {}

// ObserveProviderCall does nothing.
func (*Metrics) ObserveProviderCall(string, string, time.Duration, int64, int64) {}

// ObserveToolCall does nothing.
func (*Metrics) ObserveToolCall(string, string, string, time.Duration) {}

// ObserveEventlogAppend does nothing.
func (*Metrics) ObserveEventlogAppend(string, string, time.Duration) {}

// ObserveBudgetExceeded does nothing.
func (*Metrics) ObserveBudgetExceeded(string) {}

// Tracer makes no spans.
type Tracer struct{}

// StartRun returns the context.
func (*Tracer) StartRun(ctx context.Context, _ string, _ []event.Event) (context.Context, *RunTrace) {
	return ctx, nil
}

// RunTrace makes no spans.
type RunTrace struct{ step.Tracer }

// End does nothing.
func (*RunTrace) End() {}
