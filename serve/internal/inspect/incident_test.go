package inspect_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/eventlog/logtest"
	"github.com/starling-host/starling/eventlog/store"
	"github.com/starling-host/starling/serve/internal/inspect"
	"github.com/starling-host/starling/serve/tenant"
)

// script appends events to a run, each at a time in milliseconds since its beginning.
type script struct {
	t     testing.TB
	log   *store.MemoryLog
	chain logtest.Chain
	began int64
}

func newScript(t testing.TB, log *store.MemoryLog, id string, began int64) *script {
	return &script{t: t, log: log, chain: logtest.Chain{RunID: id}, began: began}
}

func (s *script) at(ms float64, p event.Payload) {
	s.t.Helper()
	s.chain.Clock = s.began + int64(ms*1e6)
	ev := s.chain.Next(p)
	if ev.Seq == 1 {
		s.log.Adopt(ev)
	} else if err := s.log.Append(s.t.Context(), ev.RunID, ev); err != nil {
		s.t.Fatal(err)
	}
}

func (s *script) call(ms float64, turn, id, tool, args string, attempt uint32) {
	raw, err := canon.FromJSON([]byte(args))
	if err != nil {
		s.t.Fatal(err)
	}
	s.at(ms, event.ToolCallScheduled{CallID: id, TurnID: turn, ToolName: tool, Args: raw, Attempt: attempt})
}

func (s *script) done(ms float64, id, result string, fuel uint64) {
	raw, err := canon.FromJSON([]byte(result))
	if err != nil {
		s.t.Fatal(err)
	}
	s.at(ms, event.ToolCallCompleted{CallID: id, Result: raw, Attempt: 1, Meter: event.Meter{Fuel: fuel, PeakMemory: 4 << 20}})
}

func (s *script) request(ms float64, call, url, status, body string, fuel uint64, took float64) {
	head := "Content-Type: application/json\r\nX-Request-Id: req-4711\r\n\r\n"
	value, err := canon.Marshal(event.Exchange{Response: []byte("HTTP/1.1 " + status + "\r\n" + head + body),
		Decision: event.Verdicts{{Policy: make([]byte, 32), Side: "operator", Rule: 2, Line: 14}}})
	if err != nil {
		s.t.Fatal(err)
	}
	s.at(ms, event.SideEffectRecorded{Name: "GET " + url, CallID: call, Request: []byte("GET " + url + " HTTP/1.1\r\nHost: api.example\r\nAccept: application/json\r\n\r\n"),
		Value: value, Fuel: fuel, DurationUs: int64(took * 1000)})
}

