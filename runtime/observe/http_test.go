package observe_test

import (
	"context"
	"errors"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/starling-host/starling/runtime/observe"
)

// described is a registerer that keeps its collectors.
type described struct {
	prometheus.Registerer
	text strings.Builder
}

func (d *described) MustRegister(all ...prometheus.Collector) {
	for _, c := range all {
		descs := make(chan *prometheus.Desc)
		go func() { c.Describe(descs); close(descs) }()
		for desc := range descs {
			d.text.WriteString(desc.String() + "\n")
		}
	}
}

var (
	fqName     = regexp.MustCompile(`fqName: "([^"]+)"`)
	metricName = regexp.MustCompile(`\b(?:starling|process|go)_[a-z_]+`)
)

// TestTheDashboardHasMetricsThatExist compares docs/grafana-dashboard.json with
// the registered metrics, in both directions for our own.
func TestTheDashboardHasMetricsThatExist(t *testing.T) {
	d := &described{}
	observe.NewMetrics(d)
	observe.NewHTTPMetrics(d)
	observe.RegisterQueue(d, nil)
	observe.RegisterBuild(d, "v1")
	observe.RegisterCertificate(d, nil)
	observe.NewRetention(d)
	observe.NewSeal(d)
	observe.RegisterSpace(d, nil)
	observe.RegisterCPU(d, nil)
	known := map[string]bool{"process_resident_memory_bytes": true, "process_open_fds": true, "go_goroutines": true}
	for _, m := range fqName.FindAllStringSubmatch(d.text.String(), -1) {
		known[m[1]] = true
	}
	text, err := os.ReadFile("../../docs/grafana-dashboard.json")
	if err != nil {
		t.Fatal(err)
	}
	shown := map[string]bool{}
	for _, name := range metricName.FindAllString(string(text), -1) {
		name = strings.TrimSuffix(name, "_bucket")
		shown[name] = true
		if !known[name] {
			t.Errorf("the dashboard shows %s, which nobody measures", name)
		}
	}
	alerts, err := os.ReadFile("../../docs/alerts.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range metricName.FindAllString(string(alerts), -1) {
		if !known[strings.TrimSuffix(name, "_bucket")] {
			t.Errorf("an alert is about %s, which nobody measures", name)
		}
	}
	for name := range known {
		if !shown[name] {
			t.Errorf("the dashboard does not show %s", name)
		}
	}
}

// TestTheDashboardShowsThatNothingFailed: where no request has failed there is no series of
// failed ones, and a panel without data looks broken. A host that is not ready does not
// count as a failed request.
func TestTheDashboardShowsThatNothingFailed(t *testing.T) {
	text, err := os.ReadFile("../../docs/grafana-dashboard.json")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if strings.Contains(line, `code=~\"5..\"`) && (!strings.Contains(line, "or vector(0)") || !strings.Contains(line, `route!~\".*/readyz\"`)) {
			t.Error(line)
		}
	}
}

func TestRequestsAndQueue(t *testing.T) {
	registry := prometheus.NewRegistry()
	m := observe.NewHTTPMetrics(registry)
	m.ObserveRequest("GET /api/v1/runs", 200, time.Second)
	m.ObserveRequest("GET /api/v1/runs", 7, time.Second) // what no server answers
	state, failure := observe.QueueState{Waiting: 1, Sleeping: 2, Running: 3, Tenants: 4}, error(nil)
	observe.RegisterCPU(registry, func() observe.CPUState {
		return observe.CPUState{Tenants: 5, Waited: 1500 * time.Millisecond, Demoted: 6}
	})
	observe.RegisterQueue(registry, func(context.Context) (observe.QueueState, error) { return state, failure })
	got := scrapeLines(registry)
	for _, want := range []string{
		`starling_http_requests_total{code="200",route="GET /api/v1/runs"} 1`, `starling_http_requests_total{code="other",route="GET /api/v1/runs"} 1`,
		`starling_queue_jobs{state="waiting"} 1`, `starling_queue_jobs{state="sleeping"} 2`, `starling_queue_jobs{state="running"} 3`, `starling_queue_oldest_seconds 0`,
		`starling_queue_waiting_tenants 4`, `starling_cpu_waiting_tenants 5`, `starling_cpu_wait_seconds_total 1.5`, `starling_calls_demoted_total 6`,
	} {
		if !slices.Contains(got, want) {
			t.Errorf("no line %s in\n%s", want, strings.Join(got, "\n"))
		}
	}
	failure = errors.New("the database is gone")
	if got := strings.Join(scrapeLines(registry), "\n"); strings.Contains(got, "starling_queue") || !strings.Contains(got, "starling_http") {
		t.Errorf("without a queue:\n%s", got)
	}
	observe.NewHTTPMetrics(nil).ObserveRequest("", 0, 0) // measures nothing
}

func TestWhatThereIsToKnowOfAHost(t *testing.T) {
	registry := prometheus.NewRegistry()
	expires := time.Unix(1e9, 0)
	observe.RegisterBuild(registry, "v1.2.3")
	observe.RegisterCertificate(registry, func() time.Time { return expires })
	retention := observe.NewRetention(registry)
	lines := func(want ...string) {
		t.Helper()
		got := scrapeLines(registry)
		for _, line := range want {
			if !slices.Contains(got, line) {
				t.Errorf("no line %s in\n%s", line, strings.Join(got, "\n"))
			}
		}
	}
	lines(`starling_build_info{version="v1.2.3"} 1`, "starling_certificate_expiry_timestamp_seconds 1e+09", "starling_retention_last_success_timestamp_seconds 0")
	expires = expires.AddDate(0, 0, 90) // it was renewed
	lines("starling_certificate_expiry_timestamp_seconds 1.007776e+09")
	retention.Succeeded()
	var off *observe.Seal
	off.Sealed(1) // measures nothing
	sealed := observe.NewSeal(registry)
	lines("starling_seal_last_success_timestamp_seconds 0", "starling_sealed_runs 0")
	sealed.Sealed(7)
	sealed.Sealed(0)
	lines("starling_sealed_runs 7")
	if text := strings.Join(scrapeLines(registry), "\n"); strings.Contains(text, "last_success_timestamp_seconds 0\n") {
		t.Error("what has succeeded was not measured")
	}
	var nobody *observe.Retention
	nobody.Succeeded() // measures nothing
}

func scrapeLines(g prometheus.Gatherer) []string {
	w := httptest.NewRecorder()
	observe.MetricsHandler(g).ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	return strings.Split(w.Body.String(), "\n")
}
