package guest_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/host/guest"
	"github.com/starling-host/starling/host/internal/registry"
	"github.com/starling-host/starling/host/policy"
	"github.com/starling-host/starling/host/sandbox"
	"github.com/starling-host/starling/runtime/agent"
	"github.com/starling-host/starling/runtime/agenttest"
)

// The policy that is suggested for a run refuses nothing of it, and has nothing in
// it that could be left out.
func TestTheSuggestedPolicyIsTheSmallest(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "it is ", r.URL.Path) }))
	defer server.Close()
	_, port, _ := strings.Cut(server.Listener.Addr().String(), ":")
	at := server.Listener.Addr().String()
	p := parsePolicy(t, `
permissions: {network: {allow: [{host: 127.0.0.1, schemes: [http], ports: [`+port+`], methods: [GET, PUT], private: true}]}}
secrets: [{name: K, audience: ["`+at+`"], header: X-Key}, {name: K, audience: ["`+at+`"], query: "no"}]
`)
	tool := messenger(t)
	var requests []string
	for _, line := range []string{"GET /a", "GET /a", "GET /b*/%2A/'x'", "PUT /a", "GET /a/../b", "DELETE /a", "GET /?no={{secret:K}}"} {
		method, path, _ := strings.Cut(line, " ")
		requests = append(requests, method+" "+server.URL+path+" HTTP/1.1\r\nX-Key: {{secret:K}}\r\n\r\n")
	}
	_, events := direct(t, tool, policy.NewRun(p, nil, vault{"K": "hunter2hunter2"}), input(t, requests...))
	text, err := policy.Suggest(events)
	if err != nil {
		t.Fatal(err)
	}
	suggested, err := policy.Parse("suggested.yaml", text)
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	refused, err := policy.Test(suggested, nil, events)
	if err != nil || len(refused) > 0 {
		t.Errorf("%v, %+v\n%s", err, refused, text)
	}
	if strings.Contains(string(text), "DELETE") || len(suggested.Network) != 3 || len(suggested.Secrets) != 2 {
		t.Errorf("%s", text)
	}
	everyLimitCounts(t, string(text), events)
	lines := strings.SplitAfter(string(text), "\n")
	for i, line := range lines {
		if !strings.HasPrefix(strings.TrimSpace(line), "- ") && !strings.Contains(line, "messenger:") {
			continue
		}
		smaller, err := policy.Parse("smaller.yaml", []byte(strings.Join(lines[:i], "")+strings.Join(lines[i+1:], "")))
		if err != nil {
			continue // a list with nothing in it
		}
		if refused, err := policy.Test(smaller, nil, events); err != nil || len(refused) == 0 {
			t.Errorf("%q can be left out (%v)", line, err)
		}
	}
	for _, at := range regexp.MustCompile("max_bytes: [0-9]+").FindAllStringIndex(string(text), -1) {
		n, err := strconv.Atoi(string(text[at[0]+len("max_bytes: ") : at[1]]))
		less := fmt.Sprintf("%smax_bytes: %d%s", text[:at[0]], n-1, text[at[1]:])
		if err != nil || n == 0 {
			t.Fatalf("%v\n%s", err, text)
		}
		if refused, err := policy.Test(parsePolicy(t, strings.Replace(less, "version: \"1.0\"", "", 1)), nil, events); err != nil || len(refused) == 0 {
			t.Errorf("a byte less refuses nothing (%v)\n%s", err, less)
		}
	}
	for _, change := range [][2]string{{"max_calls: 4", "max_calls: 3"}, {"max_bytes: [0-9]+", "max_bytes: 300"}, {"fuel: [0-9]+", "fuel: 1"}, {"memory: [0-9]+KiB", "memory: 64KiB"}, {"/a,", "/c,"}, {"host: 127.0.0.1", "host: 127.0.0.2"}} {
		changed := regexp.MustCompile(change[0]).ReplaceAllString(string(text), change[1])
		refused, err := policy.Test(parsePolicy(t, strings.Replace(changed, "version: \"1.0\"", "", 1)), nil, events)
		if err != nil || len(refused) == 0 {
			t.Errorf("%v refuses nothing (%v)\n%s", change, err, changed)
		}
	}
}

// everyLimitCounts lowers each limit of a policy that was suggested for a run and looks
// whether something of the run is refused.
func everyLimitCounts(t *testing.T, text string, events []event.Event) {
	t.Helper()
	for _, limit := range []string{"fuel", "memory", "input", "effects", "effect_bytes"} {
		number := regexp.MustCompile("[{ ]" + limit + ": ([0-9]+)").FindStringSubmatchIndex(text)
		if number == nil {
			t.Errorf("%s is not limited\n%s", limit, text)
			continue
		}
		n, err := strconv.Atoi(text[number[2]:number[3]])
		if err != nil {
			t.Fatal(err)
		}
		less := text[:number[2]] + strconv.Itoa(n-1) + text[number[3]:]
		smaller, err := policy.Parse("smaller.yaml", []byte(less))
		if err != nil {
			t.Fatalf("%v\n%s", err, less)
		}
		if limit == "memory" {
			smaller.Limits.MemoryPages-- // a page has many KiB
		}
		if refused, err := policy.Test(smaller, nil, events); err != nil || len(refused) == 0 {
			t.Errorf("%s of one less refuses nothing (%v)\n%s", limit, err, less)
		}
	}
	for _, open := range []string{"deadline:", "output:"} {
		if strings.Contains(text, open) {
			t.Errorf("the log does not tell what the %s was\n%s", open, text)
		}
	}
}

