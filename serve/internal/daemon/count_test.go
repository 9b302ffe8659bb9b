package daemon_test

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/runtime/provider"
	"github.com/starling-host/starling/serve/internal/daemon"
	"github.com/starling-host/starling/serve/queue"
	"github.com/starling-host/starling/serve/tenant"
)

// TestEveryRunIsCounted: those that are made, those that are cancelled before, those
// whose module is removed before, those of a tenant that is erased before, and one that
// another process has begun with.
func TestEveryRunIsCounted(t *testing.T) {
	var paused atomic.Bool
	w := newWorld(t, func(c *daemon.Config, q *queue.Config) {
		q.Grace, q.Lease = -1, 300*time.Millisecond // after a third of which limits are looked at
		q.Limits = func(string) queue.Limits { return queue.Limits{Paused: paused.Load(), MaxRunning: 4} }
	})
	w.addTenant("carol", tenant.Limits{})
	must := func(answer int, want int) {
		t.Helper()
		if answer != want {
			t.Fatalf("answered with %d", answer)
		}
	}
	for _, name := range []string{"greet", "spin"} {
		must(w.do("alice", "POST", "/api/v1/modules?name="+name, "application/wasm", testModules[name]()).Code, http.StatusCreated)
	}
	w.awaitEnd(w.accept(`{"tool":"greet"}`))
	w.awaitEnd(w.accept(`{"goal":"Guess."}`))
	paused.Store(true)
	cancelled, moduleless := w.accept(`{"tool":"greet"}`), w.accept(`{"tool":"greet"}`)
	must(w.do("carol", "POST", "/api/v1/runs", "application/json", []byte(`{"goal":"Guess."}`)).Code, http.StatusAccepted)
	must(w.do("alice", "POST", "/api/v1/runs/"+cancelled+"/cancel", "", nil).Code, http.StatusAccepted)
	w.awaitEnd(cancelled)
	must(w.do("alice", "DELETE", "/api/v1/modules/greet", "", nil).Code, http.StatusNoContent)
	if _, err := w.tenants.Erase(t.Context(), "carol", nil); err != nil {
		t.Fatal(err)
	}
	paused.Store(false)
	w.awaitEnd(moduleless)
	spins := w.accept(`{"tool":"spin"}`)
	w.awaitEvents(spins, 2)
	w.awaitMetrics(
		`starling_eventlog_appends_total{kind="RunStarted",status="ok"} 6`,
		`starling_eventlog_appends_total{kind="RunCancelled",status="ok"} 2`,
		`starling_eventlog_appends_total{kind="RunFailed",status="ok"} 1`,
		`starling_runs_started_total 6`,
		`starling_runs_in_flight 1`,
		`starling_run_terminal_total{error_type="none",status="ok"} 2`,
		`starling_run_terminal_total{error_type="none",status="cancelled"} 2`,
		`starling_run_terminal_total{error_type="internal",status="error"} 1`,
		`starling_run_duration_seconds_count{status="ok"} 2`,
	)
	w.stop()
	paused.Store(true)
	w.start()
	must(w.do("alice", "POST", "/api/v1/runs/"+spins+"/cancel", "", nil).Code, http.StatusAccepted)
	w.awaitEnd(spins)
	w.awaitMetrics(
		`starling_eventlog_appends_total{kind="RunResumed",status="ok"} 1`,
		`starling_runs_started_total 0`,
		`starling_runs_in_flight 0`,
		`starling_run_terminal_total{error_type="none",status="cancelled"} 1`,
	)
}

// refusing is a model whose key is wrong.
type refusing struct{ provider.Provider }

func (refusing) Stream(context.Context, *provider.Request) (provider.EventStream, error) {
	return nil, provider.ErrAuth
}

// TestUploadOfAComponent: it becomes a module with a tool for each function, which can be run. One
// that needs another host is refused by the name of what is missing.
func TestUploadOfAComponent(t *testing.T) {
	w := newWorld(t, nil)
	b, err := os.ReadFile("../../../host/internal/component/testdata/adapter.wasm")
	if err != nil {
		t.Fatal(err)
	}
	if got := w.do("alice", "POST", "/api/v1/modules?name=adapter", "application/wasm", b); got.Code != http.StatusCreated || !strings.Contains(got.Body.String(), `"run-it"`) {
		t.Fatalf("%d %s", got.Code, got.Body)
	}
	w.awaitEnd(w.accept(`{"tool":"run-it","input":{"which":1,"n":5}}`))
	other := bytes.ReplaceAll(b, []byte("wasi:clocks/wall-clock@0.2."), []byte("wasi:clocks/wall-clock@0.3."))
	other = bytes.ReplaceAll(other, []byte("wasi:clocks/monotonic-clock@0.2."), []byte("wasi:clocks/monotonic-clock@0.3."))
	if got := w.do("alice", "POST", "/api/v1/modules?name=other", "application/wasm", other); got.Code != http.StatusUnprocessableEntity || !strings.Contains(got.Body.String(), "this host has WASI 0.2") {
		t.Errorf("%d %s", got.Code, got.Body)
	}
}

