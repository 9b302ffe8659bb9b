//go:build !js

package observe

import (
	"cmp"
	"context"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/eventlog/span"
	"github.com/starling-host/starling/runtime/step"
)

// Tracer makes the spans of runs, and of requests to a server:
//
//	agent.run               agent.run, of one tool
//	└── agent.turn          └── step.tool
//	    ├── provider.stream
//	    └── step.tool
//
// Those of runs are what package span makes of the events: turns, answers of models, and attempts
// of calls. A span whose end has an error has the status Error and the type of the error, never its
// text.
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

var _ step.Tracer = (*RunTrace)(nil)

// RunTrace makes the spans of a live run while its events are recorded. It implements
// [step.Tracer]. It must be ended. A nil *RunTrace makes none.
type RunTrace struct {
	tracer trace.Tracer
	root   context.Context
	run    trace.Span
	id     string // without its namespace, which is the name of a tenant

	mu      sync.Mutex // guards what follows
	model   span.Builder
	started event.RunStarted
	looked  int // how many spans of the model were looked at
	open    []openSpan
}

// openSpan is a span that has begun, and its index in the model of the run.
type openSpan struct {
	at      int
	own, in trace.Span // the span and its parent
}

// StartRun begins the span of a run, which continues after earlier events if there are any. Its
// other spans are below that of the returned context.
func (t *Tracer) StartRun(ctx context.Context, runID string, earlier []event.Event) (context.Context, *RunTrace) {
	if t == nil {
		return ctx, nil
	}
	r := &RunTrace{tracer: t.tracer, id: runID[strings.LastIndexByte(runID, '/')+1:]}
	r.root, r.run = t.tracer.Start(ctx, "agent.run", trace.WithSpanKind(trace.SpanKindInternal))
	set(r.run, str("starling.run_id", r.id))
	for _, ev := range earlier {
		r.add(ev)
	}
	r.looked = len(r.model.Run().Spans)
	return r.root, r
}

// add adds an event to the model, except for effects, which have no spans here.
func (r *RunTrace) add(ev event.Event) {
	if effect, err := ev.AsSideEffectRecorded(); err == nil {
		if _, ok := effect.ModelFailure(); !ok {
			return
		}
	}
	_ = r.model.Add(ev) // this program has encoded it, or read it
	if started, err := ev.AsRunStarted(); err == nil {
		if r.started = started; started.ModelID != "" {
			set(r.run, operation("invoke_agent"), str("gen_ai.conversation.id", r.id),
				str(attrProvider, providerName(started.ProviderID)), str(attrModel, started.ModelID))
		}
	}
	if ev.Kind.Terminal() {
		set(r.run, str("starling.terminal", ev.Kind.String()))
	}
}

