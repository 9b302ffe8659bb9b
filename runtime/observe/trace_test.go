package observe_test

import (
	"context"
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

	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/eventlog/logtest"
	"github.com/starling-host/starling/runtime/observe"
)

func newTracer(t *testing.T) (*observe.Tracer, *tracetest.SpanRecorder) {
	t.Helper()
	spans := tracetest.NewSpanRecorder()
	p := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans))
	t.Cleanup(func() { p.Shutdown(context.WithoutCancel(t.Context())) })
	return observe.NewTracer(p), spans
}

// aRun makes the spans of a run of two turns; the first calls a tool that
// fails once, and one that the model has invented.
func aRun(ctx context.Context, t *observe.Tracer) {
	ctx, r := t.StartRun(ctx, "acme/R1", nil)
	defer r.End()
	chain := logtest.Chain{RunID: "acme/R1", Clock: 1e18}
	record := func(p event.Payload) {
		if r != nil {
			r.Recorded(chain.Next(p))
		}
	}
	record(event.RunStarted{
		SchemaVersion: event.SchemaVersion, ProviderID: "gemini", ModelID: "gemini-3.8-flash", Goal: "secret",
		ToolSchemas: []event.ToolSchemaRef{{Name: "search", SchemaHash: make([]byte, 32)}}, Request: &event.RequestOptions{MaxOutputTokens: 500},
	})
	record(event.TurnStarted{TurnID: "T1"})
	record(event.AssistantMessageCompleted{
		TurnID: "T1", Text: "secret", StopReason: "tool_use", ProviderRequestID: "req_1",
		InputTokens: 100, OutputTokens: 20, CacheReadTokens: 60, CacheCreateTokens: 5, CostUSD: 0.25,
	})
	invented := event.ToolCallScheduled{CallID: "C2", TurnID: "T1", ToolName: "secret", Args: canon.Raw("\xa0"), Attempt: 1}
	call := event.ToolCallScheduled{CallID: "C1", TurnID: "T1", ToolName: "search", Args: canon.Raw("\xa0"), Attempt: 1}
	meter := event.Meter{Fuel: 1000, PeakMemory: 65536, Log: "secret"}
	record(call)
	record(invented)
	record(event.SideEffectRecorded{Name: "secret", Value: canon.Raw("\xf6"), CallID: "C1", Request: []byte("secret")})
	record(event.ToolCallFailed{CallID: "C2", Attempt: 1, ErrorType: "tool", Error: "secret", Final: true})
	record(event.ToolCallFailed{CallID: "C1", Attempt: 1, ErrorType: "timeout", Error: "secret", Meter: meter})
	call.Attempt = 2
	record(call)
	if r != nil {
		in := r.Within(ctx, "C1")
		_, own := trace.SpanFromContext(in).TracerProvider().Tracer("starling").Start(in, "own")
		own.End()
	}
	record(event.ToolCallCompleted{CallID: "C1", Attempt: 2, Result: canon.Raw("\xf6"), Meter: meter})
	record(event.TurnStarted{TurnID: "T2"})
	value, _ := canon.Marshal(event.ModelFailure{TurnID: "T2", Attempt: 1, Class: "rate_limit", Error: "the server said: 'secret'", Final: true})
	record(event.SideEffectRecorded{Name: event.EffectModel, Value: value})
	record(event.RunFailed{ErrorType: "provider", Error: "secret"})
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
      . starling.cost_usd = 0.25
      . gen_ai.usage.cache_read.input_tokens = 60
      . gen_ai.usage.cache_creation.input_tokens = 5
      . gen_ai.response.id = req_1
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
      own (internal) Unset 
  agent.turn (internal) Error rate_limit
    . starling.turn_id = T2
    . error.type = rate_limit
    provider.stream (client) Error rate_limit
      . gen_ai.operation.name = chat
      . gen_ai.request.stream = true
      . gen_ai.provider.name = gcp.gemini
      . gen_ai.request.model = gemini-3.8-flash
      . gen_ai.request.max_tokens = 500
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
		end  event.Payload
		want string
	}{
		{"completed", event.RunCompleted{}, ""},
		{"cancelled", event.RunCancelled{}, "cancelled"},
		{"failed", event.RunFailed{ErrorType: "max_turns"}, "max_turns"},
		{"failed of something new", event.RunFailed{ErrorType: "secret"}, "other"},
		{"stopped without a terminal event", nil, "internal"},
	} {
		tracer, spans := newTracer(t)
		_, r := tracer.StartRun(t.Context(), "R", nil)
		chain := logtest.Chain{RunID: "R"}
		r.Recorded(chain.Next(event.RunStarted{SchemaVersion: event.SchemaVersion, ToolSchemas: []event.ToolSchemaRef{}}))
		r.Recorded(chain.Next(event.TurnStarted{TurnID: "T"}))
		if tc.end != nil {
			r.Recorded(chain.Next(tc.end))
		}
		r.End()
		all := spans.Ended()
		if got := all[len(all)-1].Status().Description; got != tc.want || len(all) != 3 {
			t.Errorf("%s: %q, want %q, the last of %d spans", tc.name, got, tc.want, len(all))
		}
	}
}

