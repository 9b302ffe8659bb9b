package daemon_test

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/host/guest"
	"github.com/starling-host/starling/serve/internal/daemon"
	"github.com/starling-host/starling/serve/internal/mcpsrv"
	"github.com/starling-host/starling/serve/queue"
)

// TestTextThatWouldBeEscapedForHTML is not longer here for that, and what does not fit
// beside the rest of a job is not said of the body.
func TestTextThatWouldBeEscapedForHTML(t *testing.T) {
	w := newWorld(t, nil)
	if r := w.do("alice", "POST", "/api/v1/modules?name=other", "application/wasm", testModules["other"]()); r.Code != http.StatusCreated {
		t.Fatal(r.Code, r.Body)
	}
	for n, want := range map[int]int{200_000: http.StatusAccepted, 1<<20 - 60: http.StatusRequestEntityTooLarge} {
		body := `{"tool":"other","input":{"page":"` + strings.Repeat("<", n) + `"}}`
		r := w.do("alice", "POST", "/api/v1/runs", "application/json", []byte(body))
		if r.Code != want || strings.Contains(r.Body.String(), "the body has more") {
			t.Errorf("%d bytes: %d, %.300s", len(body), r.Code, r.Body)
		}
	}
}

// TestEverySubmissionIsAdmitted walks the ways in which a run is asked for, on a host whose disk has no room
// for runs: each is refused and leaves no run. Only a request that was carried out before has its answer.
func TestEverySubmissionIsAdmitted(t *testing.T) {
	var short atomic.Bool
	w := newWorld(t, func(c *daemon.Config, _ *queue.Config) {
		c.Space.KeepFree = 1 << 20
		c.Disk = func() (guest.DiskRoom, error) {
			if short.Load() {
				return guest.DiskRoom{Free: 1 << 18, Total: 1 << 40}, nil
			}
			return guest.DiskRoom{Free: 1 << 30, Total: 1 << 40}, nil
		}
	})
	if r := w.do("alice", "POST", "/api/v1/modules?name=other", "application/wasm", testModules["other"]()); r.Code != http.StatusCreated {
		t.Fatal(r.Code, r.Body)
	}
	post := func(path, body, key string) *httptest.ResponseRecorder {
		r := httptest.NewRequest("POST", path, bytes.NewReader([]byte(body)))
		r.Header.Set("Authorization", "Bearer "+w.keys["alice"])
		r.Header.Set("Content-Type", "application/json")
		if key != "" {
			r.Header.Set("Idempotency-Key", key)
		}
		answer := httptest.NewRecorder()
		w.daemon.ServeHTTP(answer, r)
		return answer
	}
	bodies := map[string]string{"/api/v1/runs": `{"goal":"Which number?"}`, "/api/v1/tools/other/call": `{"input":{}}`}
	before := map[string]string{}
	for path, body := range bodies {
		before[path] = post(path, body, "before "+path).Header().Get("Location")
	}
	runs := func() int {
		page, err := w.log.ListRunsPage(t.Context(), eventlog.RunPageOptions{Limit: 100})
		if err != nil {
			t.Fatal(err)
		}
		return page.TotalMatching
	}
	had := runs()
	short.Store(true)
	refused := map[string]int{}
	for path, body := range bodies {
		for _, key := range []string{"", "new " + path} {
			refused[fmt.Sprintf("%s with the key %q", path, key)] = post(path, body, key).Code
		}
		if again := post(path, body, "before "+path); before[path] == "" || again.Header().Get("Location") != before[path] {
			t.Errorf("%s, sent again: %d, %s, not %s", path, again.Code, again.Header().Get("Location"), before[path])
		}
	}
	r := httptest.NewRequest("POST", "/mcp", nil)
	r.Header.Set("Authorization", "Bearer "+w.keys["alice"])
	account, err := w.daemon.Authenticate(r)
	if err != nil {
		t.Fatal(err)
	}
	assistant, err := w.daemon.Assistant(account)
	if err != nil {
		t.Fatal(err)
	}
	for _, ticket := range []string{"", "a ticket"} {
		_, err := assistant.Tools.Call(t.Context(), mcpsrv.Call{Name: "other", Arguments: []byte("{}"), Ticket: ticket})
		if !errors.Is(err, mcpsrv.ErrRefused) || !strings.Contains(err.Error(), "almost full") {
			t.Errorf("a call with the ticket %q: %v", ticket, err)
		}
	}
	for what, status := range refused {
		if status != http.StatusInsufficientStorage {
			t.Errorf("%s: %d", what, status)
		}
	}
	if n := runs(); n != had || had != len(bodies) {
		t.Errorf("there are %d runs, not %d", n, had)
	}
}
