package daemon_test

import (
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/starling-host/starling/serve/internal/daemon"
	"github.com/starling-host/starling/serve/queue"
)

// TestAHostThatEndsSaysSo tells a daemon to end whose readiness somebody looks at.
// It answers on new connections that it is not ready, takes no work, and serves what
// there is to read.
func TestAHostThatEndsSaysSo(t *testing.T) {
	w := newWorld(t, func(c *daemon.Config, _ *queue.Config) { c.Drain = time.Hour })
	if status := w.fresh("GET", "/api/v1/readyz", "").StatusCode; status != http.StatusOK {
		t.Fatalf("before: %d", status)
	}
	run := w.accept(`{"goal":"Which number?"}`)
	w.awaitEnd(run)
	w.end()
	w.untilNotReady()
	for _, c := range []struct {
		request, body string
		want          int
	}{
		{"POST /api/v1/runs", `{"agent":"gambler","goal":"Guess."}`, http.StatusServiceUnavailable},
		{"POST /api/v1/tools/greet/call", `{"input":{}}`, http.StatusServiceUnavailable},
		{"POST /api/v1/modules?name=again", "", http.StatusServiceUnavailable},
		{"POST /api/v1/runs/" + run + "/replay", "", http.StatusServiceUnavailable},
		{"GET /api/v1/runs/" + run, "", http.StatusOK},
		{"GET /api/v1/healthz", "", http.StatusOK},
	} {
		method, path, _ := strings.Cut(c.request, " ")
		answer := w.fresh(method, path, c.body)
		if answer.StatusCode != c.want || !answer.Close {
			t.Errorf("%s: %s, the connection is closed: %t", c.request, answer.Status, answer.Close)
		}
		if after := answer.Header.Get("Retry-After"); (after != "") != (c.want == http.StatusServiceUnavailable) {
			t.Errorf("%s: %s, to be repeated after %q", c.request, answer.Status, after)
		}
	}
	// Who has gone on to listen waits for nobody when there is nothing to listen to.
	w.socket.Close()
	if err := <-w.served; !errors.Is(err, net.ErrClosed) {
		t.Errorf("it ended with %v", err)
	}
	w.halt = func() {}
}

// TestAHostThatNobodyAsksEndsAtOnce has a daemon end that nobody has asked whether it
// is ready: it would be an hour.
func TestAHostThatNobodyAsksEndsAtOnce(t *testing.T) {
	newWorld(t, func(c *daemon.Config, _ *queue.Config) { c.Drain = time.Hour })
}

// fresh asks as alice on a connection of its own.
func (w *world) fresh(method, path, body string) *http.Response {
	w.t.Helper()
	r, err := http.NewRequestWithContext(w.t.Context(), method, w.url+path, strings.NewReader(body))
	if err != nil {
		w.t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+w.keys["alice"])
	r.Header.Set("Content-Type", "application/json")
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	answer, err := transport.RoundTrip(r)
	if err != nil {
		w.t.Fatal(err)
	}
	defer answer.Body.Close()
	if _, err := io.Copy(io.Discard, answer.Body); err != nil {
		w.t.Fatal(err)
	}
	return answer
}

// untilNotReady waits for the daemon to hear that it is to end.
func (w *world) untilNotReady() {
	w.t.Helper()
	for deadline := time.Now().Add(awaitTime); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		if w.fresh("GET", "/api/v1/readyz", "").StatusCode == http.StatusServiceUnavailable {
			return
		}
	}
	w.t.Fatal("it says that it is ready")
}