// incident is a run of an agent: parallel calls, a call that fails at its third attempt, a long
// wait, and a large response.
func incident(t testing.TB, log *store.MemoryLog, id string, began int64) {
	const api = "https://api.example"
	s := newScript(t, log, id, began)
	digest := make([]byte, 32)
	sandbox := &event.Sandbox{Module: digest, ABI: "starling", CostTable: 1, Limits: event.SandboxLimits{Fuel: 1e9, MemoryPages: 256}}
	s.at(0, event.RunStarted{SchemaVersion: event.SchemaVersion, Goal: "Deliver parcel 8 to Oslo", ProviderID: "script", ModelID: "script", SystemPrompt: "You dispatch parcels.\nBe brief.",
		ToolSchemas: []event.ToolSchemaRef{{Name: "dice", SchemaHash: digest, Sandbox: sandbox}, {Name: "fetch", SchemaHash: digest, Sandbox: sandbox, Attempts: 3}}})
	s.at(1, event.TurnStarted{TurnID: "t1", InputTokens: 250})
	s.at(33, event.AssistantMessageCompleted{TurnID: "t1", Text: "I look at the address and the routes.", InputTokens: 273, OutputTokens: 121, StopReason: "tool_use", CostUSD: 0.004,
		ToolUses: []event.PlannedToolUse{{CallID: "c1", ToolName: "fetch", Args: canon.Raw("\xa1dpath\x68/address")}}})
	s.call(35, "t1", "c1", "fetch", `{"path":"/address"}`, 1)
	s.call(36, "t1", "c2", "fetch", `{"path":"/routes","limit":3}`, 1)
	s.call(36, "t1", "c3", "fetch", `{"path":"/weather"}`, 1)
	s.call(37, "t1", "c4", "dice", `{"rolls":4,"sides":6}`, 1)
	for i := range 4 {
		raw, _ := canon.Marshal(uint64(i))
		s.at(38+float64(i), event.SideEffectRecorded{Name: event.EffectRandom, CallID: "c4", Value: raw, Fuel: uint64(1000 * (i + 1))})
	}
	s.done(75, "c4", `[1,5,2,6]`, 40_112)
	s.request(220, "c1", api+"/address/8", "200 OK", `{"street":"Karl Johans gate 1","city":"Oslo"}`, 419_171, 180)
	s.request(230, "c3", api+"/weather?city=Oslo", "503 Service Unavailable", `{"error":"upstream said 503","trace":"b7ad6b7169203331"}`, 300_000, 190)
	s.at(232, event.ToolCallFailed{CallID: "c3", Attempt: 1, ErrorType: event.ErrorTool, Error: "/weather: upstream answered 503", WaitMs: 824, Meter: event.Meter{Fuel: 350_000, PeakMemory: 4 << 20}})
	s.done(371, "c1", `{"street":"Karl Johans gate 1"}`, 820_000)
	s.request(655, "c2", api+"/routes?limit=3", "200 OK", `{"routes":["`+strings.Repeat("E6 ", 400_000)+`"]}`, 5_000_000, 600)
	s.done(700, "c2", `{"routes":3}`, 88_000_000)
	s.call(1056, "t1", "c3", "fetch", `{"path":"/weather"}`, 2)
	s.request(1088, "c3", api+"/weather?city=Oslo", "503 Service Unavailable", `{"error":"upstream said 503"}`, 300_000, 30)
	s.at(1090, event.ToolCallFailed{CallID: "c3", Attempt: 2, ErrorType: event.ErrorTool, Error: "/weather: upstream answered 503", WaitMs: 9710, Meter: event.Meter{Fuel: 350_000, PeakMemory: 4 << 20}})
	s.call(10800, "t1", "c3", "fetch", `{"path":"/weather"}`, 3)
	s.request(10832, "c3", api+"/weather?city=Oslo", "503 Service Unavailable", `{"error":"upstream said 503"}`, 300_000, 30)
	s.at(10833, event.ToolCallFailed{CallID: "c3", Attempt: 3, ErrorType: event.ErrorTool, Error: "/weather: upstream answered 503", Final: true, Meter: event.Meter{Fuel: 350_000, PeakMemory: 4 << 20, Log: "GET /weather\nretry later\n"}})
	s.at(10840, event.RunFailed{Error: "tool: /weather: upstream answered 503", ErrorType: event.ErrorTool, DurationMs: 10840})
}

// busy is an agent's run of about n events, with a call of many effects.
func busy(t testing.TB, log *store.MemoryLog, id string, n int) {
	s := newScript(t, log, id, 1_800_000_000_000_000_000)
	s.at(0, event.RunStarted{SchemaVersion: event.SchemaVersion, Goal: "Count every parcel", ProviderID: "script", ModelID: "script", ToolSchemas: []event.ToolSchemaRef{}})
	ms := 1.0
	for turn := 0; n > 0; turn++ {
		name := fmt.Sprint("t", turn)
		s.at(ms, event.TurnStarted{TurnID: name})
		s.at(ms+5, event.AssistantMessageCompleted{TurnID: name, Text: "Next.", InputTokens: 100, OutputTokens: 9})
		for c := range 4 {
			id := fmt.Sprint("c", turn, "-", c)
			s.call(ms+6, name, id, "fetch", `{"path":"/parcel"}`, 1)
			for e := range 24 {
				s.request(ms+7+float64(e), id, fmt.Sprintf("https://api.example/parcel/%d/%d", turn, e), "200 OK", `{"ok":true}`, uint64(e+1)*1000, 0.8)
			}
			s.done(ms+32, id, `{"ok":true}`, 90_000)
			n -= 26
		}
		ms += 40
	}
	s.at(ms, event.RunCompleted{FinalText: "done"})
}