// Recorded implements [step.Tracer]. It begins and ends the spans that the event begins and ends.
func (r *RunTrace) Recorded(ev event.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.add(ev)
	run := r.model.Run()
	for ; r.looked < len(run.Spans); r.looked++ {
		s := &run.Spans[r.looked]
		name, kind, attrs := "agent.turn", trace.SpanKindInternal, []attribute.KeyValue{str("starling.turn_id", s.TurnID)}
		switch s.Kind {
		case span.Turn:
		case span.Answer:
			name, kind, attrs = "provider.stream", trace.SpanKindClient, []attribute.KeyValue{operation("chat"),
				attribute.Bool("gen_ai.request.stream", true), str(attrProvider, providerName(r.started.ProviderID)), str(attrModel, r.started.ModelID)}
			if o := r.started.Request; o != nil {
				attrs = append(attrs, num("gen_ai.request.max_tokens", o.MaxOutputTokens))
			}
		case span.Call:
			name, attrs = "step.tool", []attribute.KeyValue{operation("execute_tool"), str("gen_ai.tool.name", s.Name), str("gen_ai.tool.type", "function"),
				str("gen_ai.tool.call.id", s.CallID), num("starling.attempt", int64(s.Attempt))}
			if !slices.ContainsFunc(r.started.ToolSchemas, func(ref event.ToolSchemaRef) bool { return ref.Name == s.Name }) {
				continue // a model has invented the name
			}
		default:
			continue
		}
		o := openSpan{at: r.looked, in: r.run}
		for _, p := range r.open {
			if p.at == s.Parent {
				o.in = p.own
			}
		}
		_, o.own = r.tracer.Start(trace.ContextWithSpan(r.root, o.in), name, trace.WithSpanKind(kind), trace.WithTimestamp(r.time(s.Start)))
		set(o.own, attrs...)
		r.open = append(r.open, o)
	}
	for i, o := range slices.Backward(r.open) { // a span ends before its parent
		s := &run.Spans[o.at]
		if s.State == span.Open {
			continue
		}
		set(o.own, num(attrInput, s.InputTokens), num(attrOutput, s.OutputTokens), unsigned("starling.fuel", s.Fuel), unsigned("starling.peak_memory", s.PeakMemory), cost(s.CostUSD))
		if answer, err := ev.AsAssistantMessageCompleted(); err == nil && s.Kind == span.Answer {
			set(o.own, num("gen_ai.usage.cache_read.input_tokens", answer.CacheReadTokens), num("gen_ai.usage.cache_creation.input_tokens", answer.CacheCreateTokens),
				str("gen_ai.response.id", answer.ProviderRequestID))
			if answer.StopReason != "" {
				set(o.own, attribute.StringSlice("gen_ai.response.finish_reasons", []string{bounded(answer.StopReason)}))
			}
		}
		if s.Kind == span.Answer && s.Final {
			fail(o.in, s.ErrorType)
		}
		if s.State != span.OK && s.Kind != span.Turn {
			fail(o.own, cmp.Or(s.ErrorType, event.ErrorLost))
		}
		o.own.End(trace.WithTimestamp(r.time(max(s.Start, s.End))))
		r.open = slices.Delete(r.open, i, i+1)
	}
}

// time returns the time of the model.
func (r *RunTrace) time(at int64) time.Time { return time.Unix(0, r.model.Run().Began+at) }

// Within implements [step.Tracer]: what a tool or a provider makes spans of is below its own span.
func (r *RunTrace) Within(ctx context.Context, callID string) context.Context {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, o := range r.open {
		if s := &r.model.Run().Spans[o.at]; s.Kind == span.Answer && callID == "" || s.Kind == span.Call && s.CallID == callID {
			ctx = trace.ContextWithSpan(ctx, o.own)
		}
	}
	return ctx
}

// End ends the span of the run, and those that are still open because the run stopped without a
// terminal event.
func (r *RunTrace) End() {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, o := range slices.Backward(r.open) {
		fail(o.own, event.ErrorLost)
		o.own.End()
	}
	run := r.model.Run()
	set(r.run, num(attrInput, run.InputTokens), num(attrOutput, run.OutputTokens), cost(run.CostUSD))
	if run.State != span.OK {
		fail(r.run, cmp.Or(run.ErrorType, event.ErrorInternal))
	}
	r.run.End()
}

// fail marks a span as failed.
func fail(failed trace.Span, errorType string) {
	errorType = oneOf(errorType, errorTypes)
	failed.SetAttributes(attribute.String(attrError, errorType))
	failed.SetStatus(codes.Error, errorType)
}

// set sets the non-empty attributes.
func set(to trace.Span, attrs ...attribute.KeyValue) {
	to.SetAttributes(slices.DeleteFunc(attrs, func(a attribute.KeyValue) bool { return !a.Valid() })...)
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

func providerName(id string) string { return cmp.Or(providerNames[id], id) }

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
	method, route := r.Method, pattern[strings.IndexByte(pattern, ' ')+1:]
	if !slices.Contains(methods, method) { // a client has made it up
		method = otherMethod
	}
	ctx, asked := t.tracer.Start(ctx, method+" "+route, trace.WithSpanKind(trace.SpanKindServer), trace.WithTimestamp(began),
		trace.WithAttributes(attribute.String("http.request.method", method), attribute.String("http.route", route)))
	return ctx, func(status int) {
		set(asked, num("http.response.status_code", int64(status)))
		if status >= http.StatusInternalServerError {
			asked.SetAttributes(attribute.String(attrError, strconv.Itoa(status)))
			asked.SetStatus(codes.Error, "")
		}
		asked.End()
	}
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
