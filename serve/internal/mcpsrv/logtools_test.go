package mcpsrv_test

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/eventlog/logtest"
	"github.com/starling-host/starling/eventlog/store"
	"github.com/starling-host/starling/serve/internal/eventview"
	"github.com/starling-host/starling/serve/internal/mcpsrv"
)

// overLog returns a session that looks into a log.
func overLog(t *testing.T, v eventview.View) *mcp.ClientSession {
	t.Helper()
	return overHTTP(t, mcpsrv.Config{Scope: fixed(mcpsrv.View{Log: &v})})
}

// add appends an event to a run.
func add(t *testing.T, log *store.MemoryLog, id string, kind event.Kind, payload any) {
	t.Helper()
	raw, err := canon.Marshal(payload)
	if err != nil {
		t.Fatal(err)
	}
	ev := event.Event{RunID: id, Seq: 1, Timestamp: 1e18, Kind: kind, Payload: raw}
	if run, err := log.Run(t.Context(), id); err == nil {
		ev.Seq, ev.PrevHash = run.LastSeq+1, run.Head[:]
	}
	if ev.Seq == 1 {
		log.Adopt(ev) // the log may be another program's, and the id any text
	} else if err := log.Append(t.Context(), id, ev); err != nil {
		t.Fatal(err)
	}
}

