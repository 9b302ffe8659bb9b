package span_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/eventlog/logtest"
	"github.com/starling-host/starling/eventlog/span"
)

// script makes the events of a run, each at a time in milliseconds.
type script struct {
	chain  logtest.Chain
	events []event.Event
}

func (s *script) at(ms float64, p event.Payload) {
	s.chain.RunID, s.chain.Clock = "r", int64(ms*1e6)+1e18
	s.events = append(s.events, s.chain.Next(p))
}

func (s *script) start(goal, model string) {
	p := event.RunStarted{SchemaVersion: event.SchemaVersion, Goal: goal, ToolSchemas: []event.ToolSchemaRef{}}
	if model != "" {
		p.ProviderID, p.ModelID = "p", model
	}
	s.at(0, p)
}

func call(id string, attempt uint32) event.ToolCallScheduled {
	return event.ToolCallScheduled{CallID: id, TurnID: "t", ToolName: "tool-" + id, Args: canon.Raw("\xa0"), Attempt: attempt}
}

func done(id string) event.ToolCallCompleted {
	return event.ToolCallCompleted{CallID: id, Result: canon.Raw("\xf6"), Attempt: 1, Meter: event.Meter{Fuel: 100, PeakMemory: 65536}}
}

func exchange(id, url string, response string, us int64) event.SideEffectRecorded {
	value, err := canon.Marshal(event.Exchange{Response: []byte(response)})
	if err != nil {
		panic(err)
	}
	return event.SideEffectRecorded{Name: "GET " + url, CallID: id, Request: []byte("GET " + url + " HTTP/1.1\r\n\r\n"), Value: value, Fuel: 40, DurationUs: us}
}

func named(id, name string, value any) event.SideEffectRecorded {
	raw, err := canon.Marshal(value)
	if err != nil {
		panic(err)
	}
	return event.SideEffectRecorded{Name: name, CallID: id, Value: raw, Fuel: 10}
}

// drawn returns a line for each span, indented by its depth.
func drawn(r *span.Run) string {
	var b strings.Builder
	for i, s := range r.Spans {
		if s.Parent >= i {
			panic("a parent comes after its child")
		}
		about := ""
		if s.Approximate {
			about = "~"
		}
		fmt.Fprintf(&b, "%s%s %s %s%v-%v %s", strings.Repeat("  ", s.Depth), s.Kind, s.Name, about, time.Duration(s.Start), time.Duration(s.End), s.State)
		if s.Status != 0 {
			fmt.Fprintf(&b, " %d", s.Status)
		}
		if s.ErrorType != "" {
			fmt.Fprintf(&b, " %s: %s", s.ErrorType, s.Error)
		}
		b.WriteByte('\n')
	}
	return b.String()
}

