package daemon_test

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/starling-host/starling/runtime/observe"
	"github.com/starling-host/starling/serve/internal/daemon"
	"github.com/starling-host/starling/serve/queue"
)

// TestRunsAreInTheTracesOfTheirRequests asks for a run of an agent, which a worker
// makes, and for what nobody is let in with.
func TestRunsAreInTheTracesOfTheirRequests(t *testing.T) {
	spans := tracetest.NewInMemoryExporter()
	provider := sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans))
	w := newWorld(t, func(c *daemon.Config, _ *queue.Config) { c.Tracer = observe.NewTracer(provider) })
	ask := func(key, method, path, body string) int {
		t.Helper()
		r, err := http.NewRequestWithContext(context.Background(), method, w.url+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer "+key)
		r.Header.Set("Content-Type", "application/json")
		answer, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		answer.Body.Close()
		return answer.StatusCode
	}
	for path, want := range map[string]int{"/api/v1/runs": 401, "/api/v1/healthz": 200, "/metrics": 401, "/nothing": 404} {
		if got := ask("nobody's", "GET", path, ""); got != want {
			t.Errorf("%s: %d", path, got)
		}
	}
	if got := spans.GetSpans(); len(got) != 0 {
		t.Errorf("who was not let in has the spans %v", got.Snapshots())
	}
	if got := ask(w.keys["alice"], "POST", "/api/v1/runs", `{"goal":"Which number?","wait":20}`); got != 200 {
		t.Fatalf("a run: %d", got)
	}
	w.halt() // so that the request has ended, too
	defer w.serve()
	all := spans.GetSpans().Snapshots()
	var names []string
	for parent := ""; ; {
		i := slices.IndexFunc(all, func(s sdktrace.ReadOnlySpan) bool {
			return parent == "" && !s.Parent().IsValid() || s.Parent().SpanID().String() == parent
		})
		if i < 0 {
			break
		}
		names, parent = append(names, all[i].Name()), all[i].SpanContext().SpanID().String()
	}
	if diff := cmp.Diff([]string{"POST /api/v1/runs", "agent.run", "agent.turn", "provider.stream"}, names); diff != "" || len(all) != 4 {
		t.Errorf("of %d spans (-want +got):\n%s", len(all), diff)
	}
}