// TestASuggestionIsForEveryCall of a run, and of every tool.
func TestASuggestionIsForEveryCall(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "it is ", r.URL.Path) }))
	defer server.Close()
	get := "GET " + server.URL + "/a HTTP/1.1\r\n\r\n"
	uses := []agenttest.Use{
		{CallID: "c1", Tool: "oracle", Args: fmt.Sprintf(`{"url":%q}`, server.URL)},
		{CallID: "c2", Tool: "messenger", Args: string(input(t, "log hello", get))},
		{CallID: "c3", Tool: "messenger", Args: string(input(t, get, get, get, get, get, get))},
	}
	a := &agent.Agent{
		Provider: agenttest.ScriptedProvider{Turns: []agenttest.Turn{agenttest.Calls(uses...), agenttest.Say("so it is")}},
		Tools:    toolsOf(t, server), Log: newLog(), Config: agent.Config{Model: "m"},
	}
	result, err := a.Run(t.Context(), "ask")
	if err != nil {
		t.Fatal(err)
	}
	events, err := a.Log.Read(t.Context(), result.RunID)
	if err != nil {
		t.Fatal(err)
	}
	text, err := policy.Suggest(events)
	if err != nil {
		t.Fatal(err)
	}
	if refused, err := policy.Test(parsed(t, text), nil, events); err != nil || len(refused) > 0 {
		t.Errorf("%v, %+v\n%s", err, refused, text)
	}
	if limits := parsed(t, text).Limits; limits.Effects != 6 || limits.LogBytes != 5 || limits.InputBytes != uint64(len(uses[2].Args)) {
		t.Errorf("%+v\n%s", limits, text)
	}
	everyLimitCounts(t, string(text), events)

	// A run whose last call has no outcome has done what is recorded of it.
	for n := range events {
		text, err := policy.Suggest(events[:n])
		if err != nil {
			t.Fatal(err)
		}
		if refused, err := policy.Test(parsed(t, text), nil, events[:n]); err != nil || len(refused) > 0 {
			t.Errorf("%d events: %v, %+v\n%s", n, err, refused, text)
		}
	}
	end := slices.IndexFunc(events, func(ev event.Event) bool {
		outcome, err := ev.AsToolCallCompleted()
		return err == nil && outcome.CallID == "c1"
	})
	if text, err := policy.Suggest(events[:end]); err != nil || parsed(t, text).Limits.Effects < 4 {
		t.Errorf("%v\n%s", err, text)
	}
}

// TestTheToolRunsUnderTheSuggestion as it ran without, and not with less of anything.
func TestTheToolRunsUnderTheSuggestion(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "it is ", r.URL.Path) }))
	defer server.Close()
	source, err := registry.Open(t.Context(), "testdata/oracle")
	if err != nil {
		t.Fatal(err)
	}
	engine := newEngine(t)
	run := func(doc json.RawMessage, limits sandbox.Limits) (*agent.Result, []event.Event) {
		limits.Fuel = sandbox.DefaultLimits().Fuel // another run need not be the same instructions
		module, err := guest.Load(t.Context(), guest.Inline(engine), source.Wasm, guest.Options{Limits: limits})
		if err != nil {
			t.Fatal(err)
		}
		tool, _ := module.Tool("messenger")
		_, port, _ := strings.Cut(server.Listener.Addr().String(), ":")
		p := parsePolicy(t, `permissions: {network: {allow: [{host: 127.0.0.1, schemes: [http], ports: [`+port+`], private: true}]}}`)
		return direct(t, tool, policy.NewRun(p, nil, nil), doc)
	}
	suggested := func(events []event.Event) sandbox.Limits {
		text, err := policy.Suggest(events)
		if err != nil {
			t.Fatal(err)
		}
		return sandbox.Limits(policy.Narrow(event.SandboxLimits(sandbox.DefaultLimits()), parsed(t, text)))
	}
	logOf := func(events []event.Event) string {
		outcome, err := events[len(events)-2].AsToolCallCompleted()
		if err != nil {
			t.Fatal(err)
		}
		return outcome.Log
	}
	get := "GET " + server.URL + "/a HTTP/1.1\r\n\r\n"
	doc := input(t, "log gr\u00fc\u00df", get, get)
	_, events := run(doc, sandbox.DefaultLimits())
	limits := suggested(events)
	if r, again := run(doc, limits); r.Error != "" || logOf(again) != logOf(events) {
		t.Errorf("under %+v: %s", limits, r.Error)
	}
	for name, less := range map[string]func(*sandbox.Limits){
		"effects": func(l *sandbox.Limits) { l.Effects-- }, "bytes": func(l *sandbox.Limits) { l.EffectBytes-- }, "input": func(l *sandbox.Limits) { l.InputBytes-- },
	} {
		limits := limits
		less(&limits)
		if r, _ := run(doc, limits); r.ErrorType != event.ErrorLimit {
			t.Errorf("less %s: %q %s", name, r.ErrorType, r.Error)
		}
	}
	limits.LogBytes--
	if _, again := run(doc, limits); logOf(again) == logOf(events) {
		t.Errorf("a byte less keeps all of the log %q", logOf(again))
	}
	_, events = run(input(t, "log \ufffd"), sandbox.DefaultLimits())
	if limits := suggested(events); limits.LogBytes != sandbox.DefaultLimits().LogBytes || limits.Effects != 1 || limits.EffectBytes != 1 {
		t.Errorf("%+v", limits)
	}
}

func parsed(t *testing.T, text []byte) *policy.Policy {
	t.Helper()
	p, err := policy.Parse("suggested.yaml", text)
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	return p
}
