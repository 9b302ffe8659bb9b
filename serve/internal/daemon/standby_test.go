package daemon_test

import (
	"bytes"
	"encoding/json"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/starling-host/starling/internal/pgtest"
	"github.com/starling-host/starling/serve/internal/daemon"
	"github.com/starling-host/starling/serve/queue"
)

// TestAStandbyThatDoesNotAnswer takes the standby of the database away: the server can be read, and every
// write waits. The host says that it is not ready and why, and answers each request for a run with 503
// long before the log gives up, also one that was carried out before. With the standby back all of it
// succeeds.
func TestAStandbyThatDoesNotAnswer(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIPPED: a request waits nine seconds for the database; run without -short")
	}
	t.Parallel()
	pair := pgtest.StartPair(t)
	address, _ := pair.Database(t)
	w := newWorldOn(t, address, func(_ *daemon.Config, c *queue.Config) { c.Lease = 3 * time.Second })
	if got := w.do("alice", "POST", "/api/v1/modules?name=greet", "application/wasm", testModules["greet"]()); got.Code != http.StatusCreated {
		t.Fatalf("%d %s", got.Code, got.Body)
	}
	ready := func() (status int, log string) {
		got := w.do("", "GET", "/api/v1/readyz", "", nil)
		var doc struct{ Checks map[string]string }
		if err := json.Unmarshal(got.Body.Bytes(), &doc); err != nil {
			t.Fatal(err)
		}
		return got.Code, doc.Checks["log"]
	}
	measured := func(line string) bool {
		r := httptest.NewRequest("GET", "/metrics", nil)
		r.Header.Set("Authorization", "Bearer operator")
		got := httptest.NewRecorder()
		w.daemon.ServeHTTP(got, r)
		return strings.Contains(got.Body.String(), line+"\n")
	}
	if status, log := ready(); status != http.StatusOK || log != "ok" {
		t.Fatalf("with the standby: %d, %s", status, log)
	}
	type request struct{ path, body, key string }
	send := func(r request) *httptest.ResponseRecorder {
		h := httptest.NewRequest("POST", r.path, strings.NewReader(r.body)).WithContext(t.Context())
		h.Header.Set("Authorization", "Bearer "+w.keys["alice"])
		h.Header.Set("Content-Type", "application/json")
		if r.key != "" {
			h.Header.Set("Idempotency-Key", r.key)
		}
		got := httptest.NewRecorder()
		w.daemon.ServeHTTP(got, h)
		return got
	}
	const run, call = `{"goal":"Which number?"}`, `{"input":{}}`
	before := request{"/api/v1/runs", run, "before"}
	first := send(before)
	if first.Code != http.StatusAccepted {
		t.Fatalf("%d %s", first.Code, first.Body)
	}
	requests := map[string]request{
		"a run":                      {"/api/v1/runs", run, ""},
		"a run that waits":           {"/api/v1/runs", `{"goal":"Which number?","wait":20}`, ""},
		"a call":                     {"/api/v1/tools/greet/call", call, ""},
		"a run with a new key":       {"/api/v1/runs", run, "new"},
		"a call with a new key":      {"/api/v1/tools/greet/call", call, "call"},
		"a run with a key of before": before,
	}

	pair.Standby.Crash(t)
	var all sync.WaitGroup
	for what, r := range requests {
		all.Go(func() {
			if got := send(r); got.Code != http.StatusServiceUnavailable || got.Header().Get("Retry-After") == "" {
				t.Errorf("%s without the standby: %d, to be repeated after %q: %s", what, got.Code, got.Header().Get("Retry-After"), got.Body)
			}
		})
	}
	await(t, "readyz to name the standby", func() bool { // the write of a second ago may count
		status, log := ready()
		return status == http.StatusServiceUnavailable && log == "standby does not answer"
	})
	if !measured(`starling_ready{check="log"} 0`) || !measured(`starling_ready{check="keys"} 1`) {
		t.Error("the metrics do not have the check that fails")
	}
	all.Wait()

	pair.Standby.Restart(t)
	await(t, "the host to be ready", func() bool { status, _ := ready(); return status == http.StatusOK })
	for what, r := range maps.All(requests) {
		var got *httptest.ResponseRecorder
		await(t, what, func() bool { got = send(r); return got.Code == http.StatusAccepted || got.Code == http.StatusOK })
		if r == before && !bytes.Equal(got.Body.Bytes()[:50], first.Body.Bytes()[:50]) {
			t.Errorf("the key belongs to %s, and then to %s", first.Body, got.Body)
		}
	}
}

// await waits until something is so.
func await(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(awaitTime); !is(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("waited in vain for %s", what)
		}
	}
}
