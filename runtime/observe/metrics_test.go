package observe_test

import (
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/runtime/observe"
	"github.com/starling-host/starling/runtime/step"
)

var update = flag.Bool("update", false, "rewrite testdata/metrics.txt")

// scrape returns the text that a Prometheus server would get.
func scrape(t *testing.T, r *prometheus.Registry) string {
	t.Helper()
	s := httptest.NewServer(observe.MetricsHandler(r))
	defer s.Close()
	resp, err := http.Get(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%s, %v: %s", resp.Status, err, body)
	}
	return string(body)
}

// everything touches each metric with each of its labels.
func everything(m *observe.Metrics) {
	m.KnowTools("deploy")
	m.KnowModels("gpt-5")
	m.RunStarted()
	m.RunStarted()
	m.RunStarted()
	m.RunResumed()
	m.RunResumed()
	m.RunEnded(event.KindRunCompleted, "", 3*time.Second)
	m.RunEnded(event.KindRunFailed, "budget", time.Minute)
	m.RunEnded(event.KindRunFailed, "max_turns", 2*time.Hour)
	m.RunEnded(event.KindRunCancelled, "", 50*time.Millisecond)
	m.RunEnded(0, "", time.Second)
	m.RunAbandoned(false, event.KindRunCancelled, "")
	m.RunAbandoned(true, event.KindRunFailed, "internal")
	m.ObserveProviderCall("gpt-5", "ok", 4*time.Second, 1200, 34)
	m.ObserveProviderCall("gpt-5", "cancelled", time.Second, 0, -1)
	m.ObserveProviderCall("a model that nobody has", "error", time.Second, 0, 0)
	m.ObserveToolCall("search", "ok", "", 700*time.Microsecond)
	m.ObserveToolCall("search", "error", "fuel", time.Second)
	m.ObserveToolCall("deploy", "error", "timeout", 5*time.Minute)
	m.ObserveToolCall("a tool that the model made up", "error", "tool", 0)
	m.ObserveEventlogAppend("RunStarted", "ok", 2*time.Microsecond)
	m.ObserveEventlogAppend("ToolCallCompleted", "error", 2*time.Second)
	for _, axis := range []string{"input_tokens", "output_tokens", "usd", "wall_clock", "fuel", "effects", "egress_bytes"} {
		m.ObserveBudgetExceeded(axis)
	}
}

func TestExposition(t *testing.T) {
	const golden = "testdata/metrics.txt"
	r := prometheus.NewRegistry()
	everything(observe.NewMetrics(r))
	got := scrape(t, r)
	if *update {
		if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-), got (+):\n%s", golden, diff)
	}
	if err := testutil.GatherAndCompare(r, strings.NewReader(string(want))); err != nil {
		t.Error(err)
	}
	problems, err := testutil.GatherAndLint(r)
	if err != nil || len(problems) > 0 {
		t.Errorf("lint: %v, %v", problems, err)
	}
}

// TestNamesOfTheSeeds holds the metrics against the table of the Starling
// documents.
func TestNamesOfTheSeeds(t *testing.T) {
	r := prometheus.NewRegistry()
	everything(observe.NewMetrics(r))
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, f := range families {
		var labels []string
		for _, l := range f.GetMetric()[0].GetLabel() {
			labels = append(labels, l.GetName())
		}
		got[f.GetName()] = strings.ToLower(f.GetType().String()) + " " + strings.Join(labels, ",")
	}
	want := map[string]string{
		"starling_runs_started_total":               "counter ",
		"starling_runs_in_flight":                   "gauge ",
		"starling_run_duration_seconds":             "histogram status",
		"starling_run_terminal_total":               "counter error_type,status",
		"starling_provider_calls_total":             "counter model,status",
		"starling_provider_call_duration_seconds":   "histogram model",
		"starling_provider_tokens_total":            "counter model,type",
		"starling_tool_calls_total":                 "counter error_type,status,tool",
		"starling_tool_call_duration_seconds":       "histogram tool",
		"starling_eventlog_appends_total":           "counter kind,status",
		"starling_eventlog_append_duration_seconds": "histogram kind",
		"starling_budget_exceeded_total":            "counter axis",
		"starling_egress_requests_total":            "counter outcome",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("want (-), got (+):\n%s", diff)
	}
}