// TestTheViewsOfARun finds the cause of an incident in each view.
func TestTheViewsOfARun(t *testing.T) {
	log := store.Memory()
	incident(t, log, "R", 1_770_000_000_000_000_000)
	view := viewOf(log, "")
	view.Database = "star ling.db"
	b := openView(t, view)
	failure := []string{`<a href="/runs/R?at=22#at">fetch failed at attempt 3 of 3 (tool)</a>`, "/weather: upstream answered 503</pre>",
		"starling-host debug &#39;star ling.db&#39; R --at 24"}
	b.wants("/runs/R", append(failure, "<dd>5 · 3 × 5xx</dd>", "503 GET /weather?city=Oslo</a> <small>api.example 148B</small>", "rand ×4", "wait before the next attempt", "9.71s idle")...)
	b.wants("/runs/R/events?at=14", append(failure, `<span class="since">&#43;230ms</span><span class="since after">&#43;10ms</span><span class="call">#3 fetch</span><span class="kind d3 g-effect">`, `<span class="call">#3 fetch, attempt 2</span>`)...)
	b.wants("/runs/R/requests", "https://api.example/weather?city=Oslo</a></td><td class=\"bad\">503</td><td>#3 fetch, attempt 3</td>", `<td class="number">600ms</td><td class="number">1.1MiB</td>`)
	b.wants("/runs/R/conversation", "You dispatch parcels.\nBe brief.", "tools: dice, fetch", "I look at the address", `<b>model calls</b> <span class="name">fetch</span>`, `<b>error</b> <span class="name">fetch</span>`)
	// One selection in all views.
	b.wants("/runs/R/requests?at=14", `id="at" class="current"`, `href="/runs/R?at=14#at"`, `href="/runs/R/events?at=14#e14"`,
		"GET https://api.example/weather?city=Oslo HTTP/1.1\nHost: api.example", "HTTP/1.1 503 Service Unavailable", "{\n  &#34;error&#34;: &#34;upstream said 503&#34;,",
		"<dt>operator&#39;s policy</dt><dd>allowed by rule 2, line 14</dd>", "<dt>fuel since the effect before</dt><dd>300,000</dd>", "debug &#39;star ling.db&#39; R --at 14")
	b.wants("/runs/R?at=22", "<h2>#3 fetch, attempt 3</h2>", "<h3>Arguments</h3>", "GET /weather\nretry later")
	// A megabyte shows its head and its beginning.
	if body := b.wants("/runs/R?at=17", "HTTP/1.1 200 OK", "… the first 64KiB of 1.1MiB"); len(body) > 100_000 {
		t.Errorf("the page has %d bytes", len(body))
	}
	b.wants("/runs/R/events/17", "HTTP/1.1 200 OK", "too long to show")
	view.Database = ""
	if body := openView(t, view).wants("/runs/R?at=22"); strings.Contains(body, "debug ") {
		t.Error("a command for a reader without the database")
	}
}

