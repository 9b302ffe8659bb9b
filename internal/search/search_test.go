package search_test

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/eventlog/logtest"
	"github.com/starling-host/starling/eventlog/store"
	"github.com/starling-host/starling/internal/pgtest"
	"github.com/starling-host/starling/internal/search"
)

// began is when the first run of a test began; each further one began a minute later.
var began = time.Date(2026, 3, 2, 10, 0, 0, 0, time.UTC)

// record appends a run with these payloads.
func record(t testing.TB, log eventlog.EventLog, id string, minute int, payloads ...event.Payload) {
	t.Helper()
	chain := logtest.Chain{RunID: id, Clock: began.Add(time.Duration(minute) * time.Minute).UnixNano()}
	for _, p := range payloads {
		if err := log.Append(t.Context(), id, chain.Next(p)); err != nil {
			t.Fatal(err)
		}
	}
	if err := log.Sync(t.Context(), id); err != nil {
		t.Fatal(err)
	}
}

func marshal(v any) canon.Raw {
	raw, err := canon.Marshal(v)
	if err != nil {
		panic(err)
	}
	return raw
}

// direct is a run of one call of a tool, with a request.
func direct(tool, city, host string, status int, end event.Payload) []event.Payload {
	all := []event.Payload{
		event.RunStarted{SchemaVersion: event.SchemaVersion, Goal: tool, ToolSchemas: []event.ToolSchemaRef{}},
		event.ToolCallScheduled{CallID: "c", TurnID: "t", ToolName: tool, Args: marshal(map[string]string{"city": city}), Attempt: 1},
		event.SideEffectRecorded{Name: "weather", CallID: "c", Request: []byte("GET http://" + host + "/w?q=1 HTTP/1.1\r\n\r\n"),
			Value: marshal(event.Exchange{Response: fmt.Appendf(nil, "HTTP/1.1 %d x\r\n\r\nnimbus", status)})},
	}
	if failed, ok := end.(event.RunFailed); ok {
		return append(all, event.ToolCallFailed{CallID: "c", Attempt: 1, ErrorType: failed.ErrorType, Error: failed.Error, Final: true, Meter: event.Meter{Fuel: 5e9}}, end)
	}
	return append(all, event.ToolCallCompleted{CallID: "c", Attempt: 1, Result: marshal("mild"), Meter: event.Meter{Fuel: 1000}}, end)
}

// fill records six runs.
func fill(t testing.TB, log eventlog.EventLog) {
	record(t, log, "A1", 0, direct("fetch", "Oslo", "api.x", 200, event.RunCompleted{FinalText: "mild"})...)
	record(t, log, "A2", 1, direct("fetch", "Bergen", "api.x:8080", 503, event.RunFailed{ErrorType: "tool", Error: "tool: 10.0.0.1:4711 answered 503\nmore"})...)
	record(t, log, "A3", 2, direct("fetch", "Bergen", "api.x:8080", 503, event.RunFailed{ErrorType: "tool", Error: "tool: 10.0.0.2:4712 answered 503"})...)
	record(t, log, "B1", 3, direct("fetch", "Rome", "www.y", 404, event.RunFailed{ErrorType: "tool", Error: "tool: 10.0.0.1:4711 answered 404"})...)
	record(t, log, "B2", 4, direct("sum", "Rome", "www.y", 200, event.RunFailed{ErrorType: "timeout", Error: "\x1b[2Jno answer \"in\" 5s"})...)
	record(t, log, "C1", 5, direct("sum", "Rome", "www.y", 200, event.RunCompleted{})[:2]...)
}

func find(t testing.TB, log search.Log, text string) search.Found {
	t.Helper()
	q, err := search.Parse(text, began.Add(6*time.Minute))
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	found, err := search.Find(t.Context(), log, q, search.Options{})
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return found
}

func ids(found search.Found) string {
	var all []string
	for _, r := range found.Runs {
		all = append(all, r.RunID)
	}
	slices.Sort(all)
	return strings.Join(all, " ")
}