func TestSpans(t *testing.T) {
	for name, c := range map[string]struct {
		do   func(*script)
		want string
	}{
		"a call with effects": {func(s *script) {
			s.start("tool-a", "")
			s.at(1, call("a", 1))
			s.at(2, named("a", event.EffectNow, 5))
			s.at(50, exchange("a", "http://x/1", "HTTP/1.1 200 OK\r\n\r\n", 40_000))
			s.at(60, exchange("a", "http://x/2", "HTTP/1.1 503 Unavailable\r\n\r\n", 0)) // of an older log
			s.at(61, done("a"))
			s.at(62, event.RunCompleted{FinalText: "null"})
		}, `
call tool-a 1ms-61ms ok
  effect now 2ms-2ms ok
  effect GET http://x/1 10ms-50ms ok 200
  effect GET http://x/2 ~50ms-60ms ok 503
`},
		"an intent before an effect, and one without": {func(s *script) {
			s.start("tool-a", "")
			s.at(1, call("a", 1))
			s.at(5, named("a", event.EffectIntent, event.Intent{Name: "GET http://x/1", Key: "k"}))
			s.at(9, exchange("a", "http://x/1", "HTTP/1.1 201 Created\r\n\r\n", 0))
			s.at(11, named("a", event.EffectIntent, event.Intent{Name: "POST http://x/2", Key: "k"}))
			s.at(100, event.RunResumed{AtSeq: 5})
			s.at(101, call("b", 1))
			s.at(102, done("b"))
			s.at(103, event.RunCompleted{FinalText: "null"})
		}, `
call tool-a 1ms-11ms lost
  effect GET http://x/1 5ms-9ms ok 201
  effect POST http://x/2 11ms-11ms lost
wait until another process continued the run 11ms-100ms ok
call tool-b 101ms-102ms ok
`},
		"two attempts": {func(s *script) {
			s.start("tool-a", "")
			s.at(1, call("a", 1))
			s.at(3, event.ToolCallFailed{CallID: "a", Attempt: 1, ErrorType: "tool", Error: "busy", WaitMs: 20})
			s.at(24, call("a", 2))
			s.at(30, event.ToolCallFailed{CallID: "a", Attempt: 2, ErrorType: "tool", Error: "no", Final: true})
			s.at(31, event.RunFailed{ErrorType: "tool", Error: "no"})
		}, `
call tool-a 1ms-3ms failed tool: busy
wait before the next attempt 3ms-23ms ok
call tool-a 24ms-30ms failed tool: no
`},
		"an agent, whose model fails once, with a nested call": {func(s *script) {
			s.start("goal", "m")
			s.at(1, event.TurnStarted{TurnID: "t"})
			s.at(5, named("", event.EffectModel, event.ModelFailure{TurnID: "t", Attempt: 1, Class: "server", Error: "500", WaitMs: 10}))
			s.at(20, event.AssistantMessageCompleted{TurnID: "t", InputTokens: 3, OutputTokens: 4, CostUSD: 0.5})
			s.at(21, call("a", 1))
			nested := call("b", 1)
			nested.ParentID = "a"
			s.at(22, nested)
			s.at(25, done("b"))
			s.at(26, named("a", event.NestedCallPrefix+"tool-b", event.NestedCall{CallID: "b"}))
			s.at(27, done("a"))
			s.at(30, event.TurnStarted{TurnID: "t2"})
			s.at(20, event.AssistantMessageCompleted{TurnID: "t2"}) // the clock was set back
			s.at(20, event.RunCompleted{FinalText: "null"})
		}, `
turn turn 1 1ms-27ms ok
  answer p/m 1ms-5ms failed server: 500
  wait before the next attempt 5ms-15ms ok
  answer p/m 15ms-20ms ok
  call tool-a 21ms-27ms ok
    call tool-b 22ms-25ms ok
turn turn 2 30ms-30ms ok
  answer p/m 30ms-30ms ok
`},
		"a refused nested call, and a killed process": {func(s *script) {
			s.start("tool-a", "")
			s.at(1, call("a", 1))
			s.at(2, event.SideEffectRecorded{Name: event.NestedCallPrefix + "x", CallID: "a", Error: &event.EffectError{Type: "limit", Message: "too many"}})
			s.at(3, event.SideEffectRecorded{Name: "get", CallID: "a", Error: &event.EffectError{Type: "cancelled", Message: "gone"}})
		}, `
call tool-a 1ms-1ms open
  effect call x ~1ms-2ms failed limit: too many
  effect get ~2ms-3ms cancelled cancelled: gone
`},
		"a wait that was cut off": {func(s *script) {
			s.start("tool-a", "")
			s.at(1, call("a", 1))
			s.at(3, event.ToolCallFailed{CallID: "a", Attempt: 1, ErrorType: "tool", Error: "busy", WaitMs: 1 << 62})
			s.at(9, event.RunCancelled{Reason: "enough"})
		}, `
call tool-a 1ms-3ms failed tool: busy
wait before the next attempt 3ms-9ms ok
`},
	} {
		t.Run(name, func(t *testing.T) {
			var s script
			c.do(&s)
			r, err := span.Of(s.events)
			if err != nil {
				t.Fatal(err)
			}
			if got := drawn(r); got != strings.TrimPrefix(c.want, "\n") {
				t.Errorf("got\n%swant%s", got, c.want)
			}
		})
	}
}