// TestMCPLogToolsOnlyRead lists the tools over a log, which is a contract.
func TestMCPLogToolsOnlyRead(t *testing.T) {
	tools, err := overLog(t, eventview.View{Log: store.Memory()}).ListTools(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, one := range tools.Tools {
		names = append(names, one.Name)
		if a := one.Annotations; a == nil || !a.ReadOnlyHint || a.OpenWorldHint == nil || *a.OpenWorldHint {
			t.Errorf("%s is not marked as reading: %+v", one.Name, a)
		}
		if len(one.Description) > 1024 {
			t.Errorf("%s has a description of %d bytes", one.Name, len(one.Description))
		}
	}
	slices.Sort(names)
	if got := strings.Join(names, " "); got != "diff_runs get_event get_run list_runs search_runs summarize_run validate_run" {
		t.Errorf("got %s", got)
	}
}

// TestArgumentsOfTheStarlingRuntime: calls that were written for that runtime's server find its
// arguments here, with the same defaults and bounds.
func TestArgumentsOfTheStarlingRuntime(t *testing.T) {
	type argument struct{ Default, Maximum any }
	number := func(standard, most float64) argument { return argument{standard, most} }
	want := map[string]map[string]argument{
		"list_runs":     {"status": {}, "query": {}, "since": {}, "with_tool_calls": {}, "limit": number(50, 200), "offset": {Default: 0.0}},
		"get_run":       {"run_id": {}},
		"get_event":     {"run_id": {}, "seq": {}},
		"summarize_run": {"run_id": {}},
		"validate_run":  {"run_id": {}},
		"diff_runs":     {"a": {}, "b": {}},
		"search_runs":   {"query": {}, "kind": {}, "limit": number(50, 500), "run_limit": number(200, 1000), "max_examined_events": number(10_000, 50_000)},
	}
	tools, err := overLog(t, eventview.View{Log: store.Memory()}).ListTools(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, tool := range tools.Tools {
		text, err := json.Marshal(tool.InputSchema)
		if err != nil {
			t.Fatal(err)
		}
		var schema struct{ Properties map[string]*argument }
		if err := json.Unmarshal(text, &schema); err != nil {
			t.Fatal(err)
		}
		for name, w := range want[tool.Name] {
			if got := schema.Properties[name]; got == nil || *got != w {
				t.Errorf("%s: argument %s: got %+v, want %+v", tool.Name, name, got, w)
			}
		}
		delete(want, tool.Name)
	}
	if len(want) > 0 {
		t.Errorf("there are no tools %v", want)
	}
}

// TestArgumentsHaveBounds sends arguments outside their bounds.
func TestArgumentsHaveBounds(t *testing.T) {
	s := overLog(t, eventview.View{Log: newLog(t)})
	for _, c := range []struct{ tool, arguments, want string }{
		{"list_runs", `{"limit":201}`, "200"},
		{"list_runs", `{"limit":0}`, "1"},
		{"list_runs", `{"offset":-1}`, "0"},
		{"list_runs", `{"query":"state:done"}`, "query: \"done\" is not the state of a run: write state:failed"},
		{"list_runs", `{"status":"done"}`, "status"},
		{"list_runs", `{"since":"yesterday"}`, "since: it is not a time such as 2026-11-21T10:00:00Z"},
		{"list_runs", `{"with_tool_calls":1}`, "with_tool_calls"},
		{"list_runs", `{"namespace":"other"}`, "namespace"},
		{"get_run", `{}`, "run_id"},
		{"get_run", `{"run_id":"acme/1","limit":1001}`, "1000"},
		{"get_run", `{"run_id":"none"}`, "run not found"},
		{"get_event", `{"run_id":"acme/1","seq":0}`, "1"},
		{"get_event", `{"run_id":"acme/1","seq":99}`, "no event of that number"},
		{"get_event", `{"run_id":"acme/1","seq":1e3}`, "no event of that number"},
		{"get_event", `{"run_id":"acme/1","seq":99999999999999999999}`, "99999999999999999999"},
		{"get_event", `{"run_id":"acme/1","seq":18446744073709551615}`, "no event of that number"},
		{"get_run", `{"run_id":"acme/1","run_id":"acme/2"}`, "appears twice"},
		{"diff_runs", `{"a":"acme/1"}`, "b"},
		{"diff_runs", `{"a":"acme/1","b":"none"}`, "run not found"},
		{"search_runs", `{}`, "query or kind is required"},
		{"search_runs", `{"kind":"Nothing"}`, "unknown kind"},
		{"search_runs", `{"query":"x","limit":501}`, "500"},
		{"search_runs", `{"query":"x","run_limit":1001}`, "1000"},
		{"search_runs", `{"query":"x","max_examined_events":50001}`, "50000"},
		{"validate_run", `{"run_id":"none"}`, "run not found"},
		{"summarize_run", `{"run_id":""}`, "run_id"},
	} {
		failure := call(t, s, c.tool, c.arguments, nil)
		if !strings.Contains(failure, c.want) || failure == "" {
			t.Errorf("%s %s: got %q, want %q", c.tool, c.arguments, failure, c.want)
		}
	}
}

type runAndEvents struct {
	Run struct {
		Events int
		Tool   string
	}
	Events []struct {
		Seq      int
		Kind     string
		Facts    string
		Hash     string
		PrevHash string `json:"prev_hash"`
		Payload  json.RawMessage
		TooLong  bool `json:"payload_too_long"`
	}
	Next        int
	Truncated   bool
	TotalEvents int `json:"total_events"`
}

func TestLookingAtARun(t *testing.T) {
	s := overLog(t, eventview.View{Log: newLog(t)})
	var run runAndEvents
	if failure := call(t, s, "get_run", `{"run_id":"acme/1","limit":3}`, &run); failure != "" {
		t.Fatal(failure)
	}
	if !run.Truncated || run.TotalEvents != 4 || len(run.Events[0].Hash) != 64 || run.Events[0].PrevHash != "" || run.Events[1].PrevHash != run.Events[0].Hash {
		t.Errorf("the events have no hashes, or it is not said that there are more: %+v", run)
	}
	if run.Run.Events != 4 || run.Run.Tool != "weather" || len(run.Events) != 3 || run.Next != 3 || run.Events[1].Facts != `weather {"city":"Oslo"}` {
		t.Errorf("got %+v", run)
	}
	run = runAndEvents{}
	call(t, s, "get_run", `{"run_id":"acme/1","after":3}`, &run)
	if len(run.Events) != 1 || run.Events[0].Kind != "RunCompleted" || run.Next != 0 || run.Truncated {
		t.Errorf("the rest: %+v", run)
	}
	var ev struct {
		Hash     string
		PrevHash string `json:"prev_hash"`
		Payload  struct{ Tool string }
	}
	call(t, s, "get_event", `{"run_id":"acme/1","seq":2}`, &ev)
	if len(ev.Hash) != 64 || len(ev.PrevHash) != 64 || ev.Payload.Tool != "weather" {
		t.Errorf("got %+v", ev)
	}
	var sum struct {
		Run struct {
			Error struct{ Type, Call string }
		}
		Calls []struct{ Call, State, Error string }
	}
	call(t, s, "summarize_run", `{"run_id":"acme/2"}`, &sum)
	if sum.Run.Error.Type != "tool" || sum.Run.Error.Call != "#1 weather" || len(sum.Calls) != 1 || sum.Calls[0].State != "failed" {
		t.Errorf("got %+v", sum)
	}
}

// TestAnAssistantSeesWhoseCallIsWhose has two calls at once, of which one fails twice, waits in
// between, and calls another tool.
func TestAnAssistantSeesWhoseCallIsWhose(t *testing.T) {
	log := store.Memory()
	chain := logtest.Chain{RunID: "r"}
	at := func(ms int64, p event.Payload) {
		chain.Clock = 1e18 + ms*1e6
		if ev := chain.Next(p); ev.Seq == 1 {
			log.Adopt(ev)
		} else if err := log.Append(t.Context(), "r", ev); err != nil {
			t.Fatal(err)
		}
	}
	scheduled := func(id, tool, parent string, attempt uint32) event.ToolCallScheduled {
		return event.ToolCallScheduled{CallID: id, ToolName: tool, Args: canon.Raw("\xa0"), Attempt: attempt, ParentID: parent}
	}
	value, _ := canon.Marshal(event.Exchange{Response: []byte("HTTP/1.1 503 No\r\n\r\n")})
	at(0, event.RunStarted{SchemaVersion: 1, Goal: "g", ToolSchemas: []event.ToolSchemaRef{}})
	at(1, scheduled("x", "fetch", "", 1))
	at(2, scheduled("y", "fetch", "", 1))
	at(9, event.SideEffectRecorded{Name: "GET http://h/", CallID: "x", Request: []byte("GET http://h/ HTTP/1.1\r\n\r\n"), Value: value, DurationUs: 4000})
	at(10, event.ToolCallFailed{CallID: "x", Attempt: 1, ErrorType: "tool", Error: "busy", WaitMs: 50})
	at(20, scheduled("z", "dice", "y", 1))
	at(22, event.ToolCallCompleted{CallID: "z", Attempt: 1, Result: canon.Raw("\xf6")})
	at(30, event.ToolCallCompleted{CallID: "y", Attempt: 1, Result: canon.Raw("\xf6")})
	at(60, scheduled("x", "fetch", "", 2))
	at(70, event.ToolCallFailed{CallID: "x", Attempt: 2, ErrorType: "tool", Error: "busy", Final: true})
	at(71, event.RunFailed{ErrorType: "tool", Error: "tool: busy"})
	s := overLog(t, eventview.View{Log: log})
	var sum json.RawMessage
	if failure := call(t, s, "summarize_run", `{"run_id":"r"}`, &sum); failure != "" {
		t.Fatal(failure)
	}
	for _, want := range []string{
		`"error":{"type":"tool","message":"tool: busy","reason":"fetch: busy","call":"#1 fetch, attempt 2","seq":10}`, `"waited_ms":50`, `"http_5xx":1`,
		`{"call":"#1 fetch","seq":2,"state":"failed","error":"tool: busy","at_ms":1,"took_ms":9,"effects":1,"http_requests":["503 GET http://h/, 4ms"],"wait_ms":50}`,
		`{"call":"#2 fetch","seq":3,"state":"ok","at_ms":2,"took_ms":28}`, `{"call":"#3 dice","seq":6,"made_by":"#2 fetch","state":"ok","at_ms":20,"took_ms":2}`,
		`{"call":"#1 fetch, attempt 2","seq":9,"state":"failed","error":"tool: busy","at_ms":60,"took_ms":10}`,
	} {
		if !strings.Contains(string(sum), want) {
			t.Errorf("no %s in %s", want, sum)
		}
	}
	var run struct {
		Run struct {
			Error struct{ Seq int }
		}
		Events []struct {
			Seq        int
			Call       string
			AtMs       float64 `json:"at_ms"`
			TookMs     float64 `json:"took_ms"`
			HTTPStatus int     `json:"http_status"`
		}
	}
	call(t, s, "get_run", `{"run_id":"r","after":3,"limit":4}`, &run)
	if got, want := fmt.Sprint(run), "{{{10}} [{4 #1 fetch 9 4 503} {5 #1 fetch 10 9 0} {6 #3 dice 20 0 0} {7 #3 dice 22 2 0}]}"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// TestTheFinalTextIsWhole has an answer longer than a line, in a completed run and in
// one that did not complete.
func TestTheFinalTextIsWhole(t *testing.T) {
	answer := "first line\n" + strings.Repeat("more ", 1000)
	log := store.Memory()
	for _, id := range []string{"completed", "failed"} {
		add(t, log, id, event.KindRunStarted, event.RunStarted{SchemaVersion: 1})
		add(t, log, id, event.KindTurnStarted, event.TurnStarted{TurnID: "t"})
		add(t, log, id, event.KindAssistantMessageCompleted, event.AssistantMessageCompleted{TurnID: "t", Text: answer})
	}
	add(t, log, "completed", event.KindRunCompleted, event.RunCompleted{FinalText: answer + "end"})
	add(t, log, "failed", event.KindRunFailed, event.RunFailed{ErrorType: "max_turns"})
	s := overLog(t, eventview.View{Log: log})
	for id, want := range map[string]string{"completed": answer + "end", "failed": answer} {
		var sum struct {
			Run struct {
				Final string `json:"final_text"`
			}
		}
		if call(t, s, "summarize_run", `{"run_id":"`+id+`"}`, &sum); sum.Run.Final != want {
			t.Errorf("%s: %d characters of %d", id, len(sum.Run.Final), len(want))
		}
	}
	for query, want := range map[string]int{"FAIL": 1, "state:completed": 1, "-state:completed": 1, "LINE": 2, "first more": 2, "none": 0, "reason:max_turns": 1} {
		var list struct {
			Total   int
			Runs    []struct{ Error struct{ Reason string } }
			Reasons []struct{ Query string }
		}
		if call(t, s, "list_runs", `{"query":"`+query+`"}`, &list); list.Total != want || len(list.Runs) != want {
			t.Errorf("the query %q has %d runs, want %d", query, list.Total, want)
		}
		if query == "FAIL" && (list.Runs[0].Error.Reason != "max_turns" || len(list.Reasons) != 1 || list.Reasons[0].Query != `FAIL state:failed reason:=max_turns`) {
			t.Errorf("got %+v", list)
		}
	}
	for arguments, want := range map[string]int{ // as the Starling runtime has them
		`{"status":"completed"}`: 1, `{"status":"open"}`: 0, `{"status":"failed","query":"FAIL"}`: 1, `{"with_tool_calls":true}`: 0, `{"with_tool_calls":false}`: 2,
		`{"since":"1970-01-01T00:00:00Z"}`: 2, `{"since":"2970-01-01T00:00:00Z"}`: 0,
	} {
		var list struct{ Total int }
		if failure := call(t, s, "list_runs", arguments, &list); failure != "" || list.Total != want {
			t.Errorf("list_runs %s: %d runs, want %d: %s", arguments, list.Total, want, failure)
		}
	}
}

func TestComparingAndValidating(t *testing.T) {
	log := newLog(t)
	add(t, log, "bad", event.KindRunStarted, event.RunStarted{SchemaVersion: 99})
	s := overLog(t, eventview.View{Log: log})
	var diff struct {
		Same            bool
		FirstDivergence int `json:"first_divergence"`
		Match           int
		Differences     []struct{ Relation, Field string }
	}
	call(t, s, "diff_runs", `{"a":"acme/1","b":"other/1"}`, &diff)
	if diff.Same || diff.FirstDivergence != 2 || diff.Match != 1 || len(diff.Differences) != 3 || diff.Differences[0].Field != "args.city" {
		t.Errorf("got %+v", diff)
	}
	if call(t, s, "diff_runs", `{"a":"acme/1","b":"other/1","matches":true}`, &diff); len(diff.Differences) != 4 || diff.Differences[0].Relation != "match" {
		t.Errorf("with matches: %+v", diff)
	}
	call(t, s, "diff_runs", `{"a":"acme/1","b":"acme/1"}`, &diff)
	if !diff.Same || diff.Match != 4 {
		t.Errorf("a run and itself: %+v", diff)
	}
	var valid struct {
		OK, Open   bool
		Reason     string
		Invariant  string
		MerkleRoot string `json:"merkle_root"`
	}
	call(t, s, "validate_run", `{"run_id":"acme/1"}`, &valid)
	if !valid.OK || len(valid.MerkleRoot) != 64 {
		t.Errorf("got %+v", valid)
	}
	call(t, s, "validate_run", `{"run_id":"bad"}`, &valid)
	if valid.OK || valid.Invariant != "D5" || !strings.Contains(valid.Reason, "schema version 99") {
		t.Errorf("got %+v", valid)
	}
}

type found struct {
	Matches []struct {
		RunID string `json:"run_id"`
		Seq   int
		Kind  string
	}
	RunsExamined      int  `json:"runs_examined"`
	RunsUnreadable    int  `json:"runs_unreadable"`
	EventsExamined    int  `json:"events_examined"`
	TotalMatchingRuns int  `json:"total_matching_runs"`
	RunsCapped        bool `json:"runs_capped"`
	ScanCapped        bool `json:"scan_capped"`
	Capped            bool
}

func TestSearchingHasCaps(t *testing.T) {
	log := store.Memory()
	for i := range 30 {
		id := fmt.Sprintf("R%02d", i)
		add(t, log, id, event.KindRunStarted, event.RunStarted{Goal: "goal"})
		for range 9 {
			add(t, log, id, event.KindUserMessageAppended, event.UserMessageAppended{Content: "A Needle \u00e9"})
		}
	}
	s := overLog(t, eventview.View{Log: log})
	for arguments, want := range map[string]found{
		`{"query":"nothing"}`:                                      {RunsExamined: 30, EventsExamined: 300, TotalMatchingRuns: 30},
		`{"query":"needle","limit":500}`:                           {RunsExamined: 30, EventsExamined: 300, TotalMatchingRuns: 30},
		`{"query":"needle","limit":10}`:                            {RunsExamined: 2, EventsExamined: 13, TotalMatchingRuns: 30, Capped: true},
		`{"query":"needle","limit":500,"run_limit":3}`:             {RunsExamined: 3, EventsExamined: 30, TotalMatchingRuns: 30, RunsCapped: true},
		`{"query":"nothing","run_limit":10,"run_offset":10}`:       {RunsExamined: 10, EventsExamined: 100, TotalMatchingRuns: 30, RunsCapped: true},
		`{"query":"nothing","run_offset":25}`:                      {RunsExamined: 5, EventsExamined: 50, TotalMatchingRuns: 30},
		`{"kind":"RunStarted","max_examined_events":25}`:           {RunsExamined: 3, EventsExamined: 25, TotalMatchingRuns: 30, ScanCapped: true},
		`{"kind":"RunStarted","query":"needle","limit":500}`:       {RunsExamined: 30, EventsExamined: 300, TotalMatchingRuns: 30},
		`{"kind":"RunStarted","query":"GOAL","status":"failed"}`:   {},
		`{"kind":"UserMessageAppended","query":"é","run_limit":1}`: {RunsExamined: 1, EventsExamined: 10, TotalMatchingRuns: 30, RunsCapped: true},
	} {
		var got found
		if failure := call(t, s, "search_runs", arguments, &got); failure != "" {
			t.Errorf("%s: %s", arguments, failure)
		}
		matches := len(got.Matches)
		got.Matches = nil
		if fmt.Sprintf("%+v", got) != fmt.Sprintf("%+v", want) {
			t.Errorf("%s: got %+v, want %+v", arguments, got, want)
		}
		if wanted := map[bool]int{true: 10, false: matches}[want.Capped]; matches != wanted {
			t.Errorf("%s: %d matches", arguments, matches)
		}
	}
}

// unreadable is a log in which a run cannot be read.
type unreadable struct {
	*store.MemoryLog
	run string
	err error
}

func (u unreadable) Read(ctx context.Context, id string) ([]event.Event, error) {
	if id == u.run {
		return nil, u.err
	}
	return u.MemoryLog.Read(ctx, id)
}

func (u unreadable) Events(ctx context.Context, id string, after uint64) iter.Seq2[event.Event, error] {
	if id == u.run {
		return func(yield func(event.Event, error) bool) { yield(event.Event{}, u.err) }
	}
	return u.MemoryLog.Events(ctx, id, after)
}

func TestSearchingGoesOnBehindARunThatCannotBeRead(t *testing.T) {
	for _, err := range []error{fmt.Errorf("%w: at event 1", eventlog.ErrLogCorrupt), store.ErrDataKey, eventlog.ErrSchemaTooNew} {
		log := unreadable{MemoryLog: store.Memory(), run: "B", err: err}
		for _, id := range []string{"A", "B", "C"} {
			add(t, log.MemoryLog, id, event.KindRunStarted, event.RunStarted{Goal: "goal"})
		}
		var got found
		if failure := call(t, overLog(t, eventview.View{Log: log}), "search_runs", `{"query":"goal"}`, &got); failure != "" {
			t.Errorf("%v: %s", err, failure)
		}
		if len(got.Matches) != 2 || got.RunsExamined != 3 || got.RunsUnreadable != 1 {
			t.Errorf("%v: %+v", err, got)
		}
		if why := call(t, overLog(t, eventview.View{Log: log}), "get_run", `{"run_id":"B"}`, &got); why == "the log could not be read" {
			t.Errorf("%v: the reader is not told why", err)
		}
	}
}

// TestAnswersAreBounded looks at a run of many long events.
func TestAnswersAreBounded(t *testing.T) {
	log := store.Memory()
	add(t, log, "R", event.KindRunStarted, event.RunStarted{Goal: strings.Repeat("g", 1<<20)})
	for range 999 {
		add(t, log, "R", event.KindUserMessageAppended, event.UserMessageAppended{Content: strings.Repeat("x", 3000)})
	}
	add(t, log, "R", event.KindUserMessageAppended, event.UserMessageAppended{Content: strings.Repeat("x", 1<<20)})
	s := overLog(t, eventview.View{Log: log})
	for tool, arguments := range map[string]string{
		"get_run": `{"run_id":"R","limit":1000}`, "get_event": `{"run_id":"R","seq":1001}`, "summarize_run": `{"run_id":"R"}`,
		"search_runs": `{"query":"x","limit":500}`, "diff_runs": `{"a":"R","b":"R"}`,
	} {
		result, err := s.CallTool(t.Context(), &mcp.CallToolParams{Name: tool, Arguments: json.RawMessage(arguments)})
		if err != nil || result.IsError {
			t.Fatalf("%s: %v, %v", tool, err, result)
		}
		if n := len(result.Content[0].(*mcp.TextContent).Text); n > 1<<20 {
			t.Errorf("%s: %d bytes", tool, n)
		}
	}
	var run runAndEvents
	call(t, s, "get_run", `{"run_id":"R","limit":1000}`, &run)
	if run.Events[1].TooLong || !run.Events[0].TooLong || !run.Events[999].TooLong || len(run.Events) != 1000 {
		t.Error("the payloads that are left out are not the ones that are too many")
	}
}

// TestNothingHidesInAnAnswer reads runs whose ids and payloads have invisible
// characters. They are escaped, and the values stay the same.
func TestNothingHidesInAnAnswer(t *testing.T) {
	const id = "R\u202e\u200b\U000E0041"
	log := store.Memory()
	add(t, log, id, event.KindRunStarted, event.RunStarted{Goal: id})
	s := overLog(t, eventview.View{Log: log})
	of, err := json.Marshal(map[string]string{"run_id": id})
	if err != nil {
		t.Fatal(err)
	}
	for tool, arguments := range map[string]string{"list_runs": `{}`, "get_run": string(of), "search_runs": `{"kind":"RunStarted"}`} {
		result, err := s.CallTool(t.Context(), &mcp.CallToolParams{Name: tool, Arguments: json.RawMessage(arguments)})
		if err != nil || result.IsError {
			t.Fatalf("%s: %v, %v", tool, err, result)
		}
		if text := result.Content[0].(*mcp.TextContent).Text; strings.ContainsFunc(text, func(r rune) bool { return !strconv.IsPrint(r) }) {
			t.Errorf("%s: %q", tool, text)
		}
	}
	var run struct {
		Run struct {
			RunID string `json:"run_id"`
		}
	}
	if call(t, s, "get_run", string(of), &run); run.Run.RunID != id {
		t.Errorf("the run is %q", run.Run.RunID)
	}
}

// garbled is a log whose payloads are not CBOR any more.
type garbled struct{ *store.MemoryLog }

func (g garbled) Events(ctx context.Context, id string, after uint64) iter.Seq2[event.Event, error] {
	return func(yield func(event.Event, error) bool) {
		for e, err := range g.MemoryLog.Events(ctx, id, after) {
			e.Payload = canon.Raw{0xff}
			if !yield(e, err) {
				return
			}
		}
	}
}

func TestAPayloadThatCannotBeReadIsNotTooLong(t *testing.T) {
	var run runAndEvents
	call(t, overLog(t, eventview.View{Log: garbled{newLog(t)}}), "get_run", `{"run_id":"acme/1"}`, &run)
	if len(run.Events) != 4 || run.Events[1].TooLong || !strings.HasPrefix(run.Events[1].Facts, "cannot be read: ") {
		t.Errorf("got %+v", run)
	}
}

// TestMCPLogToolsStayInTheirNamespace names runs of another namespace in every argument.
func TestMCPLogToolsStayInTheirNamespace(t *testing.T) {
	s := overLog(t, eventview.View{Log: newLog(t), Namespace: "acme"})
	for _, id := range []string{"other/1", "/other/1", "../other/1", "acme/1", "1/../../other/1"} {
		for _, c := range []string{"get_run {%q:%q}", "summarize_run {%q:%q}", "validate_run {%q:%q}"} {
			tool, arguments, _ := strings.Cut(c, " ")
			if got := call(t, s, tool, fmt.Sprintf(arguments, "run_id", id), nil); got != "run not found" {
				t.Errorf("%s of %s: %q", tool, id, got)
			}
		}
		if got := call(t, s, "get_event", fmt.Sprintf(`{"run_id":%q,"seq":1}`, id), nil); got != "run not found" {
			t.Errorf("get_event of %s: %q", id, got)
		}
		if got := call(t, s, "diff_runs", fmt.Sprintf(`{"a":"1","b":%q}`, id), nil); got != "run not found" {
			t.Errorf("diff_runs with %s: %q", id, got)
		}
	}
	var got found
	call(t, s, "search_runs", `{"query":"secret"}`, &got)
	if len(got.Matches) != 0 || got.TotalMatchingRuns != 2 {
		t.Errorf("the search found %+v", got)
	}
}

// broken is a log whose disk fails.
type broken struct{ *store.MemoryLog }

func (broken) ListRunsPage(context.Context, eventlog.RunPageOptions) (eventlog.RunPage, error) {
	return eventlog.RunPage{}, fmt.Errorf("open /secret/path: input/output error")
}

func TestFailuresTellNothingOfTheHost(t *testing.T) {
	s := overLog(t, eventview.View{Log: broken{store.Memory()}})
	if got := call(t, s, "list_runs", `{}`, nil); got != "the log could not be read" {
		t.Errorf("got %q", got)
	}
}
