package observe_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	semconv "go.opentelemetry.io/otel/semconv/v1.41.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/runtime/internal/budget"
	"github.com/starling-host/starling/runtime/observe"
	"github.com/starling-host/starling/runtime/provider"
)

func newTracer(t *testing.T) (*observe.Tracer, *tracetest.SpanRecorder) {
	t.Helper()
	spans := tracetest.NewSpanRecorder()
	p := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans))
	t.Cleanup(func() { p.Shutdown(context.WithoutCancel(t.Context())) })
	return observe.NewTracer(p), spans
}

// aRun makes the spans of a run of two turns; the first calls a tool that
// fails once.
func aRun(ctx context.Context, t *observe.Tracer) {
	ctx, endRun := t.StartRun(ctx, observe.Run{RunID: "acme/R1", Provider: "gemini", Model: "gemini-3.8-flash"})
	turn, endTurn := t.StartTurn(ctx, "T1")
	_, endCall := t.StartProvider(turn, observe.Call{Provider: "gemini", Model: "gemini-3.8-flash", MaxOutputTokens: 500})
	endCall(observe.CallEnd{
		Usage: provider.Usage{InputTokens: 100, OutputTokens: 20, CacheReadTokens: 60, CacheCreateTokens: 5}, CostUSD: 0.25, StopReason: "tool_use", RequestID: "req_1",
	})
	for attempt, errorType := range []string{"timeout", ""} {
		_, endTool := t.StartTool(turn, observe.ToolCall{CallID: "C1", Tool: "search", Attempt: uint32(attempt + 1)})
		endTool(observe.ToolEnd{ErrorType: errorType, Fuel: 1000, PeakMemory: 65536})
	}
	endTurn("")
	turn, endTurn = t.StartTurn(ctx, "T2")
	_, endCall = t.StartProvider(turn, observe.Call{Provider: "gemini", Model: "gemini-3.8-flash"})
	endCall(observe.CallEnd{Err: fmt.Errorf("%w: the server said: 'secret'", provider.ErrRateLimit)})
	endTurn("provider")
	endRun(observe.RunEnd{Terminal: event.KindRunFailed, ErrorType: "provider", InputTokens: 100, OutputTokens: 20, CostUSD: 0.25})
}

// draw writes spans as a tree, in the order in which they began.
func draw(spans []sdktrace.ReadOnlySpan) string {
	slices.SortStableFunc(spans, func(a, b sdktrace.ReadOnlySpan) int { return a.StartTime().Compare(b.StartTime()) })
	var text strings.Builder
	var under func(parent trace.SpanID, depth int)
	under = func(parent trace.SpanID, depth int) {
		for _, s := range spans {
			if s.Parent().SpanID() != parent {
				continue
			}
			fmt.Fprintf(&text, "%s%s (%s) %s %s\n", strings.Repeat("  ", depth), s.Name(), s.SpanKind(), s.Status().Code, s.Status().Description)
			for _, kv := range s.Attributes() {
				fmt.Fprintf(&text, "%s. %s = %s\n", strings.Repeat("  ", depth+1), kv.Key, kv.Value.String())
			}
			under(s.SpanContext().SpanID(), depth+1)
		}
	}
	under(trace.SpanID{}, 0)
	return text.String()
}

func TestSpanTree(t *testing.T) {
	tracer, spans := newTracer(t)
	aRun(t.Context(), tracer)
	want := `agent.run (internal) Error provider
  . starling.run_id = R1
  . gen_ai.operation.name = invoke_agent
  . gen_ai.conversation.id = R1
  . gen_ai.provider.name = gcp.gemini
  . gen_ai.request.model = gemini-3.8-flash
  . starling.terminal = RunFailed
  . gen_ai.usage.input_tokens = 100
  . gen_ai.usage.output_tokens = 20
  . starling.cost_usd = 0.25
  . error.type = provider
  agent.turn (internal) Unset 
    . starling.turn_id = T1
    provider.stream (client) Unset 
      . gen_ai.operation.name = chat
      . gen_ai.request.stream = true
      . gen_ai.provider.name = gcp.gemini
      . gen_ai.request.model = gemini-3.8-flash
      . gen_ai.request.max_tokens = 500
      . gen_ai.usage.input_tokens = 100
      . gen_ai.usage.output_tokens = 20
      . gen_ai.usage.cache_read.input_tokens = 60
      . gen_ai.usage.cache_creation.input_tokens = 5
      . gen_ai.response.id = req_1
      . starling.cost_usd = 0.25
      . gen_ai.response.finish_reasons = ["tool_use"]
    step.tool (internal) Error timeout
      . gen_ai.operation.name = execute_tool
      . gen_ai.tool.name = search
      . gen_ai.tool.type = function
      . gen_ai.tool.call.id = C1
      . starling.attempt = 1
      . starling.fuel = 1000
      . starling.peak_memory = 65536
      . error.type = timeout
    step.tool (internal) Unset 
      . gen_ai.operation.name = execute_tool
      . gen_ai.tool.name = search
      . gen_ai.tool.type = function
      . gen_ai.tool.call.id = C1
      . starling.attempt = 2
      . starling.fuel = 1000
      . starling.peak_memory = 65536
  agent.turn (internal) Error provider
    . starling.turn_id = T2
    . error.type = provider
    provider.stream (client) Error rate_limit
      . gen_ai.operation.name = chat
      . gen_ai.request.stream = true
      . gen_ai.provider.name = gcp.gemini
      . gen_ai.request.model = gemini-3.8-flash
      . error.type = rate_limit
`
	if diff := cmp.Diff(want, draw(spans.Ended())); diff != "" {
		t.Errorf("want (-), got (+):\n%s", diff)
	}
	for _, s := range spans.Ended() {
		if got := s.InstrumentationScope().Name; got != "starling" {
			t.Errorf("%s is in the scope %q", s.Name(), got)
		}
	}
}

