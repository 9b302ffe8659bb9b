package guest_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/eventlog/store"
	"github.com/starling-host/starling/host/guest"
	"github.com/starling-host/starling/host/internal/registry"
	"github.com/starling-host/starling/host/policy"
	"github.com/starling-host/starling/runtime/agent"
	"github.com/starling-host/starling/runtime/agentfile"
	"github.com/starling-host/starling/runtime/observe"
)

// messenger loads the tool that sends what it is told to send.
func messenger(t *testing.T) *guest.Tool {
	t.Helper()
	source, err := registry.Open(t.Context(), "testdata/oracle")
	if err != nil {
		t.Fatal(err)
	}
	module, err := guest.Load(t.Context(), guest.Inline(newEngine(t)), source.Wasm, guest.Options{})
	if err != nil {
		t.Fatal(err)
	}
	found, _ := module.Tool("messenger")
	return found
}

// vault is a store of secrets.
type vault map[string]string

func (v vault) Secret(_ context.Context, name string) ([]byte, bool, error) {
	if name == "BROKEN" {
		return nil, false, errors.New("the vault has " + v["K"])
	}
	value, ok := v[name]
	return []byte(value), ok, nil
}

func parsePolicy(t *testing.T, text string) *policy.Policy {
	t.Helper()
	p, err := policy.Parse("policy.yaml", []byte("version: \"1.0\"\n"+text))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// input makes the messenger's input.
func input(t *testing.T, requests ...string) json.RawMessage {
	t.Helper()
	doc, err := json.Marshal(map[string]any{"requests": append([]string{}, requests...)})
	if err != nil {
		t.Fatal(err)
	}
	return doc
}

// answers reads what the messenger returned.
func answers(t *testing.T, r *agent.Result) []string {
	t.Helper()
	var all []string
	if err := json.Unmarshal(r.Output, &all); err != nil {
		t.Fatalf("%s: %v (%s)", r.Output, err, r.Error)
	}
	return all
}

// direct makes a run of one call under policies, checks its log, and replays it
// without any.
func direct(t *testing.T, tool *guest.Tool, run *policy.Run, doc json.RawMessage) (*agent.Result, []event.Event) {
	t.Helper()
	log := newLog()
	d := agent.Direct{Log: log, Tool: run.Guard(tool.Under(run))}
	r, err := d.Run(t.Context(), doc)
	if err != nil {
		t.Fatal(err)
	}
	events, err := log.Read(t.Context(), r.RunID)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := eventlog.Check(events, eventlog.CheckOptions{Strict: true}); err != nil {
		t.Error(err)
	}
	again, err := agent.Direct{Tool: tool}.Replay(t.Context(), events, agent.ReplayOptions{})
	if err != nil || !bytes.Equal(again.Output, r.Output) || again.Error != r.Error {
		t.Errorf("replay: %v", err)
	}
	return r, events
}

// exchanges returns the recorded exchanges.
func exchanges(t *testing.T, events []event.Event) []event.Exchange {
	t.Helper()
	var all []event.Exchange
	for _, ev := range events {
		effect, err := ev.AsSideEffectRecorded()
		if err != nil || len(effect.Request) == 0 {
			continue
		}
		var x event.Exchange
		if err := canon.Unmarshal(effect.Value, &x); err != nil {
			t.Fatal(err)
		}
		all = append(all, x)
	}
	return all
}

func TestDecisionsAreRecordedAndReplayed(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "it is ", r.URL.Path) }))
	defer server.Close()
	_, port, _ := strings.Cut(server.Listener.Addr().String(), ":")
	p := parsePolicy(t, `
permissions:
  network:
    allow: [{host: 127.0.0.1, schemes: [http], ports: [`+port+`], paths: [/open/*], max_calls: 2, private: true}]
  tools: {messenger: {arguments: {type: object, properties: {requests: {type: array, maxItems: 9}}}}}
`)
	tool := messenger(t)
	get := func(path string) string { return "GET " + server.URL + path + " HTTP/1.1\r\n\r\n" }
	r, events := direct(t, tool, policy.NewRun(p, p, nil), input(t, get("/open/1"), get("/closed"), get("/open/2"), get("/open/3")))
	got := answers(t, r)
	for i, want := range []string{"it is /open/1", "rule 1 does not allow this path", "it is /open/2", "they have been made"} {
		if !strings.Contains(got[i], want) {
			t.Errorf("answer %d is %q, want %q", i, got[i], want)
		}
	}
	digest := p.Digest()
	recorded := exchanges(t, events)
	if len(recorded) != 4 || len(recorded[0].Decision) != 2 || len(recorded[1].Decision) != 1 {
		t.Fatalf("%+v", recorded)
	}
	if v := recorded[0].Decision[0]; v.Side != policy.Operator || v.Rule != 1 || v.Line != 5 || !bytes.Equal(v.Policy, digest[:]) {
		t.Errorf("%+v", v)
	}
	if v := recorded[1].Decision[0]; v.Denied != "rule 1 does not allow this path" || v.Line != 5 || v.Rule != 0 {
		t.Errorf("%+v", v)
	}
	started, err := events[0].AsRunStarted()
	if err != nil {
		t.Fatal(err)
	}
	if ref := started.ToolSchemas[0].Sandbox.Policy; ref == nil || !bytes.Equal(ref.Operator, digest[:]) || !bytes.Equal(ref.Tenant, digest[:]) {
		t.Errorf("%+v", ref)
	}
}

