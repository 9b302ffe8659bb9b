package daemon_test

import (
	"net/http"
	"strings"
	"testing"
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