// TestFlood has everything that is not from a closed set take ten thousand
// values.
func TestFlood(t *testing.T) {
	r := prometheus.NewRegistry()
	m := observe.NewMetrics(r)
	m.KnowTools("mine")
	for i := range 10_000 {
		x := fmt.Sprintf("x%d", i)
		m.ObserveToolCall(x, "error", "tool", 0) // an unknown tool
		m.ObserveToolCall(x, x, x, 0)
	}
	m.ObserveToolCall("mine", "error", "tool", 0)
	if got, err := testutil.GatherAndCount(r, "starling_tool_call_duration_seconds"); got != 2 || err != nil {
		t.Errorf("invented tools have %d series, %v, want mine and other", got, err)
	}
	for i := range 10_000 {
		x := fmt.Sprintf("x%d", i)
		m.ObserveToolCall(x, "ok", "", 0)
		m.ObserveProviderCall(x, "ok", 0, 1, 1)
		m.ObserveProviderCall(x, x, 0, 1, 1)
		m.ObserveEventlogAppend(x, x, 0)
		m.ObserveBudgetExceeded(x)
		m.RunEnded(event.KindRunFailed, x, 0)
		m.KnowModels(x)
	}
	for name, most := range map[string]int{
		"starling_tool_call_duration_seconds":       observe.MaxNames + 1,
		"starling_provider_call_duration_seconds":   observe.MaxNames + 1,
		"starling_provider_calls_total":             2 * (observe.MaxNames + 1),
		"starling_provider_tokens_total":            2 * (observe.MaxNames + 1),
		"starling_tool_calls_total":                 observe.MaxNames + 3,
		"starling_eventlog_append_duration_seconds": 1,
		"starling_budget_exceeded_total":            1,
		"starling_run_terminal_total":               1,
	} {
		if got, err := testutil.GatherAndCount(r, name); got != most || err != nil {
			t.Errorf("%s has %d series, %v, want %d", name, got, err, most)
		}
	}
}

// TestShare makes one of three owners take as many labels for tools as it can, by
// naming them and by calling them.
func TestShare(t *testing.T) {
	r := prometheus.NewRegistry()
	m := observe.NewMetrics(r)
	m.KnowTools("deploy")
	greedy, modest := m.Share("greedy", 10), m.Share("modest", 10)
	for i := range 200 {
		greedy.KnowTools(fmt.Sprintf("named%d", i))
		m.Share("greedy", 10).ObserveToolCall(fmt.Sprintf("called%d", i), "ok", "", 0)
	}
	greedy.ObserveToolCall("deploy", "ok", "", 0) // which costs nothing
	modest.ObserveToolCall("named0", "ok", "", 0)
	modest.KnowTools("search")
	m.KnowTools("mine")
	for _, name := range []string{"search", "mine", "named10"} {
		m.ObserveToolCall(name, "error", "tool", 0)
	}
	got := labels(t, r, "starling_tool_call_duration_seconds", "tool")
	if diff := cmp.Diff([]string{"called0", "called1", "called2", "called3", "called4", "deploy", "mine", "named0", "other", "search"}, got); diff != "" {
		t.Errorf("want (-), got (+):\n%s", diff)
	}
	var none *observe.Metrics
	none.Share("anybody", 1).KnowTools("search")
}

func labels(t *testing.T, g prometheus.Gatherer, metric, label string) []string {
	t.Helper()
	families, err := g.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var values []string
	for _, f := range families {
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if f.GetName() == metric && l.GetName() == label {
					values = append(values, l.GetValue())
				}
			}
		}
	}
	return values
}

func TestNamesThatCannotBeLabels(t *testing.T) {
	r := prometheus.NewRegistry()
	m := observe.NewMetrics(r)
	for _, name := range []string{"", "\xff\xfe", strings.Repeat("x", 129)} {
		m.ObserveToolCall(name, "ok", "", 0)
		m.ObserveProviderCall(name, "ok", 0, 0, 0)
	}
	for _, metric := range []string{"starling_tool_calls_total", "starling_provider_calls_total"} {
		if got, err := testutil.GatherAndCount(r, metric); got != 1 || err != nil {
			t.Errorf("%s has %d series, %v", metric, got, err)
		}
	}
}

func TestNilMetrics(t *testing.T) {
	everything(nil)
	if m := observe.NewMetrics(nil); m != nil {
		t.Error("metrics without a registerer")
	}
	w := httptest.NewRecorder()
	observe.MetricsHandler(nil).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	if w.Code != http.StatusNotFound {
		t.Errorf("without a gatherer the status is %d", w.Code)
	}
	var _ step.MetricsSink = (*observe.Metrics)(nil)
}

func TestRegisteredTwicePanics(t *testing.T) {
	r := prometheus.NewRegistry()
	observe.NewMetrics(r)
	defer func() {
		if recover() == nil {
			t.Error("no panic")
		}
	}()
	observe.NewMetrics(r)
}

func TestMetricsAreSafe(t *testing.T) {
	r := prometheus.NewRegistry()
	m := observe.NewMetrics(r)
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			for j := range 100 {
				m.ObserveToolCall(fmt.Sprint(i*j), "ok", "", 0)
				everything(m)
			}
		})
	}
	all.Go(func() { r.Gather() })
	all.Wait()
	if got, err := testutil.GatherAndCount(r, "starling_tool_call_duration_seconds"); got > observe.MaxNames+1 || err != nil {
		t.Errorf("%d series, %v", got, err)
	}
}
