//go:build !js

package observe

import (
	"context"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/starling-host/starling/eventlog/event"
)

// Tracer makes the spans of runs, and of requests to a server:
//
//	agent.run               agent.run, of one tool
//	└── agent.turn          └── step.tool
//	    ├── provider.stream
//	    └── step.tool
//
// Each Start method returns a context for what happens inside the span, and a
// function that must be called once, with how it ended. A span whose end has an
// error has the status Error and the type of the error, never its text.
//
// A nil *Tracer makes none. It is safe for concurrent use.
type Tracer struct{ tracer trace.Tracer }

// NewTracer returns a Tracer of the given provider of tracers, in the scope
// "starling". With nil it returns nil. The provider that a program has set for
// itself is otel.GetTracerProvider.
func NewTracer(p trace.TracerProvider) *Tracer {
	if p == nil {
		return nil
	}
	return &Tracer{p.Tracer(Scope)}
}

// StartRun begins the span of a run.
func (t *Tracer) StartRun(ctx context.Context, r Run) (context.Context, func(RunEnd)) {
	id := r.RunID[strings.LastIndexByte(r.RunID, '/')+1:]
	ctx, span := t.start(ctx, "agent.run", trace.SpanKindInternal, str("starling.run_id", id))
	if r.Model != "" {
		set(span, operation("invoke_agent"), str("gen_ai.conversation.id", id),
			str(attrProvider, providerName(r.Provider)), str(attrModel, r.Model))
	}
	return ctx, func(end RunEnd) {
		if end.Terminal != 0 {
			set(span, str("starling.terminal", end.Terminal.String()))
		}
		set(span, num(attrInput, end.InputTokens), num(attrOutput, end.OutputTokens), cost(end.CostUSD))
		finish(span, runErrorType(end))
	}
}

// runErrorType is "" for a run that completed.
func runErrorType(end RunEnd) string {
	switch end.Terminal {
	case event.KindRunCompleted:
		return ""
	case event.KindRunCancelled:
		return event.ErrorCancelled
	case event.KindRunFailed:
		return oneOf(end.ErrorType, errorTypes)
	}
	return event.ErrorInternal
}

// StartTurn begins the span of a turn. It ends with the type of the error that
// ended the turn, or with "".
func (t *Tracer) StartTurn(ctx context.Context, turnID string) (context.Context, func(errorType string)) {
	ctx, span := t.start(ctx, "agent.turn", trace.SpanKindInternal, str("starling.turn_id", turnID))
	return ctx, func(errorType string) { finish(span, errorType) }
}

// StartProvider begins the span of a request and the stream of its response.
func (t *Tracer) StartProvider(ctx context.Context, c Call) (context.Context, func(CallEnd)) {
	ctx, span := t.start(ctx, "provider.stream", trace.SpanKindClient, operation("chat"),
		attribute.Bool("gen_ai.request.stream", true), str(attrProvider, providerName(c.Provider)),
		str(attrModel, c.Model), num("gen_ai.request.max_tokens", int64(c.MaxOutputTokens)))
	return ctx, func(end CallEnd) {
		set(span, num(attrInput, end.Usage.InputTokens), num(attrOutput, end.Usage.OutputTokens),
			num("gen_ai.usage.cache_read.input_tokens", end.Usage.CacheReadTokens), num("gen_ai.usage.cache_creation.input_tokens", end.Usage.CacheCreateTokens),
			str("gen_ai.response.id", end.RequestID), cost(end.CostUSD))
		if end.StopReason != "" {
			set(span, attribute.StringSlice("gen_ai.response.finish_reasons", []string{bounded(end.StopReason)}))
		}
		finish(span, ProviderErrorType(end.Err))
	}
}

// StartTool begins the span of an attempt of a tool.
func (t *Tracer) StartTool(ctx context.Context, c ToolCall) (context.Context, func(ToolEnd)) {
	ctx, span := t.start(ctx, "step.tool", trace.SpanKindInternal, operation("execute_tool"),
		str("gen_ai.tool.name", c.Tool), str("gen_ai.tool.type", "function"), str("gen_ai.tool.call.id", c.CallID), num("starling.attempt", int64(c.Attempt)))
	return ctx, func(end ToolEnd) {
		set(span, unsigned("starling.fuel", end.Fuel), unsigned("starling.peak_memory", end.PeakMemory))
		finish(span, end.ErrorType)
	}
}