// TestPartsOfAWaterfall selects kinds of rows and windows of time.
func TestPartsOfAWaterfall(t *testing.T) {
	log := store.Memory()
	incident(t, log, "R", 1e18)
	b := openView(t, viewOf(log, ""))
	for query, c := range map[string]struct{ has, lacks []string }{
		"":                                 {[]string{`href="/runs/R?only=errors">errors 6</a>`, `class="strip"`, `aria-label="0s to `, `href="/runs/R?from=`, `data-key="]">Zoom in`, `href="/runs/R?at=6#at" data-key="f"`}, []string{`class="window"`, "Zoom out"}},
		"?only=errors&at=14":               {[]string{`href="/runs/R?at=14#at" aria-current="true">errors 6</a>`, "fetch, attempt 2", "turn 1", `id="at" class="current"`, `href="/runs/R?at=19&amp;only=errors#at" data-key="f"`}, []string{"dice", "wait before"}},
		"?only=waits":                      {[]string{"wait before", "turn 1"}, []string{"fetch", "dice"}},
		"?only=slow":                       {[]string{"slow 5", "/routes"}, []string{"dice"}},
		"?only=path":                       {[]string{"script/script", "fetch, attempt 2", "fetch, attempt 3", "wait before", "503 GET"}, []string{"dice", "/routes", "/address"}},
		"?from=0&to=100000000&only=texty":  {[]string{"dice", `class="window"`, ">100ms</text>", `data-key="[">Zoom out`}, []string{"attempt 2", "wait before", "texty"}},
		"?from=2000000000&to=3000000000":   {[]string{"wait before", `href="/runs/R?from=1500000000&amp;to=3500000000" data-key="["`}, []string{"dice", "attempt 3"}},
		"?from=-5&to=99999999999999999999": {[]string{"dice", "attempt 3"}, []string{`class="window"`}},
		"?from=9223372036854775807&to=1":   {[]string{"dice"}, []string{`class="window"`}},
		"?from=10839999999&to=10840000000&only=waits": {[]string{"Nothing happened in this part."}, nil},
		"/requests?at=14": {[]string{`href="/runs/R/requests?at=20#at" data-key="f"`}, nil},
		"/events?at=14":   {[]string{`href="/runs/R/events?at=15#e15" data-key="f"`, `data-key="o"`}, nil},
	} {
		body := b.wants("/runs/R"+query, c.has...)
		_, rows, _ := strings.Cut(body, "<tbody>")
		for _, word := range c.lacks {
			if strings.Contains(rows, word) || (word == "texty" || strings.HasPrefix(word, "class=")) && strings.Contains(body, word) {
				t.Errorf("%s has %s", query, word)
			}
		}
	}
	// Each event has the place that links to it lead to.
	busy(t, log, "BUSY", 150)
	for run, events := range map[string]int{"R": 25, "BUSY": 60} {
		for seq := 1; seq <= events; seq++ {
			for _, view := range []string{"", "/requests", "/conversation"} {
				path := fmt.Sprintf("/runs/%s%s?at=%d", run, view, seq)
				if _, body := b.get(path); strings.Count(body, `id="at"`) != 1 {
					t.Errorf("%s has %d places", path, strings.Count(body, `id="at"`))
				}
			}
		}
	}
}

// TestAnOpenRunIsNotTakenForALivingOne shows a run whose process died.
func TestAnOpenRunIsNotTakenForALivingOne(t *testing.T) {
	log := store.Memory()
	s := newScript(t, log, "DEAD", time.Now().Add(-3*time.Minute).UnixNano())
	s.at(0, event.RunStarted{SchemaVersion: event.SchemaVersion, Goal: "g", ToolSchemas: []event.ToolSchemaRef{}})
	s.at(4000, event.UserMessageAppended{Content: "more"})
	newScript(t, log, "ALIVE", time.Now().UnixNano()).at(0, event.RunStarted{SchemaVersion: event.SchemaVersion, Goal: "g", ToolSchemas: []event.ToolSchemaRef{}})
	b := openView(t, viewOf(log, ""))
	b.wants("/runs/DEAD", "Silent for 2m5", "or its process died", `<span class="state warn">open`)
	if body := b.wants("/runs/ALIVE", `<span class="state open">open`); strings.Contains(body, "Silent") {
		t.Error("a run that has just begun is silent")
	}
}

