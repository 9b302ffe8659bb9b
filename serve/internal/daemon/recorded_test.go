package daemon_test

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/serve/internal/daemon"
	"github.com/starling-host/starling/serve/internal/queue"
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

// TestWhatWaitsIsRecorded: the first event of a run counts before the run is made.
func TestWhatWaitsIsRecorded(t *testing.T) {
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
