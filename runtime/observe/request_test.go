package observe_test

import (
	"context"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/otel/trace"

	"github.com/starling-host/starling/runtime/observe"
)

const (
	aTrace = "0af7651916cd43dd8448eb211c80319c"
	parent = "00-" + aTrace + "-b7ad6b7169203331-01"
)

func TestRequestSpans(t *testing.T) {
	tracer, spans := newTracer(t)
	began := time.Unix(1_700_000_000, 0)
	for _, q := range []struct {
		method, pattern string
		status          int
	}{{"GET", "GET /runs/{id}", 200}, {"BREW", "/mcp", 500}} {
		r := httptest.NewRequest(q.method, "/runs/secret?q=secret", nil)
		r.Header.Set("User-Agent", "secret")
		_, end := tracer.StartRequest(r, q.pattern, began)
		end(q.status)
	}
	want := `GET /runs/{id} (server) Unset 
  . http.request.method = GET
  . http.route = /runs/{id}
  . http.response.status_code = 200
_OTHER /mcp (server) Error 
  . http.request.method = _OTHER
  . http.route = /mcp
  . http.response.status_code = 500
  . error.type = 500
`
	if diff := cmp.Diff(want, draw(spans.Ended())); diff != "" {
		t.Errorf("want (-), got (+):\n%s", diff)
	}
	if got := spans.Ended()[0].StartTime(); !got.Equal(began) {
		t.Errorf("the request began at %s", got)
	}
}

// TestTracesGoOn passes the trace context of a request to later work.
func TestTracesGoOn(t *testing.T) {
	tracer, spans := newTracer(t)
	for _, c := range []struct {
		headers []string
		goesOn  bool
	}{
		{[]string{parent}, true}, {nil, false}, {[]string{parent, parent}, false}, {[]string{"00-" + aTrace + "-0000000000000000-01"}, false},
		{[]string{"ff-" + aTrace + "-b7ad6b7169203331-01"}, false}, {[]string{"nonsense"}, false},
	} {
		r := httptest.NewRequest("GET", "/", nil)
		r.Header["Traceparent"] = c.headers
		r.Header.Set("Tracestate", "vendor=secret")
		ctx, end := tracer.StartRequest(r, "GET /", time.Now())
		kept := tracer.Traceparent(ctx)
		end(200)
		asked := trace.SpanContextFromContext(ctx)
		if got := asked.TraceID().String() == aTrace; got != c.goesOn || asked.TraceState().Len() != 0 {
			t.Errorf("%q is in the trace %s with state %q", c.headers, asked.TraceID(), asked.TraceState())
		}
		_, run := tracer.StartRun(tracer.Continue(context.Background(), kept), "R", nil)
		run.End()
		all := spans.Ended()
		if last := all[len(all)-1]; last.Parent().SpanID() != asked.SpanID() || last.SpanContext().TraceID() != asked.TraceID() {
			t.Errorf("%q: the run is the child of %v", c.headers, last.Parent())
		}
	}
	var none *observe.Tracer
	ctx, end := none.StartRequest(httptest.NewRequest("GET", "/", nil), "GET /", time.Now())
	end(200)
	if none.Traceparent(ctx) != "" || none.Continue(ctx, parent) != ctx {
		t.Error("without a tracer there is a trace")
	}
}