// TestFind asks every backend the same.
func TestFind(t *testing.T) {
	file, err := store.OpenFile(t.Context(), filepath.Join(t.TempDir(), "s.db"), store.FileOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	logs := map[string]eventlog.EventLog{"memory": store.Memory(), "SQLite": file}
	if !testing.Short() {
		server, err := store.OpenServer(t.Context(), pgtest.Database(t), store.ServerOptions{AutoMigrate: true})
		if err != nil {
			t.Fatal(err)
		}
		defer server.Close()
		logs["PostgreSQL"] = server
	}
	for name, log := range logs {
		fill(t, log)
		for text, want := range map[string]string{
			"": "A1 A2 A3 B1 B2 C1", "state:failed": "A2 A3 B1 B2", "-state:failed": "A1 C1", "state:open": "C1",
			"tool:fetch": "A1 A2 A3 B1", "tool:f*h": "A1 A2 A3 B1", "tool:fet": "", "-tool:fetch state:failed": "B2", "tool:FETCH": "A1 A2 A3 B1",
			"host:api.x*": "A1 A2 A3", "host:api.x": "A1 A2 A3", "host:api.x:8080": "A2 A3", "host:api.x:80": "", "host:api.x:*": "A2 A3", "host:pi.x": "", "host:*.y": "B1 B2", "status:5xx": "A2 A3", "status:404": "B1", "status:2xx": "A1 B2",
			"error:timeout": "B2", "error:503": "A2 A3", "reason:answered": "A2 A3 B1", "reason:more": "", "error:more": "A2",
			"fuel:>1G": "A2 A3 B1 B2", "fuel:<=1k": "A1 C1", "fuel:1k": "A1", "calls:1": "A1 A2 A3 B1 B2 C1", "calls:>1": "", "cost:>0.5": "",
			"since:4m": "A3 B1 B2 C1", "since:2026-03-02T10:03": "B1 B2 C1", "since:10:03": "B1 B2 C1", "until:10:01:30": "A1 A2", "since:10:07": "A1 A2 A3 B1 B2 C1", "until:4m": "A1 A2", "since:2026-03-02 until:2026-03-03": "A1 A2 A3 B1 B2 C1",
			"duration:>1h": "", "duration:<1h": "A1 A2 A3 B1 B2 C1",
			"rome": "B1 B2 C1", "a2": "A2", "text:nimbus -text:oslo": "A2 A3 B1 B2", `text:"answered 404"`: "B1", `"\"in\""`: "B2",
			"Tool:fetch": "A1 A2 A3 B1", "-STATE:failed": "A1 C1", `"tool:fetch"`: "", "http://api.x/w": "A1", "10.0.0.1:4711": "A2 B1", "timeout:": "",
		} {
			if got := ids(find(t, log, text)); got != want {
				t.Errorf("%s: %s finds %q, want %q", name, text, got, want)
			}
		}
		found := find(t, log, "")
		if found.Total != 6 || len(found.Starts) != 6 || found.More || found.Runs[len(found.Runs)-1].Arguments != `{"city":"Oslo"}` {
			t.Errorf("%s: it finds %+v", name, found)
		}
		var counts []string
		for _, r := range found.Reasons {
			again := find(t, log, r.Query)
			counts = append(counts, fmt.Sprintf("%d %s %s %v", r.Runs, r.Tool, r.Text, r.Last.Sub(r.First)))
			if again.Total != r.Runs {
				t.Errorf("%s: %s finds %d of %d", name, r.Query, again.Total, r.Runs)
			}
		}
		if got := strings.Join(counts, "; "); got != "2 fetch 10.0.0.2:4712 answered 503 1m0s; 1 sum timeout: \x1b[2Jno answer \"in\" 5s 0s; 1 fetch 10.0.0.1:4711 answered 404 0s" {
			t.Errorf("%s: the reasons are %q", name, got)
		}
	}
}

// TestEncryptedRunsAreNotSearched looks for the content of a run without its key, and with it.
func TestEncryptedRunsAreNotSearched(t *testing.T) {
	log := store.Memory()
	key, err := store.NewDataKey(make([]byte, store.DataKeySize))
	if err != nil {
		t.Fatal(err)
	}
	own, err := store.Encrypted(log, key, "acme")
	if err != nil {
		t.Fatal(err)
	}
	record(t, own, "acme/1", 0, direct("fetch", "Oslo", "api.x", 503, event.RunFailed{ErrorType: "tool", Error: "no"})...)
	for text, want := range map[string]int{"state:failed": 1, "acme/1": 1, "tool:fetch": 0, "status:5xx": 0, "text:oslo": 0, "reason:no": 0, "fuel:>0": 0, "a": 1, "text:a": 0} {
		if got := find(t, log, text).Total; got != want {
			t.Errorf("without the key %s finds %d, want %d", text, got, want)
		}
		if strings.HasPrefix(text, "text:a") {
			continue
		}
		if got := find(t, own, text).Total; got != 1 {
			t.Errorf("with the key %s finds %d", text, got)
		}
	}
	if reasons := find(t, log, "").Reasons; len(reasons) != 1 || reasons[0].Text != "(encrypted)" || find(t, log, reasons[0].Query).Total != 1 {
		t.Errorf("without the key the reasons are %+v", reasons)
	}
}

func TestParseErrors(t *testing.T) {
	for text, want := range map[string]struct {
		at        int
		why, hint string
	}{
		"state:faild":                          {1, `"faild" is not the state of a run`, "state:failed"},
		"tool:x  status:failed":                {9, `"failed" is not the status of a response`, "status:5xx"},
		"ä tool:":                              {3, "tool: has no value", "tool:fetch"},
		`ab "c d`:                              {4, "a quotation mark is not closed", `"no route"`},
		"x fuel:>lots":                         {3, `"lots" is not an amount for fuel`, "fuel:>1G"},
		"x tol:fetch":                          {3, `there is no field "tol"`, `did you mean tool:fetch? write "tol:fetch" to find the text`},
		"-Staus:5xx":                           {1, `there is no field "staus"`, "did you mean status:5xx?"},
		"statu:5xx":                            {1, `there is no field "statu"`, "did you mean status:5xx?"},
		"since:yesterday":                      {1, `"yesterday" is not a time`, "write since:1h (it started later; also 04:20, 2026-03-02T04:20 (UTC))"},
		"since:-1h":                            {1, `"-1h" is not a time`, "write since:1h"},
		"localhost:8080":                       {1, `there is no field "localhost"`, `write "localhost:8080" to find the text`},
		"x -":                                  {3, "there is no word", "no route"},
		"duration:>5":                          {1, `"5" is not an amount for duration`, "duration:>10s"},
		strings.Repeat("x", search.MaxBytes+1): {search.MaxBytes, "longer than", "leave out"},
		strings.Repeat("x\xff", 400):           {search.MaxBytes, "longer than", "leave out"},
	} {
		_, err := search.Parse(text, began)
		var e *search.Error
		if !errors.As(err, &e) || e.At != want.at || !strings.Contains(e.Why, want.why) || !strings.Contains(e.Hint, want.hint) {
			t.Errorf("%.40s: %v", text, err)
		}
	}
}

func TestFieldsHaveValidExamples(t *testing.T) {
	for _, f := range search.Fields {
		q, err := search.Parse(f.Example, began)
		if err != nil || q.Value(f.Name) == "" {
			t.Errorf("%s: %v", f.Example, err)
		}
	}
}

// FuzzParse checks that what is written of a query is that query.
func FuzzParse(f *testing.F) {
	for _, s := range []string{`-tool:"a b" x`, `state:failed since:1h`, `"\"`, `text:"a\\"`, "fuel:>=1k"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		q, err := search.Parse(text, began)
		if err != nil {
			return
		}
		again, err := search.Parse(q.String(), began)
		if err != nil || again.String() != q.String() {
			t.Errorf("%q is %q, and that is %q, %v", text, q, again, err)
		}
		word := search.Word("tool", text)
		if q, err := search.Parse(word, began); err == nil && q.Value("tool") != strings.ToLower(strings.ToValidUTF8(text, "\ufffd")) {
			t.Errorf("%q is written as %s, which is %q", text, word, q.Value("tool"))
		}
	})
}