func TestTotals(t *testing.T) {
	var s script
	s.start("goal", "m")
	s.at(1, event.TurnStarted{TurnID: "t"})
	s.at(2, event.AssistantMessageCompleted{TurnID: "t", InputTokens: 30, OutputTokens: 4, CostUSD: 0.5})
	s.at(3, call("a", 1))
	s.at(4, call("b", 1))
	s.at(5, exchange("a", "http://x/", "HTTP/1.1 404 Not Found\r\n\r\n", 100))
	s.at(6, exchange("b", "http://x/", "HTTP/1.1 500 No\r\n\r\n", 100))
	s.at(7, done("a"))
	s.at(8, event.ToolCallFailed{CallID: "b", Attempt: 1, ErrorType: "fuel", Error: "out of fuel", Final: true, Meter: event.Meter{Fuel: 900, PeakMemory: 1 << 20}})
	s.at(9, event.RunFailed{ErrorType: "fuel", Error: "out of fuel"})
	r, err := span.Of(s.events)
	if err != nil {
		t.Fatal(err)
	}
	got := fmt.Sprintln(r.State, r.ErrorType, r.Spans[r.Cause].Name, r.Turns, r.Calls, r.FailedCalls, r.Requests, r.Status4xx, r.Status5xx, r.Fuel, r.PeakMemoryBytes, r.InputTokens, r.OutputTokens, r.CostUSD, time.Duration(r.End), r.Model)
	if want := "failed fuel tool-b 1 2 1 2 1 1 1000 1048576 30 4 0.5 9ms p/m\n"; got != want {
		t.Errorf("got  %swant %s", got, want)
	}
	// Fuel of an effect is what the call used since the one before.
	if s := r.Spans[4]; s.Kind != span.Effect || s.Fuel != 40 {
		t.Errorf("%+v", s)
	}
}

// TestReasonIsTheSame fails for one trap in a call of the run, in a nested call and in an agent.
func TestReasonIsTheSame(t *testing.T) {
	const trap = "panicked: trap: out of bounds"
	failed := func(id, class, text string) event.Payload {
		return event.ToolCallFailed{CallID: id, Attempt: 1, ErrorType: class, Error: text, Final: true}
	}
	nested := call("b", 1)
	nested.ParentID = "a"
	caught := call("c", 1)
	caught.ParentID = "a"
	for name, c := range map[string]struct {
		model, want string
		do          []event.Payload
	}{
		"direct":           {"", "tool-b|trap: out of bounds", []event.Payload{call("b", 1), failed("b", "panic", trap), event.RunFailed{ErrorType: "panic", Error: "tool: " + trap}}},
		"nested":           {"", "tool-b|trap: out of bounds\ntool: ToolError: b: tool: " + trap + "\nat line 3", []event.Payload{call("a", 1), nested, failed("b", "panic", trap), caught, failed("c", "tool", "gone"), failed("a", "tool", "ToolError: b: tool: "+trap+"\nat line 3"), event.RunFailed{ErrorType: "tool", Error: "tool: ToolError: b: tool: " + trap + "\nat line 3"}}},
		"nested in agent":  {"m", "tool-b|trap: out of bounds\nmax_turns: too many", []event.Payload{event.TurnStarted{TurnID: "t"}, event.AssistantMessageCompleted{TurnID: "t"}, call("a", 1), nested, failed("b", "panic", trap), failed("a", "tool", "ToolError: b: tool: "+trap), event.RunFailed{ErrorType: "max_turns", Error: "too many"}}},
		"survived":         {"m", "|max_turns: too many", []event.Payload{event.TurnStarted{TurnID: "t"}, call("b", 1), failed("b", "panic", trap), call("d", 1), done("d"), event.RunFailed{ErrorType: "max_turns", Error: "too many"}}},
		"caught":           {"", "tool-a|mine", []event.Payload{call("a", 1), nested, failed("b", "panic", trap), failed("a", "tool", "mine"), event.RunFailed{ErrorType: "tool", Error: "mine"}}},
		"of the model":     {"m", "|provider: no answer", []event.Payload{call("b", 1), failed("b", "panic", trap), event.RunFailed{ErrorType: "provider", Error: "no answer"}}},
		"without any text": {"", "tool-b|fuel", []event.Payload{call("b", 1), failed("b", "fuel", ""), event.RunFailed{ErrorType: "fuel"}}},
	} {
		var s script
		s.start("tool-b", c.model)
		for i, p := range c.do {
			s.at(float64(i+1), p)
		}
		r, err := span.Of(s.events)
		if err != nil {
			t.Fatal(err)
		}
		if tool, text := r.Reason(); tool+"|"+text != c.want {
			t.Errorf("%s: the reason is %q, want %q", name, tool+"|"+text, c.want)
		}
	}
}