// TestFailureMetricsNameTools: a tool and a model that have never succeeded, which is when
// somebody looks for them, are counted under their own names.
func TestFailureMetricsNameTools(t *testing.T) {
	w := newWorld(t, func(c *daemon.Config, _ *queue.Config) {
		c.Agents[0].Agent.Provider = refusing{c.Agents[0].Agent.Provider}
	})
	if got := w.do("alice", "POST", "/api/v1/modules?name=spin", "application/wasm", testModules["spin"]()); got.Code != http.StatusCreated {
		t.Fatalf("%d %s", got.Code, got.Body)
	}
	spins := w.accept(`{"tool":"spin"}`)
	w.awaitEvents(spins, 2)
	if got := w.do("alice", "POST", "/api/v1/runs/"+spins+"/cancel", "", nil); got.Code != http.StatusAccepted {
		t.Fatalf("%d %s", got.Code, got.Body)
	}
	w.awaitEnd(spins)
	w.awaitEnd(w.accept(`{"goal":"Guess."}`))
	w.awaitMetrics(
		`starling_tool_calls_total{error_type="cancelled",status="error",tool="spin"} 1`,
		`starling_provider_calls_total{model="scripted",status="error"} 1`,
	)
}

// TestLabelsAreShared: a tenant that has many tools leaves labels to the others.
func TestLabelsAreShared(t *testing.T) {
	w := newWorld(t, nil)
	for i := range 12 {
		name := fmt.Sprintf("tool%d", i)
		module := answering(name, `{"type":"object"}`, `{"output":1}`)
		if got := w.do("alice", "POST", "/api/v1/modules?name="+name, "application/wasm", module); got.Code != http.StatusCreated {
			t.Fatalf("%d %s", got.Code, got.Body)
		}
		w.awaitEnd(w.accept(fmt.Sprintf(`{"tool":%q}`, name)))
	}
	w.awaitMetrics(
		`starling_tool_calls_total{error_type="none",status="ok",tool="tool9"} 1`,
		`starling_tool_calls_total{error_type="none",status="ok",tool="other"} 2`,
	)
}

// awaitMetrics waits for lines of /metrics: a run is counted after it has ended.
func (w *world) awaitMetrics(lines ...string) {
	w.t.Helper()
	w.keys["operator"] = "operator"
	var text string
	missing := func(line string) bool { return !strings.Contains(text, "\n"+line+"\n") }
	for deadline := time.Now().Add(awaitTime); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		text = w.do("operator", "GET", "/metrics", "", nil).Body.String()
		if !slices.ContainsFunc(lines, missing) {
			return
		}
	}
	w.t.Errorf("there is no %s in\n%s", strings.Join(slices.DeleteFunc(slices.Clone(lines), func(l string) bool { return !missing(l) }), "\n"), text)
}

// TestWhatRequestsCountAs where it is not the status that a handler chose: a client that
// has gone is no failure of the host, and a wrong method is another mistake than a path.
func TestWhatRequestsCountAs(t *testing.T) {
	w := newWorld(t, nil)
	gone, leave := context.WithCancel(t.Context())
	leave()
	r := httptest.NewRequestWithContext(gone, "GET", "/api/v1/runs", nil)
	r.Header.Set("Authorization", "Bearer "+w.keys["alice"])
	w.daemon.ServeHTTP(httptest.NewRecorder(), r)
	w.do("alice", "DELETE", "/api/v1/runs", "", nil)
	w.do("alice", "GET", "/nothing", "", nil)
	w.awaitMetrics(
		`starling_http_requests_total{code="499",route="GET /api/v1/runs"} 1`,
		`starling_http_requests_total{code="405",route="none"} 1`,
		`starling_http_requests_total{code="404",route="none"} 1`,
	)
}

// slowLog is a log whose transactions take longer to commit than what they do. It knows how
// long that took.
type slowLog struct {
	daemon.Log
	did *atomic.Int64 // nanoseconds, of all transactions
}

func (s slowLog) Transact(ctx context.Context, fn func(eventlog.Tx) error) error {
	return s.Log.Transact(ctx, func(tx eventlog.Tx) error {
		began := time.Now()
		err := fn(tx)
		took := time.Since(began)
		s.did.Add(int64(took))
		time.Sleep(took + time.Millisecond) // the commit; how long it really takes makes no difference
		return err
	})
}

// TestAppendsAreMeasuredWithoutTheCommit holds the measured time of the first events of
// runs against that of the functions that append them.
func TestAppendsAreMeasuredWithoutTheCommit(t *testing.T) {
	t.Parallel()
	var did atomic.Int64
	w := newWorld(t, func(c *daemon.Config, _ *queue.Config) { c.Log = slowLog{c.Log, &did} })
	for range 3 {
		w.awaitEnd(w.accept(`{"goal":"Guess."}`))
	}
	w.keys["operator"] = "operator"
	text := w.do("operator", "GET", "/metrics", "", nil).Body.String()
	_, after, found := strings.Cut(text, `starling_eventlog_append_duration_seconds_sum{kind="RunStarted"} `)
	number, _, _ := strings.Cut(after, "\n")
	measured, err := strconv.ParseFloat(number, 64)
	if !found || err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	if most := time.Duration(did.Load()).Seconds(); measured > most {
		t.Errorf("the appends took %g s, of transactions whose functions took %g s in all", measured, most)
	}
}
