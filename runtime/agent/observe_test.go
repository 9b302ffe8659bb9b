package agent_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	oteltrace "go.opentelemetry.io/otel/trace"

	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/eventlog/store"
	"github.com/starling-host/starling/runtime/agent"
	"github.com/starling-host/starling/runtime/agenttest"
	"github.com/starling-host/starling/runtime/observe"
	"github.com/starling-host/starling/runtime/tool"
)

// TestRunsAreWatchedAndReplaysAreNot counts what metrics and spans see of a live run,
// and that a replay of it adds nothing.
func TestRunsAreWatchedAndReplaysAreNot(t *testing.T) {
	registry := prometheus.NewRegistry()
	spans := tracetest.NewInMemoryExporter()
	a := newAgent([]agenttest.Turn{agenttest.Calls(
		agenttest.Use{CallID: "c1", Tool: "clocked", Args: `{"city":"Oslo"}`}, agenttest.Use{CallID: "c2", Tool: "failing", Args: `{}`}),
		agenttest.Say("done")}, clocked, failing)
	a.Metrics, a.Tracer = observe.NewMetrics(registry), observe.NewTracer(trace.NewTracerProvider(trace.WithSyncer(spans)))
	a.Metrics.KnowTools("clocked", "failing")
	r, err := a.Run(context.Background(), "go")
	if err != nil {
		t.Fatal(err)
	}
	want := `
# HELP starling_run_terminal_total Runs that ended, by status (ok, error, cancelled or budget) and type of error.
# TYPE starling_run_terminal_total counter
starling_run_terminal_total{error_type="none",status="ok"} 1
# HELP starling_runs_in_flight Runs that are going on.
# TYPE starling_runs_in_flight gauge
starling_runs_in_flight 0
`
	names := []string{"starling_run_terminal_total", "starling_runs_in_flight"}
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want), names...); err != nil {
		t.Error(err)
	}
	before := figures(t, registry)
	if diff := cmp.Diff([]string{"provider.stream", "step.tool", "step.tool", "agent.turn", "provider.stream", "agent.turn", "agent.run"}, namesOf(spans)); diff != "" {
		t.Errorf("spans (-want +got):\n%s", diff)
	}
	if _, err := a.Replay(context.Background(), eventsOf(t, a, r.RunID, false), agent.ReplayOptions{}); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(before, figures(t, registry)); diff != "" {
		t.Errorf("a replay is measured (-before +after):\n%s", diff)
	}
	if n := len(spans.GetSpans()); n != 7 {
		t.Errorf("%d spans after the replay", n)
	}
}

// TestGuardedToolsAreTraced asks the guards of a tool whose calls have spans, in an
// agent's run and in a direct one.
func TestGuardedToolsAreTraced(t *testing.T) {
	spans := tracetest.NewInMemoryExporter()
	tracer := observe.NewTracer(trace.NewTracerProvider(trace.WithSyncer(spans)))
	asked := 0
	guard := func(context.Context, string, json.RawMessage) event.Verdicts { asked++; return nil }
	var inside oteltrace.SpanContext // of the last call
	echo := tool.NewFuncTool("echo", "", tool.ToolSchema{Type: "object"}, func(ctx context.Context, _ json.RawMessage) (string, error) {
		inside = oteltrace.SpanContextFromContext(ctx)
		return "heard", nil
	})
	guarded := tool.Guarded(tool.Guarded(echo, guard), guard)
	a := newAgent([]agenttest.Turn{agenttest.Calls(agenttest.Use{CallID: "c1", Tool: "echo", Args: `{}`}), agenttest.Say("done")}, guarded)
	a.Tracer = tracer
	if _, err := a.Run(context.Background(), "go"); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"provider.stream", "step.tool", "agent.turn", "provider.stream", "agent.turn", "agent.run"}, namesOf(spans)); diff != "" {
		t.Errorf("spans of an agent (-want +got):\n%s", diff)
	}
	if call := spans.GetSpans()[1].SpanContext; !call.Equal(inside) {
		t.Errorf("the tool is called in the span %v, want %v", inside, call)
	}
	spans.Reset()
	d := agent.Direct{Log: store.Memory(), Tool: guarded, Tracer: tracer}
	r, err := d.Run(context.Background(), json.RawMessage(`{}`))
	if err != nil || r.Error != "" {
		t.Fatalf("%+v, %v", r, err)
	}
	if diff := cmp.Diff([]string{"step.tool", "agent.run"}, namesOf(spans)); diff != "" {
		t.Errorf("spans of a direct run (-want +got):\n%s", diff)
	}
	for _, s := range spans.GetSpans() {
		if s.Status.Code != codes.Unset {
			t.Errorf("%s ended with %v", s.Name, s.Status)
		}
	}
	if asked != 4 {
		t.Errorf("the guards were asked %d times", asked)
	}
	if _, err := d.Replay(context.Background(), eventsOf(t, &agent.Agent{Log: d.Log}, r.RunID, false), agent.ReplayOptions{}); err != nil || len(spans.GetSpans()) != 2 {
		t.Errorf("a replay: %d spans, %v", len(spans.GetSpans()), err)
	}
}

func namesOf(spans *tracetest.InMemoryExporter) []string {
	var names []string
	for _, s := range spans.GetSpans() {
		names = append(names, s.Name)
	}
	return names
}

// figures is everything that was counted.
func figures(t *testing.T, registry *prometheus.Registry) map[string]float64 {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			all[f.GetName()+" "+m.String()] = m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
	}
	return all
}
