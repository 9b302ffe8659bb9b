package builtin

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/eventlog/store"
	"github.com/starling-host/starling/runtime/agent"
	"github.com/starling-host/starling/runtime/egress"
	"github.com/starling-host/starling/runtime/tool"
)

// run makes one recorded run and returns its result and its events.
func run(t *testing.T, use tool.Tool, input string) (*agent.Result, []event.Event) {
	t.Helper()
	log := store.Memory()
	defer log.Close()
	result, err := agent.Direct{Log: log, Tool: use}.Run(t.Context(), json.RawMessage(input))
	if err != nil {
		t.Fatal(err)
	}
	events, err := log.Read(t.Context(), result.RunID)
	if err != nil {
		t.Fatal(err)
	}
	return result, events
}

func mustReplay(t *testing.T, use tool.Tool, events []event.Event) {
	t.Helper()
	resolve := func(context.Context, event.ToolSchemaRef) (tool.Tool, error) { return use, nil }
	verdict, err := agent.Replay(t.Context(), events, resolve, agent.ReplayOptions{})
	if err != nil || !verdict.Identical() {
		t.Errorf("replay: %+v, %v", verdict.Divergence, err)
	}
}

// localFetch is Fetch that may reach one server on loopback.
func localFetch(t *testing.T, address string) tool.Tool {
	t.Helper()
	rule, err := egress.ParseRule(address)
	if err != nil {
		t.Fatal(err)
	}
	return fetchWith(egress.New(egress.Config{Authorize: egress.Rules{Allow: []egress.Rule{rule}, Private: true}, MaxResponseBytes: fetchBytes}))
}

func TestFetch(t *testing.T) {
	mux := http.NewServeMux()
	mux.HandleFunc("/page", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain")
		fmt.Fprint(w, "hello")
	})
	mux.HandleFunc("/moved", func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "page", http.StatusFound) })
	mux.HandleFunc("/loop", func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/loop", http.StatusFound) })
	mux.HandleFunc("/away", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "http://169.254.169.254/latest", http.StatusFound)
	})
	mux.HandleFunc("/secret", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Location", "/pay?to=me&key=%7B%7Bsecret:K%7D%7D")
		w.WriteHeader(http.StatusFound)
	})
	mux.HandleFunc("/binary", func(w http.ResponseWriter, _ *http.Request) { w.Write([]byte{0xff, 0xfe}) })
	mux.HandleFunc("/large", func(w http.ResponseWriter, _ *http.Request) { w.Write(make([]byte, fetchBytes+1)) })
	server := httptest.NewServer(mux)
	use := localFetch(t, strings.TrimPrefix(server.URL, "http://"))
	recorded := map[string][]event.Event{}
	for path, want := range map[string]string{
		"/page":   `"status":200`,
		"/moved":  server.URL + "/page",
		"/none":   `"status":404`,
		"/loop":   "more than 5 redirects",
		"/away":   "not an allowed destination",
		"/secret": "the placeholder of a secret is not followed",
		"/binary": "not UTF-8 text",
		"/large":  "more than 1048576 bytes",
	} {
		result, events := run(t, use, `{"url":"`+server.URL+path+`"}`)
		if got := string(result.Output) + result.Error; !strings.Contains(got, want) {
			t.Errorf("%s: %s, want %q in it", path, got, want)
		}
		recorded[path] = events
	}
	server.Close()
	for _, events := range recorded {
		mustReplay(t, use, events)
	}
}

// allowing decides by host alone, and records the requests with their tools.
type allowing struct{ asked []string }

func (a *allowing) Decide(tool string) (egress.Authorizer, func() event.Verdicts) {
	a.asked = append(a.asked, tool)
	return a, func() event.Verdicts { return event.Verdicts{{Policy: make([]byte, 32), Side: "operator", Rule: 1}} }
}

func (a *allowing) Authorize(_ context.Context, access egress.Access) (egress.Grant, error) {
	a.asked = append(a.asked, access.Path)
	return egress.Grant{Private: true}, nil
}