func TestAxisFoldsIdleTime(t *testing.T) {
	var s script
	s.start("tool-a", "")
	s.at(0, call("a", 1))
	s.at(100, event.ToolCallFailed{CallID: "a", Attempt: 1, ErrorType: "tool", Error: "busy", WaitMs: 3_599_900})
	s.at(3_600_000, call("a", 2))
	s.at(3_600_100, event.ToolCallFailed{CallID: "a", Attempt: 2, ErrorType: "tool", Error: "busy", Final: true})
	s.at(3_600_100, event.RunFailed{ErrorType: "tool", Error: "busy"})
	r, err := span.Of(s.events)
	if err != nil {
		t.Fatal(err)
	}
	a := span.NewAxis(r, 0, r.End)
	if len(a.Folds) != 1 || a.Folds[0].From != 100e6 || a.Folds[0].To != 3_600_000e6 {
		t.Fatalf("folded %+v", a.Folds)
	}
	for _, c := range []struct {
		ms   int64
		want string
	}{{-5, "0.000"}, {0, "0.000"}, {50, "0.242"}, {100, "0.485"}, {1_800_050, "0.500"}, {3_600_000, "0.515"}, {3_600_100, "1.000"}, {9_999_999, "1.000"}} {
		if got := fmt.Sprintf("%.3f", a.At(c.ms*1e6)); got != c.want {
			t.Errorf("%d ms is at %s, want %s", c.ms, got, c.want)
		}
	}
}

// TestAxisOfARunThatWorks: the time of a call that has not ended is not idle.
func TestAxisOfARunThatWorks(t *testing.T) {
	var s script
	s.start("tool-a", "")
	s.at(0, call("a", 1))
	s.at(60_000, exchange("a", "http://a/0", "HTTP/1.1 200 OK\r\n\r\n", 10))
	r, err := span.Of(s.events)
	if err != nil {
		t.Fatal(err)
	}
	if a := span.NewAxis(r, 0, r.End); len(a.Folds) > 0 {
		t.Errorf("folded %+v", a.Folds)
	}
}

// TestRowsFollowTheTree draws two calls whose effects took turns.
func TestRowsFollowTheTree(t *testing.T) {
	var s script
	s.start("goal", "m")
	s.at(0, call("a", 1))
	s.at(1, call("b", 1))
	for i := range 4 {
		id := string("ab"[i%2])
		s.at(float64(i+2), exchange(id, fmt.Sprintf("http://%s/%d", id, i), "HTTP/1.1 200 OK\r\n\r\n", 10))
	}
	s.at(8, done("b"))
	s.at(9, done("a"))
	r, err := span.Of(s.events)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, row := range r.Rows(10, nil) {
		got = append(got, row.Name)
	}
	want := "tool-a, GET http://a/0, GET http://a/2, tool-b, GET http://b/1, GET http://b/3"
	if text := strings.Join(got, ", "); text != want {
		t.Errorf("got  %s\nwant %s", text, want)
	}
	rows := r.Rows(10, func(i int) bool { return strings.HasSuffix(r.Spans[i].Name, "/3") })
	if len(rows) != 2 || rows[0].Name != "tool-b" || r.Spans[rows[1].Index].Name != "GET http://b/3" {
		t.Errorf("of one span there are the rows %+v", rows)
	}
	if a := span.NewAxis(r, 2e6, 4e6); a.At(1e6) != 0 || a.At(3e6) != 0.5 || a.At(9e6) != 1 {
		t.Errorf("on an axis from 2 to 4 ms, 1, 3 and 9 ms are at %g, %g and %g", a.At(1e6), a.At(3e6), a.At(9e6))
	}
}