// start begins a span; without a Tracer, a span that records nothing. The
// context then stays unchanged, so that a span around ours keeps its own
// children.
func (t *Tracer) start(ctx context.Context, name string, kind trace.SpanKind, attrs ...attribute.KeyValue) (context.Context, trace.Span) {
	if t == nil {
		return ctx, trace.SpanFromContext(context.Background())
	}
	ctx, span := t.tracer.Start(ctx, name, trace.WithSpanKind(kind))
	set(span, attrs...)
	return ctx, span
}

// finish ends a span, as an error if there is one.
func finish(span trace.Span, errorType string) {
	if errorType != "" {
		errorType = oneOf(errorType, errorTypes)
		span.SetAttributes(attribute.String(attrError, errorType))
		span.SetStatus(codes.Error, errorType)
	}
	span.End()
}

// set sets the non-empty attributes.
func set(span trace.Span, attrs ...attribute.KeyValue) {
	span.SetAttributes(slices.DeleteFunc(attrs, func(a attribute.KeyValue) bool { return !a.Valid() })...)
}

// str, num, unsigned and cost return no attribute for the zero value.
func str(key, value string) (kv attribute.KeyValue) {
	if value != "" {
		kv = attribute.String(key, bounded(value))
	}
	return kv
}

func num(key string, n int64) (kv attribute.KeyValue) {
	if n != 0 {
		kv = attribute.Int64(key, n)
	}
	return kv
}

func unsigned(key string, n uint64) attribute.KeyValue { return num(key, int64(min(n, math.MaxInt64))) }

func cost(usd float64) (kv attribute.KeyValue) {
	if usd != 0 {
		kv = attribute.Float64("starling.cost_usd", usd)
	}
	return kv
}

func operation(name string) attribute.KeyValue {
	return attribute.String("gen_ai.operation.name", name)
}

func providerName(id string) string {
	if name, ok := providerNames[id]; ok {
		return name
	}
	return id
}

// bounded cuts a text that may have come from anywhere.
func bounded(text string) string {
	return strings.ToValidUTF8(text[:min(len(text), maxNameBytes)], "")
}

// Service returns what describes a program as the source of its spans. The instance tells
// it from others of its kind, and may be empty.
func Service(name, version, instance string) []attribute.KeyValue {
	who := []attribute.KeyValue{attribute.String("service.name", name), attribute.String("service.version", version)}
	if instance != "" {
		who = append(who, attribute.String("service.instance.id", instance))
	}
	return who
}

// StartRequest begins the span of a request that a server was sent at the time
// began, under the pattern that it matched, as in "GET /api/v1/runs". It continues
// the trace that the request's traceparent names, if any. The end receives the
// status of the answer.
//
// Nothing else of the request is in the span: paths, queries, and headers contain
// users' words.
func (t *Tracer) StartRequest(r *http.Request, pattern string, began time.Time) (context.Context, func(status int)) {
	ctx := r.Context()
	if t == nil {
		return ctx, func(int) {}
	}
	if parents := r.Header.Values(traceparent); len(parents) == 1 {
		ctx = t.Continue(ctx, parents[0])
	}
	method, route := methodOf(r.Method), pattern[strings.IndexByte(pattern, ' ')+1:]
	ctx, span := t.tracer.Start(ctx, method+" "+route, trace.WithSpanKind(trace.SpanKindServer), trace.WithTimestamp(began),
		trace.WithAttributes(attribute.String("http.request.method", method), attribute.String("http.route", route)))
	return ctx, func(status int) {
		set(span, num("http.response.status_code", int64(status)))
		if status >= http.StatusInternalServerError {
			span.SetAttributes(attribute.String(attrError, strconv.Itoa(status)))
			span.SetStatus(codes.Error, "")
		}
		span.End()
	}
}

// methodOf returns a method that has a name, and "_OTHER" for what clients made up.
func methodOf(method string) string {
	if slices.Contains(methods, method) {
		return method
	}
	return otherMethod
}

// traceparent is the W3C header with its sender's place in a trace, and the form
// in which that is stored elsewhere.
const traceparent = "traceparent"

// Traceparent returns where in a trace ctx is, for [Tracer.Continue]: in another
// process, or later. It is empty outside of one, and without a Tracer.
func (t *Tracer) Traceparent(ctx context.Context) string {
	if t == nil {
		return ""
	}
	kept := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(ctx, kept)
	return kept[traceparent]
}

// Continue returns a context whose next span is a child of the span that a
// traceparent names. An unreadable traceparent names none. The tracestate that
// may come with it is dropped, because its text is the sender's.
func (t *Tracer) Continue(ctx context.Context, parent string) context.Context {
	if t == nil {
		return ctx
	}
	return propagation.TraceContext{}.Extract(ctx, propagation.MapCarrier{traceparent: parent})
}
