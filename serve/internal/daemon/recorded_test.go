package daemon_test

import (
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/serve/internal/daemon"
	"github.com/starling-host/starling/serve/queue"
	"github.com/starling-host/starling/serve/tenant"
)

// TestRecordedBytes: a tenant records no more than it may, today and in all. A new
// process knows it from the log, and what was removed counts no more.
func TestRecordedBytes(t *testing.T) {
	day := func() int { return time.Now().UTC().YearDay() }
	for _, limits := range []tenant.Limits{{RecordedPerDay: 1}, {Recorded: 1}} {
		began := day()
		got := recordBeyond(t, limits)
		for began != day() { // midnight has made room meanwhile
			began = day()
			got = recordBeyond(t, limits)
		}
		if want := []string{"200", "429 #recorded-limit", "429 #recorded-limit", "200"}; !slices.Equal(got, want) {
			t.Errorf("%+v: %q, want %q", limits, got, want)
		}
	}
}

// TestRecordedVolumeOfWaitingRuns: the first event of a run counts before the run is made.
func TestRecordedVolumeOfWaitingRuns(t *testing.T) {
	w := newWorld(t, func(_ *daemon.Config, q *queue.Config) {
		q.Limits = func(string) queue.Limits { return queue.Limits{Paused: true} }
	})
	w.addTenant("carol", tenant.Limits{Recorded: 1})
	ask := func() *http.Response {
		return w.do("carol", "POST", "/api/v1/runs", "application/json", []byte(`{"goal":"Guess."}`)).Result()
	}
	if got := ask(); got.StatusCode != http.StatusAccepted {
		t.Fatal(got.Status)
	}
	refusedForNow(t, result{ask()}, http.StatusTooManyRequests, "recorded-limit")
}

// recordBeyond returns what a tenant is told that asks for a run, for another one, for
// one from a new process, and for one after what it has recorded was removed.
func recordBeyond(t *testing.T, limits tenant.Limits) (told []string) {
	w := newWorld(t, nil)
	w.addTenant("carol", limits)
	ask := func() {
		answer := w.do("carol", "POST", "/api/v1/runs", "application/json", []byte(`{"goal":"Guess.","wait":20}`))
		told = append(told, strconv.Itoa(answer.Code))
		if strings.Contains(answer.Body.String(), "#recorded-limit") {
			told[len(told)-1] += " #recorded-limit"
			refusedForNow(t, answer, http.StatusTooManyRequests, "recorded-limit")
		}
	}
	ask()
	ask()
	w.stop()
	w.start()
	ask()
	if _, err := w.log.(eventlog.Store).PruneRuns(t.Context(), eventlog.PruneOptions{Namespace: "carol"}); err != nil {
		t.Fatal(err)
	}
	w.stop()
	w.start()
	ask()
	return told
}

// TestRecordedQuotaOfWaitingRuns: what waits in the queue counts before it is recorded, and
// runs that were accepted below the limit end for their own reason where they would take
// the tenant far beyond it. Their records replay.
func TestRecordedQuotaOfWaitingRuns(t *testing.T) {
	var paused atomic.Bool
	paused.Store(true)
	w := newWorld(t, func(_ *daemon.Config, q *queue.Config) {
		q.Limits = func(string) queue.Limits { return queue.Limits{Paused: paused.Load(), MaxRunning: 1} }
	})
	const most = 2 << 20
	w.addTenant("carol", tenant.Limits{Recorded: most, RequestsPerSecond: -1})
	if got := w.do("carol", "POST", "/api/v1/modules?name=other", "application/wasm", testModules["other"]()); got.Code != http.StatusCreated {
		t.Fatal(got.Body)
	}
	usage := func() (u tenant.Usage) {
		if err := json.Unmarshal(w.do("carol", "GET", "/api/v1/usage", "", nil).Body.Bytes(), &u); err != nil {
			t.Fatal(err)
		}
		return u
	}
	input := `{"tool":"other","input":{"s":"` + strings.Repeat("x", 900_000) + `"}}`
	var ids []string
	for range 3 {
		got := w.do("carol", "POST", "/api/v1/runs", "application/json", []byte(input))
		if got.Code != http.StatusAccepted {
			t.Fatal(got.Body)
		}
		var run struct {
			ID string `json:"run_id"`
		}
		if err := json.Unmarshal(got.Body.Bytes(), &run); err != nil {
			t.Fatal(err)
		}
		ids = append(ids, run.ID)
	}
	refusedForNow(t, result{w.do("carol", "POST", "/api/v1/runs", "application/json", []byte(input)).Result()}, http.StatusTooManyRequests, "recorded-limit")
	if r := usage().Recorded; r.Held < 2_700_000 || r.Bytes > 100_000 {
		t.Errorf("while they wait: %+v", r)
	}

	// The operator lowers the limit. The first run goes on a little beyond it.
	if err := w.tenants.Change(t.Context(), "carol", func(c *tenant.Tenant) { c.Limits.Recorded = 1 }); err != nil {
		t.Fatal(err)
	}
	paused.Store(false)
	w.stop()
	w.start()
	for i, want := range []string{"completed", "failed", "failed"} {
		var run struct {
			Status string                   `json:"status"`
			Error  struct{ Message string } `json:"error"`
		}
		w.do("carol", "GET", "/api/v1/runs/"+ids[i]+"/stream", "", nil) // until it has ended
		body := w.do("carol", "GET", "/api/v1/runs/"+ids[i], "", nil).Body.Bytes()
		if err := json.Unmarshal(body, &run); err != nil {
			t.Fatalf("%s: %v", body, err)
		}
		if run.Status != want || want == "failed" && !strings.HasSuffix(run.Error.Message, " bytes; the limit is 1") {
			t.Errorf("run %d: %+v", i+1, run)
		}
		if got := w.do("carol", "POST", "/api/v1/runs/"+ids[i]+"/replay", "", nil); got.Code != http.StatusOK || !strings.Contains(got.Body.String(), "identical") {
			t.Errorf("run %d: replay: %s", i+1, got.Body)
		}
	}
	if r := usage().Recorded; r.Held != 0 || r.Bytes < 1_800_000 || r.Bytes > 1_900_000 {
		t.Errorf("in the end: %+v", r)
	}
}