// TestDeepJSONIsNotIndented, which would take the square of its size.
func TestDeepJSONIsNotIndented(t *testing.T) {
	log := store.Memory()
	s := newScript(t, log, "R", 1e18)
	s.at(0, event.RunStarted{SchemaVersion: event.SchemaVersion, ToolSchemas: []event.ToolSchemaRef{}})
	s.call(1, "", "c", "fetch", `{}`, 1)
	s.request(2, "c", "https://x/", "200 OK", strings.Repeat("[", 9000)+strings.Repeat("]", 9000), 1, 1)
	if body := openView(t, viewOf(log, "")).wants("/runs/R?at=3", "[[[[[["); len(body) > 60_000 {
		t.Errorf("the page has %d bytes", len(body))
	}
}

// TestPagesAreCompressed if the client accepts it, except those on which several parties' texts
// meet.
func TestPagesAreCompressed(t *testing.T) {
	log := store.Memory()
	incident(t, log, "R", 1e18)
	view := viewOf(log, "")
	view.Operator = operatorOf(busyQueue(t))
	view.Usage = func(context.Context, tenant.UsageFilter) (tenant.UsageList, error) { return tenant.UsageList{}, nil }
	s, err := inspect.New(inspect.Config{Scope: inspect.Only(view, "")})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		path, accepts string
		want          bool
	}{
		{"/runs/R", "gzip, deflate, br", true}, {"/runs/R", "br;q=1.0, GZIP; q=0.5", true}, {"/runs/R", "gzip;q=0", false}, {"/runs/R", "gzip;q=0.000", false},
		{"/runs/R", "identity", false}, {"/runs/R", "", false}, {"/assets/style.css", "gzip", true}, {"/", "gzip", true}, {"/diff?a=R&b=R", "gzip", true},
		{"/queue", "gzip", false}, {"/usage", "gzip", false}, {"/sign-in?to=/" + strings.Repeat("x", 2000), "gzip", false}, {"/none", "gzip", false},
	} {
		r := httptest.NewRequest(http.MethodGet, c.path, nil)
		r.Header.Set("Accept-Encoding", c.accepts)
		w := httptest.NewRecorder()
		s.ServeHTTP(w, r)
		if got := w.Header().Get("Content-Encoding") == "gzip"; got != c.want || w.Header().Get("Vary") != "Accept-Encoding" {
			t.Errorf("%s for %q: compressed %t, Vary %q", c.path, c.accepts, got, w.Header().Get("Vary"))
		}
		if body := w.Body.Bytes(); c.want {
			if plain, err := gzip.NewReader(bytes.NewReader(body)); err != nil {
				t.Errorf("%s: %v", c.path, err)
			} else if _, err := io.Copy(io.Discard, plain); err != nil {
				t.Errorf("%s: %v", c.path, err)
			}
		}
	}
}

// TestALongRunIsFluid shows ten thousand events in a short page. The time is for people to read:
// a machine that does other work takes longer.
func TestALongRunIsFluid(t *testing.T) {
	log := store.Memory()
	busy(t, log, "R", 10_000)
	s, err := inspect.New(inspect.Config{Scope: inspect.Only(viewOf(log, ""), "")})
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"/runs/R", "/runs/R?at=500", "/runs/R/events?at=9000", "/runs/R/conversation", "/runs/R/requests"} {
		r := httptest.NewRequest(http.MethodGet, path, nil)
		r.Header.Set("Accept-Encoding", "gzip")
		w := httptest.NewRecorder()
		began := time.Now()
		s.ServeHTTP(w, r)
		t.Logf("%s: %d bytes in %v", path, w.Body.Len(), time.Since(began))
		if w.Code != http.StatusOK || w.Body.Len() > 60<<10 {
			t.Errorf("%s: %d, %d bytes", path, w.Code, w.Body.Len())
		}
	}
}