// TestAContinuedRunHasNoSpansOfEarlierEvents continues a run whose process died in a call.
func TestAContinuedRunHasNoSpansOfEarlierEvents(t *testing.T) {
	tracer, spans := newTracer(t)
	chain := logtest.Chain{RunID: "R"}
	started := event.RunStarted{SchemaVersion: event.SchemaVersion, ToolSchemas: []event.ToolSchemaRef{{Name: "search", SchemaHash: make([]byte, 32)}}}
	call := event.ToolCallScheduled{CallID: "C1", TurnID: "T", ToolName: "search", Args: canon.Raw("\xa0"), Attempt: 1}
	_, r := tracer.StartRun(t.Context(), "R", []event.Event{chain.Next(started), chain.Next(call)})
	again := call
	again.CallID = "C2"
	for _, p := range []event.Payload{event.RunResumed{AtSeq: 2}, again, event.ToolCallCompleted{CallID: "C2", Attempt: 1, Result: canon.Raw("\xf6")}, event.RunCompleted{}} {
		r.Recorded(chain.Next(p))
	}
	r.End()
	want := `agent.run (internal) Unset 
  . starling.run_id = R
  . starling.terminal = RunCompleted
  step.tool (internal) Unset 
    . gen_ai.operation.name = execute_tool
    . gen_ai.tool.name = search
    . gen_ai.tool.type = function
    . gen_ai.tool.call.id = C2
    . starling.attempt = 1
`
	if diff := cmp.Diff(want, draw(spans.Ended())); diff != "" {
		t.Errorf("want (-), got (+):\n%s", diff)
	}
}

func TestAttributesAreBounded(t *testing.T) {
	tracer, spans := newTracer(t)
	_, r := tracer.StartRun(t.Context(), "R", nil)
	chain := logtest.Chain{RunID: "R"}
	name := strings.Repeat("å", 5000)
	r.Recorded(chain.Next(event.RunStarted{SchemaVersion: event.SchemaVersion, ToolSchemas: []event.ToolSchemaRef{{Name: name}}}))
	r.Recorded(chain.Next(event.ToolCallScheduled{CallID: name, TurnID: "T", ToolName: name, Args: canon.Raw("\xa0"), Attempt: 1}))
	r.Recorded(chain.Next(event.ToolCallCompleted{CallID: name, Attempt: 1, Result: canon.Raw("\xf6"), Meter: event.Meter{Fuel: math.MaxUint64}}))
	r.End()
	for _, kv := range spans.Ended()[0].Attributes() {
		if len(kv.Value.String()) > 128 || strings.Contains(kv.Value.String(), "\xff") || kv.Value.Type() == attribute.INT64 && kv.Value.AsInt64() < 0 {
			t.Errorf("%s = %q", kv.Key, kv.Value.String())
		}
	}
}
