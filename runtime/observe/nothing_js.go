package observe

import (
	"context"
	"time"

	"github.com/starling-host/starling/eventlog/event"
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
func (*Tracer) StartRun(ctx context.Context, _ Run) (context.Context, func(RunEnd)) {
	return ctx, func(RunEnd) {}
}

// StartTurn returns the context.
func (*Tracer) StartTurn(ctx context.Context, _ string) (context.Context, func(string)) {
	return ctx, func(string) {}
}

// StartProvider returns the context.
func (*Tracer) StartProvider(ctx context.Context, _ Call) (context.Context, func(CallEnd)) {
	return ctx, func(CallEnd) {}
}

// StartTool returns the context.
func (*Tracer) StartTool(ctx context.Context, _ ToolCall) (context.Context, func(ToolEnd)) {
	return ctx, func(ToolEnd) {}
}