func TestRowsFold(t *testing.T) {
	var s script
	s.start("tool-a", "")
	s.at(0, call("a", 1))
	for i := range 5 {
		s.at(float64(i+1), named("a", event.EffectNow, i))
	}
	for i := range 8 {
		status := 200 + 300*(i/5%2*(i%2)) // of the sixth and the eighth
		s.at(float64(i+10), exchange("a", fmt.Sprintf("http://x/%d", i), fmt.Sprintf("HTTP/1.1 %d OK\r\n\r\n", status), 10))
	}
	s.at(20, done("a"))
	s.at(21, event.RunCompleted{FinalText: "null"})
	r, err := span.Of(s.events)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, row := range r.Rows(3, nil) {
		got = append(got, fmt.Sprintf("%s x%d until %v hidden %v", row.Name, row.Count, time.Duration(row.End), row.Hidden))
	}
	want := "tool-a x1 until 20ms hidden false, now x5 until 5ms hidden false, GET http://x/0 x1 until 10ms hidden false, GET http://x/1 x1 until 11ms hidden false, GET http://x/2 x3 until 14ms hidden true, GET http://x/5 x1 until 15ms hidden false, GET http://x/6 x1 until 16ms hidden true, GET http://x/7 x1 until 17ms hidden false"
	if text := strings.Join(got, ", "); text != want {
		t.Errorf("got  %s\nwant %s", text, want)
	}
}

// TestEventsBelongToSpans names the span of each event of an agent whose second call passes the
// run's budget of fuel.
func TestEventsBelongToSpans(t *testing.T) {
	var s script
	s.start("goal", "m")
	s.at(1, event.TurnStarted{TurnID: "t"})
	s.at(2, event.ReasoningEmitted{TurnID: "t"})
	s.at(3, event.AssistantMessageCompleted{TurnID: "t"})
	s.at(4, call("a", 1))
	s.at(5, call("b", 1))
	s.at(6, exchange("a", "http://x/", "HTTP/1.1 200 OK\r\n\r\n", 100))
	s.at(7, event.ToolCallFailed{CallID: "a", Attempt: 1, ErrorType: "tool", Error: "busy", WaitMs: 20})
	s.at(8, done("b"))
	s.at(9, event.BudgetExceeded{Limit: "fuel", Cap: 6e7, Actual: 104_867_311, Where: "post_call", TurnID: "t", CallID: "b"})
	s.at(10, event.RunFailed{ErrorType: "budget", Error: "step: budget exceeded"})
	var b span.Builder
	var got []string
	for _, ev := range s.events {
		if err := b.Add(ev); err != nil {
			t.Fatal(err)
		}
		name := "-"
		if at := b.At(); at != span.None {
			name = b.Run().Spans[at].Name
			if in := b.Run().CallOf(at); in != span.None {
				name += " in " + b.Run().Spans[in].Name
			}
		}
		got = append(got, name)
	}
	want := "-, turn 1, p/m, p/m, tool-a in tool-a, tool-b in tool-b, GET http://x/ in tool-a, tool-a in tool-a, tool-b in tool-b, tool-b in tool-b, -"
	if text := strings.Join(got, ", "); text != want {
		t.Errorf("got  %s\nwant %s", text, want)
	}
	if r := b.Run(); r.Error != "fuel, 104,867,311 of 60,000,000" || r.Spans[r.Cause].Name != "tool-b" {
		t.Errorf("%s, because of %s", r.Error, r.Spans[r.Cause].Name)
	}
}

// TestTextsAreBounded builds a run whose requests are long, in a log that anybody may have written.
func TestTextsAreBounded(t *testing.T) {
	var s script
	s.start("tool-a", "")
	s.at(1, call("a", 1))
	s.at(2, exchange("a", "http://x/1", "HTTP/1.1 200 OK\r\n\r\n", 10))
	long := exchange("a", "http://y/"+strings.Repeat("y", 100_000), "HTTP/1.1 200 OK\r\n\r\n", 10)
	for range 1000 {
		s.at(3, long)
	}
	r, err := span.Of(s.events)
	if err != nil {
		t.Fatal(err)
	}
	if size := r.Size(); size > 20<<20 {
		t.Errorf("the spans of %d events take %d bytes", len(s.events), size)
	}
	if first, last := r.Spans[1], r.Spans[len(r.Spans)-1]; first.Request != "GET http://x/1" || last.Host != "y" || last.Status != 200 {
		t.Errorf("%+v, %+v", first, last)
	}
}

// TestNothingOfARun is what a log shows of a run whose first event cannot be read.
func TestNothingOfARun(t *testing.T) {
	if doc := new(span.Builder).Run().Document(eventlog.RunSummary{RunID: "a", TerminalKind: event.KindRunFailed}); doc.RunID != "a" || doc.Error != nil {
		t.Errorf("%+v", doc)
	}
}