// Each hop of a fetch is decided separately; the decision is recorded with the
// result, and hidden from the caller.
func TestFetchUnderADecider(t *testing.T) {
	mux := http.NewServeMux()
	mux.HandleFunc("/moved", func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "page", http.StatusFound) })
	mux.HandleFunc("/page", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "hello") })
	server := httptest.NewServer(mux)
	defer server.Close()
	use := localFetch(t, strings.TrimPrefix(server.URL, "http://"))
	var decider allowing
	log := store.Memory()
	result, err := agent.Direct{Log: log, Tool: use}.Run(egress.WithDecider(t.Context(), &decider), json.RawMessage(`{"url":"`+server.URL+`/moved"}`))
	if err != nil || result.TerminalKind != event.KindRunCompleted || strings.Contains(string(result.Output), "operator") {
		t.Fatalf("%+v, %v", result, err)
	}
	if got := fmt.Sprint(decider.asked); got != "[fetch /moved /page]" {
		t.Errorf("asked %s", got)
	}
	events, err := log.Read(t.Context(), result.RunID)
	if err != nil {
		t.Fatal(err)
	}
	effect, err := events[2].AsSideEffectRecorded()
	if err != nil || !strings.Contains(string(effect.Value), "operator") {
		t.Errorf("%q, %v", effect.Value, err)
	}
	mustReplay(t, use, events)
}

func TestFetchReachesPublicAddressesOnly(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("the server was reached") }))
	defer server.Close()
	for _, url := range []string{server.URL, strings.Replace(server.URL, "127.0.0.1", "localhost", 1), "http://[::1]/", "file:///etc/passwd", "ftp://example.com/"} {
		result, _ := run(t, Fetch(), `{"url":"`+url+`"}`)
		if result.TerminalKind != event.KindRunFailed {
			t.Errorf("%s: %s", url, result.Output)
		}
	}
}

// TestBuiltinDiscardsHopelessCalls: a policy that retries must not repeat a
// request that is never allowed.
func TestBuiltinDiscardsHopelessCalls(t *testing.T) {
	readFile, err := ReadFile(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, input string
		use         tool.Tool
		want        string
	}{
		{"a private address", `{"url":"http://127.0.0.1:9/"}`, Fetch(), "discard"},
		{"a URL that is none", `{"url":"::"}`, Fetch(), "discard"},
		{"a path that leads out", `{"path":"../x"}`, readFile, "discard"},
		{"a file that is not there", `{"path":"x"}`, readFile, "tool"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, events := run(t, c.use, c.input)
			effect, err := events[2].AsSideEffectRecorded()
			if err != nil || effect.Error == nil || effect.Error.Type != c.want {
				t.Errorf("recorded %+v, %v; want type %s", effect.Error, err, c.want)
			}
			mustReplay(t, c.use, events)
		})
	}
}

func TestReadFile(t *testing.T) {
	outside := filepath.Join(t.TempDir(), "secret.txt")
	dir := t.TempDir()
	for path, content := range map[string]string{outside: "secret", filepath.Join(dir, "note.txt"): "a note", filepath.Join(dir, "bin"): "\xff"} {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(outside, filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	use, err := ReadFile(dir)
	if err != nil {
		t.Fatal(err)
	}
	var events []event.Event
	for path, want := range map[string]string{
		"note.txt":      `{"content":"a note"}`,
		"../secret.txt": "not a path below the folder",
		"a/../note.txt": "not a path below the folder",
		"/etc/passwd":   "not a path below the folder",
		"link":          "escapes",
		".":             "is not a file",
		"bin":           "not UTF-8 text",
		"there-is-none": "no such file",
	} {
		result, recorded := run(t, use, `{"path":"`+path+`"}`)
		if got := string(result.Output) + result.Error; !strings.Contains(got, want) {
			t.Errorf("%s: %s, want %q in it", path, got, want)
		}
		if strings.Contains(result.Error, dir) {
			t.Errorf("%s: the error tells where the folder is: %s", path, result.Error)
		}
		if path == "note.txt" {
			events = recorded
		}
	}
	if err := os.Remove(filepath.Join(dir, "note.txt")); err != nil {
		t.Fatal(err)
	}
	mustReplay(t, use, events)
	if _, err := ReadFile(filepath.Join(dir, "none")); err == nil {
		t.Error("a folder that is not there was opened")
	}
}