func TestCountersSurviveTheirRun(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, strings.Repeat("x", 100)) }))
	defer server.Close()
	_, port, _ := strings.Cut(server.Listener.Addr().String(), ":")
	tool := messenger(t)
	get := "GET " + server.URL + "/ HTTP/1.1\r\n\r\n"
	for _, c := range []struct{ bound, want string }{
		{"max_calls: 3", "allows 3 requests in a run, and they have been made"},
		{"max_bytes: 900", "left"},
	} {
		p := parsePolicy(t, "permissions: {network: {allow: [{host: 127.0.0.1, schemes: [http], private: true, ports: ["+port+"], "+c.bound+"}]}}")
		r, events := direct(t, tool, policy.NewRun(p, nil, nil), input(t, get, get))
		first := answers(t, r)
		run := policy.NewRun(p, nil, nil)
		if err := run.Resume(events); err != nil {
			t.Fatal(err)
		}
		r, _ = direct(t, tool, run, input(t, get, get, get, get))
		second := answers(t, r)
		all := append(first, second...)
		for _, ok := range all[:3] {
			if !strings.HasPrefix(ok, "HTTP/1.1 200") {
				t.Errorf("%s: %q", c.bound, ok)
			}
		}
		if last := all[len(all)-1]; !strings.Contains(last, c.want) {
			t.Errorf("%s: %q does not say %q", c.bound, last, c.want)
		}
	}
}

// Exchanges at the same time do not get more than there is.
func TestCountersHoldAtTheSameTime(t *testing.T) {
	var mu sync.Mutex
	hits := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		hits++
	}))
	defer server.Close()
	_, port, _ := strings.Cut(server.Listener.Addr().String(), ":")
	p := parsePolicy(t, "permissions: {network: {allow: [{host: 127.0.0.1, schemes: [http], private: true, ports: ["+port+"], max_calls: 5}]}}")
	run := policy.NewRun(p, nil, nil)
	tool := messenger(t)
	get := "GET " + server.URL + "/ HTTP/1.1\r\n\r\n"
	var group sync.WaitGroup
	for range 4 {
		group.Go(func() { direct(t, tool, run, input(t, get, get, get)) })
	}
	group.Wait()
	if hits != 5 {
		t.Errorf("%d requests arrived", hits)
	}
}

func TestCallsAreDecidedBeforeTheyBegin(t *testing.T) {
	p := parsePolicy(t, "permissions: {tools: {messenger: {arguments: {type: object, properties: {requests: {type: array, maxItems: 0}}}}}}")
	tool := messenger(t)
	r, events := direct(t, tool, policy.NewRun(p, nil, nil), input(t, "GET http://a.test/ HTTP/1.1\r\n\r\n"))
	const why = "the operator's policy does not allow it: the argument /requests must match maxItems: 0"
	if r.TerminalKind != event.KindRunFailed || r.Error != why || r.ErrorType != event.ErrorTool || r.Meter.Fuel != 0 {
		t.Errorf("%+v", r)
	}
	effect, err := events[2].AsSideEffectRecorded()
	if err != nil || effect.Name != event.EffectPolicy || len(events) != 5 {
		t.Errorf("%d events, %+v, %v", len(events), effect, err)
	}
	r, events = direct(t, tool, policy.NewRun(p, nil, nil), input(t))
	if r.TerminalKind != event.KindRunCompleted || len(events) != 5 {
		t.Errorf("%+v, %d events", r, len(events))
	}
	if _, err := policy.NewRun(p, nil, nil).Guard(tool).Execute(t.Context(), nil); err == nil {
		t.Error("a guarded tool was called past its guard")
	}
}