// TestNamesOfOpenTelemetry compares the attributes of a run, except our own,
// with the semantic conventions.
func TestNamesOfOpenTelemetry(t *testing.T) {
	tracer, spans := newTracer(t)
	aRun(t.Context(), tracer)
	got := map[attribute.Key]bool{}
	for _, s := range spans.Ended() {
		for _, kv := range s.Attributes() {
			if !strings.HasPrefix(string(kv.Key), "starling.") {
				got[kv.Key] = true
			}
		}
	}
	want := []attribute.Key{
		semconv.ErrorTypeKey, semconv.GenAIConversationIDKey, semconv.GenAIOperationNameKey,
		semconv.GenAIProviderNameKey, semconv.GenAIRequestMaxTokensKey, semconv.GenAIRequestModelKey, semconv.GenAIRequestStreamKey,
		semconv.GenAIResponseFinishReasonsKey, semconv.GenAIResponseIDKey, semconv.GenAIToolCallIDKey, semconv.GenAIToolNameKey,
		semconv.GenAIToolTypeKey, semconv.GenAIUsageCacheCreationInputTokensKey, semconv.GenAIUsageCacheReadInputTokensKey,
		semconv.GenAIUsageInputTokensKey, semconv.GenAIUsageOutputTokensKey,
	}
	slices.Sort(want)
	if diff := cmp.Diff(want, slices.Sorted(maps.Keys(got))); diff != "" {
		t.Errorf("want (-), got (+):\n%s", diff)
	}
}

func TestNilTracer(t *testing.T) {
	aRun(t.Context(), nil)
	if observe.NewTracer(nil) != nil {
		t.Error("a tracer without a provider")
	}
	_, spans := newTracer(t)
	outer, end := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans)).Tracer("x").Start(t.Context(), "outer")
	aRun(outer, nil)
	end.End()
	if got := spans.Ended(); len(got) != 1 || got[0].Status().Code != codes.Unset || len(got[0].Attributes()) != 0 {
		t.Errorf("without a tracer the span around the run became %v", got)
	}
}

func TestEndOfARunSpan(t *testing.T) {
	for _, tc := range []struct {
		name string
		end  observe.RunEnd
		want string
	}{
		{"completed", observe.RunEnd{Terminal: event.KindRunCompleted}, ""},
		{"cancelled", observe.RunEnd{Terminal: event.KindRunCancelled}, "cancelled"},
		{"failed", observe.RunEnd{Terminal: event.KindRunFailed, ErrorType: "max_turns"}, "max_turns"},
		{"failed of something new", observe.RunEnd{Terminal: event.KindRunFailed, ErrorType: "\xff secret"}, "other"},
		{"stopped without a terminal event", observe.RunEnd{}, "internal"},
	} {
		tracer, spans := newTracer(t)
		_, end := tracer.StartRun(t.Context(), observe.Run{})
		end(tc.end)
		if got := spans.Ended()[0].Status().Description; got != tc.want {
			t.Errorf("%s: %q, want %q", tc.name, got, tc.want)
		}
	}
}

func TestAttributesAreBounded(t *testing.T) {
	tracer, spans := newTracer(t)
	_, end := tracer.StartTool(t.Context(), observe.ToolCall{Tool: strings.Repeat("å", 100_000), CallID: "\xff\xfe"})
	end(observe.ToolEnd{Fuel: math.MaxUint64})
	for _, kv := range spans.Ended()[0].Attributes() {
		if len(kv.Value.String()) > 128 || strings.Contains(kv.Value.String(), "\xff") || kv.Value.Type() == attribute.INT64 && kv.Value.AsInt64() < 0 {
			t.Errorf("%s = %q", kv.Key, kv.Value.String())
		}
	}
}

func TestProviderErrorType(t *testing.T) {
	for want, err := range map[string]error{
		"":           nil,
		"rate_limit": fmt.Errorf("x: %w", provider.ErrRateLimit),
		"auth":       provider.ErrAuth,
		"server":     provider.ErrServer,
		"network":    provider.ErrNetwork,
		"cancelled":  context.Canceled,
		"timeout":    context.DeadlineExceeded,
		"budget":     fmt.Errorf("x: %w", &budget.Exceeded{}),
		"provider":   errors.New("status 400"),
	} {
		if got := observe.ProviderErrorType(err); got != want {
			t.Errorf("%v: %q, want %q", err, got, want)
		}
	}
}
