package observe

import (
	"context"
	"math"
	"slices"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/runtime/provider"
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

// Run describes a run that begins. Empty fields are left out, here and in the
// other descriptions. A run of one tool has neither provider nor model.
type Run struct {
	RunID    string // shown without its namespace, which is the name of a tenant
	Agent    string // the agent's name
	Provider string // provider.Info.ID
	Model    string
}

// RunEnd is how a run ended.
type RunEnd struct {
	Terminal     event.Kind // zero if it stopped without a terminal event
	ErrorType    string     // of RunFailed
	InputTokens  int64
	OutputTokens int64
	CostUSD      float64
}

// StartRun begins the span of a run.
func (t *Tracer) StartRun(ctx context.Context, r Run) (context.Context, func(RunEnd)) {
	id := r.RunID[strings.LastIndexByte(r.RunID, '/')+1:]
	ctx, span := t.start(ctx, spanRun, trace.SpanKindInternal, str(attrRun, id))
	if r.Model != "" {
		set(span, operation(operationAgent), str(attrConversation, id), str(attrAgent, r.Agent),
			str(attrProvider, providerName(r.Provider)), str(attrModel, r.Model))
	}
	return ctx, func(end RunEnd) {
		if end.Terminal != 0 {
			set(span, str(attrTerminal, end.Terminal.String()))
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
	return errorInternal
}

// StartTurn begins the span of a turn. It ends with the type of the error that
// ended the turn, or with "".
func (t *Tracer) StartTurn(ctx context.Context, turnID string) (context.Context, func(errorType string)) {
	ctx, span := t.start(ctx, spanTurn, trace.SpanKindInternal, str(attrTurn, turnID))
	return ctx, func(errorType string) { finish(span, errorType) }
}

// Call describes a request to a provider.
type Call struct {
	Provider        string // provider.Info.ID
	Model           string
	MaxOutputTokens int
}

// CallEnd is how a response ended. What is unknown of one that failed is left
// zero.
type CallEnd struct {
	Usage      provider.Usage
	CostUSD    float64
	StopReason string
	RequestID  string
	Err        error
}

// StartProvider begins the span of a request and the stream of its response.
func (t *Tracer) StartProvider(ctx context.Context, c Call) (context.Context, func(CallEnd)) {
	ctx, span := t.start(ctx, spanProvider, trace.SpanKindClient, operation(operationChat),
		attribute.Bool(attrStream, true), str(attrProvider, providerName(c.Provider)),
		str(attrModel, c.Model), num(attrMaxTokens, int64(c.MaxOutputTokens)))
	return ctx, func(end CallEnd) {
		set(span, num(attrInput, end.Usage.InputTokens), num(attrOutput, end.Usage.OutputTokens),
			num(attrCacheRead, end.Usage.CacheReadTokens), num(attrCacheCreate, end.Usage.CacheCreateTokens),
			str(attrResponse, end.RequestID), cost(end.CostUSD))
		if end.StopReason != "" {
			set(span, attribute.StringSlice(attrFinish, []string{bounded(end.StopReason)}))
		}
		finish(span, ProviderErrorType(end.Err))
	}
}

// ToolCall describes an attempt of a tool.
type ToolCall struct {
	CallID  string
	Tool    string
	Attempt uint32
}

// ToolEnd is how an attempt ended.
type ToolEnd struct {
	ErrorType  string // an Error constant of package event, or ""
	Fuel       uint64
	PeakMemory uint64
}

// StartTool begins the span of an attempt of a tool.
func (t *Tracer) StartTool(ctx context.Context, c ToolCall) (context.Context, func(ToolEnd)) {
	ctx, span := t.start(ctx, spanTool, trace.SpanKindInternal, operation(operationTool),
		str(attrToolName, c.Tool), str(attrToolType, toolFunction), str(attrToolCall, c.CallID), num(attrAttempt, int64(c.Attempt)))
	return ctx, func(end ToolEnd) {
		set(span, unsigned(attrFuel, end.Fuel), unsigned(attrPeakMemory, end.PeakMemory))
		finish(span, end.ErrorType)
	}
}

// start begins a span; without a Tracer, one that records nothing. The context
// then stays as it is, so that a span around ours keeps its own children.
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

// set sets the attributes that are there.
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
		kv = attribute.Float64(attrCost, usd)
	}
	return kv
}

func operation(name string) attribute.KeyValue { return attribute.String(attrOperation, name) }

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
	who := []attribute.KeyValue{attribute.String(attrService, name), attribute.String(attrVersion, version)}
	if instance != "" {
		who = append(who, attribute.String(attrInstance, instance))
	}
	return who
}