// BenchmarkFind searches 10,000 runs of five events.
func BenchmarkFind(b *testing.B) {
	file, err := store.OpenFile(b.Context(), filepath.Join(b.TempDir(), "s.db"), store.FileOptions{})
	if err != nil {
		b.Fatal(err)
	}
	defer file.Close()
	server, err := store.OpenServer(b.Context(), pgtest.Database(b), store.ServerOptions{AutoMigrate: true})
	if err != nil {
		b.Fatal(err)
	}
	defer server.Close()
	for name, log := range map[string]eventlog.EventLog{"SQLite": file, "PostgreSQL": server} {
		for i := range 10_000 {
			var end event.Payload = event.RunCompleted{}
			if i%8 == 0 {
				end = event.RunFailed{ErrorType: "tool", Error: fmt.Sprint("tool: port ", i)}
			}
			id := fmt.Sprintf("R%06d", i)
			chain := logtest.Chain{RunID: id, Clock: began.Add(time.Duration(i) * time.Second).UnixNano()}
			for _, p := range direct("fetch", "Oslo", "api.x", 200, end) {
				if err := log.Append(b.Context(), id, chain.Next(p)); err != nil {
					b.Fatal(err)
				}
			}
		}
		for _, text := range []string{"", "state:failed", "tool:fetch", "text:nothing"} {
			b.Run(name+" "+text, func(b *testing.B) {
				for b.Loop() {
					find(b, log, text)
				}
			})
		}
	}
}
