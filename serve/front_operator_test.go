package serve

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"
)

// TestAnOperatorSteersInTheWebView signs in with the operator's key, and with those of
// tenants. The operator sees the queue of all tenants and the hosts, and ends a run of
// alice's that would never end; of her runs it sees no more than that they are there. A
// tenant sees where its own runs stand, and has no such page and no such form.
func TestAnOperatorSteersInTheWebView(t *testing.T) {
	w := newWorld(t)
	w.load("alice", "spin", spinning())
	alice, bob, operator := w.browser("alice"), w.browser("bob"), w.browser("operator")
	if code, text, _ := w.ask(t.Context(), "alice", "POST", "/api/v1/runs", "", `{"tool":"spin","input":{}}`); code != http.StatusAccepted {
		t.Fatal(code, text)
	}
	run := w.atWork()
	if _, page := operator.load("GET", "/inspect/", nil); !strings.Contains(page, "alice/"+run) || !strings.Contains(page, ">running</span>") || !strings.Contains(page, ">working</span>") {
		t.Errorf("the operator sees %s", page)
	}
	if _, page := alice.load("GET", "/inspect/", nil); !strings.Contains(page, ">running</span>") || !strings.Contains(page, "attempt 1 of ") || strings.Contains(page, "Queue") {
		t.Errorf("alice sees %s", page)
	}
	if _, page := alice.load("GET", "/inspect/runs/"+run, nil); !strings.Contains(page, "attempt 1 of ") {
		t.Errorf("alice sees of her run %s", page)
	}
	for tool, arguments := range map[string]string{"list_runs": `{}`, "get_run": `{"run_id":"` + run + `"}`} {
		if _, said := asks(t, w.assistant("alice"), tool, arguments); !strings.Contains(said, `"job":{"state":"running","attempt":1,`) {
			t.Errorf("%s tells alice %s", tool, said)
		}
	}
	for _, path := range []string{"/inspect/runs/" + run, "/inspect/runs/" + url.PathEscape("alice/"+run), "/inspect/diff", "/inspect/runs/" + run + "/live"} {
		if code, page := operator.load("GET", path, nil); code != http.StatusNotFound {
			t.Errorf("%s shows the operator %d, %s", path, code, page)
		}
	}
	if _, page := operator.load("GET", "/inspect/usage", nil); !strings.Contains(page, ">alice</a>") || !strings.Contains(page, ">bob</a>") {
		t.Errorf("the operator sees of the usage %s", page)
	}
	if _, page := operator.load("GET", "/inspect/usage?tenant=bob", nil); strings.Contains(page, "alice") || !strings.Contains(page, "recorded since midnight") {
		t.Errorf("the operator sees of bob's usage %s", page)
	}
	if code, page := operator.load("GET", "/inspect/usage?tenant=nobody", nil); code != http.StatusNotFound {
		t.Errorf("the usage of nobody: %d, %s", code, page)
	}
	if _, page := bob.load("GET", "/inspect/usage?tenant=alice", nil); strings.Contains(page, "alice") || !strings.Contains(page, "<h2>bob</h2>") {
		t.Errorf("bob sees of the usage %s", page)
	}
	press := func(b *browser, what, of string) int {
		code, _ := b.load("POST", "/inspect/queue/"+what, url.Values{"of": {of}, "back": {"/inspect/queue?state=running"}})
		return code
	}
	for name, b := range map[string]*browser{"alice": alice, "bob": bob} {
		if code, page := b.load("GET", "/inspect/queue", nil); code != http.StatusNotFound {
			t.Errorf("the queue shows %s %d, %s", name, code, page)
		}
		for what, of := range map[string]string{"cancel": "alice/" + run, "drain": "test"} {
			if code := press(b, what, of); code != http.StatusNotFound {
				t.Errorf("%s may %s: %d", name, what, code)
			}
		}
	}
	foreign, err := http.NewRequestWithContext(t.Context(), "POST", w.url+"/inspect/queue/cancel?of=alice/"+run, nil)
	if err != nil {
		t.Fatal(err)
	}
	foreign.Header.Set("Origin", "https://evil.example")
	if resp, err := operator.client.Do(foreign); err != nil || resp.StatusCode != http.StatusForbidden {
		t.Errorf("a form of another page: %v, %v", resp, err)
	}
	for what, want := range map[string]int{"retry": http.StatusConflict, "burn": http.StatusConflict} {
		if code := press(operator, what, "alice/"+run); code != want {
			t.Errorf("%s: %d, want %d", what, code, want)
		}
	}
	if code := press(operator, "drain", "test"); code != http.StatusOK {
		t.Errorf("drain: %d", code)
	}
	if code := press(operator, "cancel", "alice/"+run); code != http.StatusOK {
		t.Errorf("cancel: %d", code)
	}
	w.until("/api/v1/runs/"+run, `"status":"cancelled"`)
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		_, page := operator.load("GET", "/inspect/queue", nil)
		if strings.Contains(page, ">drained</span>") && strings.Contains(page, "The queue is empty.") {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("the operator sees %s", page)
		}
	}
	if code := press(operator, "cancel", "alice/"+run); code != http.StatusConflict {
		t.Errorf("a run that has ended is cancelled: %d", code)
	}
	if code := press(operator, "resume", "test"); code != http.StatusOK {
		t.Errorf("resume: %d", code)
	}
}
