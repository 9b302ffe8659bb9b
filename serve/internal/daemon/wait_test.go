package daemon_test

import (
	"net/http"
	"testing"
)

// TestAPIWaitedAnswerIsWhatTheLogSays is made of the events as they come, and is what the log
// says of the run later.
func TestAPIWaitedAnswerIsWhatTheLogSays(t *testing.T) {
	w := newWorld(t, nil)
	for _, name := range []string{"greet", "fail"} {
		if got := w.do("alice", "POST", "/api/v1/modules?name="+name, "application/wasm", testModules[name]()); got.Code != http.StatusCreated {
			t.Fatalf("%d %s", got.Code, got.Body)
		}
	}
	for _, body := range []string{`{"tool":"greet","wait":10}`, `{"tool":"fail","wait":10}`, `{"goal":"Guess.","wait":10}`} {
		answer := w.do("alice", "POST", "/api/v1/runs", "application/json", []byte(body))
		later := w.do("alice", "GET", answer.Header().Get("Location"), "", nil)
		if answer.Code != http.StatusOK || later.Code != http.StatusOK || answer.Body.String() != later.Body.String() {
			t.Errorf("%s\n%d %s\nlater\n%d %s", body, answer.Code, answer.Body, later.Code, later.Body)
		}
	}
}
