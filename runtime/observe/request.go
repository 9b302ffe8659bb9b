package observe

import (
	"context"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

// StartRequest begins the span of a request that a server was sent at the time
// began, under the pattern that it matched, as in "GET /api/v1/runs". It goes on
// with the trace that the request's traceparent names, if it names one. The end is
// told the status of the answer.
//
// Nothing else of the request is in the span: paths, queries, and headers hold
// what users said.
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
		trace.WithAttributes(attribute.String(attrMethod, method), attribute.String(attrRoute, route)))
	return ctx, func(status int) {
		set(span, num(attrStatus, int64(status)))
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

// traceparent is the header of the W3C that says where in a trace its sender is,
// and the form in which that is kept elsewhere.
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

// Continue returns a context whose next span is the child of the one that a
// traceparent names. One that cannot be read names none. The tracestate that may
// come with it is left behind, because it is text of the sender's.
func (t *Tracer) Continue(ctx context.Context, parent string) context.Context {
	if t == nil {
		return ctx
	}
	return propagation.TraceContext{}.Extract(ctx, propagation.MapCarrier{traceparent: parent})
}