// echo gives back all it is sent, in every way it knows.
func echo(seen *[]string, mu *sync.Mutex) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		secret := r.Header.Get("X-Key") + r.URL.Query().Get("key") + string(body)
		mu.Lock()
		*seen = append(*seen, secret)
		secret = strings.Join(*seen, "|")
		mu.Unlock()
		w.Header().Set("X-Echo", secret)
		flusher := w.(http.Flusher)
		for i := range secret { // each byte is a chunk
			w.Write([]byte{secret[i]})
			flusher.Flush()
		}
		quoted, _ := json.Marshal(secret)
		fmt.Fprintf(w, "\n%s\n%s\n%s\n%x\n", quoted, url.QueryEscape(secret), base64.StdEncoding.EncodeToString([]byte("Basic user:"+secret)), secret)
	}
}

// TestCanary sends a secret in all places and looks for it everywhere.
func TestCanary(t *testing.T) {
	canary := "canary/" + rand.Text() + "+="
	var seen []string
	var mu sync.Mutex
	server := httptest.NewServer(echo(&seen, &mu))
	defer server.Close()
	_, port, _ := strings.Cut(server.Listener.Addr().String(), ":")
	at := "127.0.0.1:" + port
	p := parsePolicy(t, `
permissions:
  network:
    allow: [{host: 127.0.0.1, schemes: [http], ports: [`+port+`], private: true}]
secrets:
  - {name: K, audience: ["`+at+`"], header: X-Key}
  - {name: K, audience: ["`+at+`"], query: key}
  - {name: K, audience: ["`+at+`"], body: true}
  - {name: NONE, audience: ["`+at+`"], body: true}
`)
	dir := t.TempDir()
	log, err := store.OpenFile(t.Context(), filepath.Join(dir, "log.db"), store.FileOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var said bytes.Buffer
	registered := prometheus.NewRegistry()
	store := vault{"K": canary}
	tool := messenger(t)
	requests := []string{
		"GET " + server.URL + "/ HTTP/1.1\r\nX-Key: {{secret:K}}\r\n\r\n",
		"GET " + server.URL + "/?key={{secret:K}} HTTP/1.1\r\n\r\n",
		"POST " + server.URL + "/ HTTP/1.1\r\nContent-Type: text/plain\r\nContent-Length: 12\r\n\r\n{{secret:K}}",
		"GET " + server.URL + "/again HTTP/1.1\r\nAccept-Encoding: gzip\r\n\r\n",
		"GET " + server.URL + "/?other={{secret:K}} HTTP/1.1\r\n\r\n",
		"POST " + server.URL + "/ HTTP/1.1\r\nContent-Length: 15\r\n\r\n{{secret:NONE}}",
	}
	run := policy.NewRun(p, nil, store)
	d := agent.Direct{
		Log: struct{ eventlog.EventLog }{log}, Tool: run.Guard(tool.Under(run)), Metrics: observe.NewMetrics(registered),
		Logger: slog.New(slog.NewTextHandler(&said, &slog.HandlerOptions{Level: slog.LevelDebug})),
	}
	r, err := d.Run(t.Context(), input(t, requests...))
	if err != nil {
		t.Fatal(err)
	}
	got := answers(t, r)
	for i, want := range []string{"200 OK", "200 OK", "200 OK", "200 OK", "this parameter of the query", "there is no secret NONE"} {
		if !strings.Contains(got[i], want) {
			t.Errorf("answer %d is %q, want %q", i, got[i], want)
		}
	}
	fmt.Fprintf(&said, "%s\n%s\n%s\n", r.Output, r.Error, r.Meter.Log)
	log.Close()
	if len(seen) == 0 || strings.Join(seen[:3], "") != canary+canary+canary {
		t.Fatalf("the server was sent %q", seen)
	}
	recorder := httptest.NewRecorder()
	observe.MetricsHandler(registered).ServeHTTP(recorder, httptest.NewRequest("GET", "/", nil))
	said.Write(recorder.Body.Bytes())
	files, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil || len(files) == 0 {
		t.Fatal(err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		said.Write(data)
	}
	for _, form := range []string{canary, canary[7:], url.QueryEscape(canary), fmt.Sprintf("%x", canary), strings.TrimRight(base64.StdEncoding.EncodeToString([]byte(canary)), "=")} {
		if at := bytes.Index(said.Bytes(), []byte(form)); at >= 0 {
			t.Errorf("%q is in %q", form, said.Bytes()[max(0, at-100):min(said.Len(), at+100)])
		}
	}
	if n := bytes.Count(said.Bytes(), []byte("{{secret:K}}")); n < 20 {
		t.Errorf("the placeholder is there %d times", n)
	}
}

// A store that fails denies the exchange, and what it says stays with it.
func TestAStoreThatFails(t *testing.T) {
	p := parsePolicy(t, "permissions: {network: {allow: [{host: a.test}]}}\nsecrets: [{name: BROKEN, audience: [b.test], body: true}]")
	r, _ := direct(t, messenger(t), policy.NewRun(p, nil, vault{"K": "hunter2hunter2"}), input(t, "GET https://a.test/ HTTP/1.1\r\n\r\n"))
	if got := answers(t, r)[0]; !strings.Contains(got, "the secret BROKEN could not be read") || strings.Contains(got, "hunter2") {
		t.Errorf("%q", got)
	}
}

// A tool that was loaded before its run was known finds the policies in its context.
func TestPoliciesOfTheContext(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "it is ", r.URL.Path) }))
	defer server.Close()
	_, port, _ := strings.Cut(server.Listener.Addr().String(), ":")
	p := parsePolicy(t, "permissions: {network: {allow: [{host: 127.0.0.1, schemes: [http], ports: ["+port+"], private: true}]}}")
	log := newLog()
	d := agent.Direct{Log: log, Tool: messenger(t)}
	doc := input(t, "GET "+server.URL+"/ HTTP/1.1\r\n\r\n", "GET http://a.test/ HTTP/1.1\r\n\r\n")
	ctx := policy.With(t.Context(), policy.NewRun(p, nil, nil))
	r, err := d.Run(ctx, doc)
	if err != nil {
		t.Fatal(err)
	}
	if got := answers(t, r); !strings.Contains(got[0], "it is /") || !strings.Contains(got[1], "no rule names a.test") {
		t.Errorf("%q", got)
	}
	events, err := log.Read(t.Context(), r.RunID)
	if err != nil {
		t.Fatal(err)
	}
	if x := exchanges(t, events); len(x[0].Decision) != 1 || len(x[1].Decision) != 1 {
		t.Errorf("%+v", x)
	}
	if _, err := d.Replay(t.Context(), events, agent.ReplayOptions{}); err != nil {
		t.Error(err)
	}
	if r, err = d.Run(t.Context(), doc); err != nil || !strings.Contains(answers(t, r)[0], "not an allowed destination") {
		t.Errorf("%s, %v", r.Output, err)
	}
}

// The built-in fetch is under the policies of its context, and replays without
// them.
func TestPoliciesOfTheBuiltInFetch(t *testing.T) {
	p := parsePolicy(t, "permissions: {network: {allow: [{host: a.invalid, schemes: [http], max_calls: 1}]}}")
	log := newLog()
	d := agent.Direct{Log: log, Tool: agentfile.Fetch()}
	run := policy.NewRun(p, nil, nil)
	for i, want := range []string{"a.invalid: ", "allows 1 requests in a run", "no rule names b.invalid"} {
		url := []string{"http://a.invalid/", "http://a.invalid/", "http://b.invalid/"}[i]
		r, err := d.Run(policy.With(t.Context(), run), json.RawMessage(`{"url":"`+url+`"}`))
		if err != nil || !strings.Contains(r.Error, want) {
			t.Errorf("%s: %+v, %v", url, r, err)
		}
		events, err := log.Read(t.Context(), r.RunID)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := d.Replay(t.Context(), events, agent.ReplayOptions{}); err != nil {
			t.Error(err)
		}
	}
}
