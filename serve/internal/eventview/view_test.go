package eventview_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/eventlog/logtest"
	"github.com/starling-host/starling/eventlog/store"
	"github.com/starling-host/starling/runtime/agent"
	"github.com/starling-host/starling/runtime/tool"
	"github.com/starling-host/starling/serve/internal/eventview"
)

// record makes a run of one call.
func record(t *testing.T, log eventlog.EventLog, id, city string) {
	t.Helper()
	type in struct {
		City string `json:"city"`
	}
	weather := tool.Typed("weather", "The weather.", func(_ context.Context, in in) (string, error) { return "mild", nil })
	if _, err := (agent.Direct{Log: log, Tool: weather}).RunWithID(t.Context(), id, json.RawMessage(fmt.Sprintf(`{"city":%q}`, city))); err != nil {
		t.Fatal(err)
	}
}

// TestEventViewIsOneNamespace asks for runs inside and outside of a namespace in
// every way that a view has.
func TestEventViewIsOneNamespace(t *testing.T) {
	log := store.Memory()
	record(t, log, "acme/1", "Oslo")
	record(t, log, "acme/2", "Oslo")
	record(t, log, "acmeish/3", "Oslo")
	record(t, log, "other/1", "Oslo")
	v := eventview.View{Log: log, Namespace: "acme", Replayer: func(_ context.Context, id string) (agent.Verdict, error) {
		return agent.Verdict{RunID: id}, nil
	}}
	page, err := v.Runs(t.Context(), eventlog.RunPageOptions{Namespace: "other"})
	if err != nil || page.TotalMatching != 2 || page.Runs[0].RunID != "2" || page.Runs[1].RunID != "1" {
		t.Errorf("the list is %+v, %v", page, err)
	}
	for id, want := range map[string]error{
		"1": nil, "3": eventlog.ErrRunNotFound, "other/1": eventlog.ErrRunNotFound, "acme/1": eventlog.ErrRunNotFound,
		"../other/1": eventlog.ErrRunNotFound, "": eventlog.ErrRunNotFound, string(make([]byte, 300)): eventlog.ErrRunNotFound,
	} {
		for name, ask := range everyQuestion(t, v) {
			if err := ask(id); !errors.Is(err, want) {
				t.Errorf("%s of %q: %v, want %v", name, id, err, want)
			}
		}
	}
	if verdict, err := v.Replay(t.Context(), "1"); err != nil || verdict.RunID != "1" {
		t.Errorf("the verdict names %q, %v", verdict.RunID, err)
	}
}

// everyQuestion is what a view can be asked about one run.
func everyQuestion(t *testing.T, v eventview.View) map[string]func(id string) error {
	ctx := t.Context()
	return map[string]func(id string) error{
		"Run":    func(id string) error { _, err := v.Run(ctx, id); return err },
		"Event":  func(id string) error { _, err := v.Event(ctx, id, 1); return err },
		"Check":  func(id string) error { _, err := v.Check(ctx, id); return err },
		"Replay": func(id string) error { _, err := v.Replay(ctx, id); return err },
		"Stream": func(id string) error { _, err := v.Stream(ctx, id); return err },
		"Compare": func(id string) error {
			_, err := v.Compare(ctx, "1", id, eventview.DiffOptions{})
			return err
		},
	}
}

// TestEventViewNotFound asks a view without a replayer for a run and events that do not exist.
func TestEventViewNotFound(t *testing.T) {
	log := store.Memory()
	record(t, log, "R", "Oslo")
	v := eventview.View{Log: log}
	if _, err := v.Run(t.Context(), "none"); !errors.Is(err, eventlog.ErrRunNotFound) {
		t.Errorf("an absent run: %v", err)
	}
	if ev, err := v.Event(t.Context(), "R", 2); err != nil || ev.Kind != event.KindToolCallScheduled {
		t.Errorf("got %v, %v", ev.Kind, err)
	}
	if _, err := v.Event(t.Context(), "R", 5); !errors.Is(err, eventview.ErrEventNotFound) {
		t.Errorf("an absent event: %v", err)
	}
	if _, err := v.Replay(t.Context(), "R"); !errors.Is(err, eventview.ErrNoReplay) {
		t.Errorf("a replay: %v", err)
	}
}

// TestEventViewIsStrict checks runs that only the strict rules refuse.
func TestEventViewIsStrict(t *testing.T) {
	for name, events := range logtest.Lenient("R") {
		log := store.Memory()
		for _, ev := range events {
			log.Adopt(ev)
		}
		if _, err := (eventview.View{Log: log}).Check(t.Context(), "R"); !errors.Is(err, eventlog.ErrLogCorrupt) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestCompare(t *testing.T) {
	log := store.Memory()
	record(t, log, "a", "Oslo")
	record(t, log, "same", "Oslo")
	record(t, log, "b", "Bergen")
	v := eventview.View{Log: log}
	for _, c := range []struct {
		a, b string
		o    eventview.DiffOptions
		want string
	}{
		{"a", "a", eventview.DiffOptions{}, "4 match, 0 differ, first 0, 0 pairs"},
		{"a", "same", eventview.DiffOptions{}, "4 match, 0 differ, first 0, 0 pairs"},
		{"a", "b", eventview.DiffOptions{Limit: 10}, "3 match, 1 differ, first 2, 4 pairs"},
		{"a", "b", eventview.DiffOptions{Limit: 10, From: 3}, "3 match, 1 differ, first 2, 2 pairs"},
		{"a", "b", eventview.DiffOptions{Limit: 10, DifferentOnly: true}, "3 match, 1 differ, first 2, 1 pairs"},
		{"a", "b", eventview.DiffOptions{Limit: 10, MaxExamined: 1}, "1 match, 0 differ, first 0, 1 pairs, capped"},
	} {
		got, err := v.Compare(t.Context(), c.a, c.b, c.o)
		if err != nil {
			t.Fatal(err)
		}
		text := fmt.Sprintf("%d match, %d differ, first %d, %d pairs", got.Match, got.Diff, got.First.Position, len(got.Pairs))
		if got.Capped {
			text += ", capped"
		}
		if text != c.want {
			t.Errorf("%s and %s with %+v: %s, want %s", c.a, c.b, c.o, text, c.want)
		}
	}
	got, err := v.Compare(t.Context(), "a", "b", eventview.DiffOptions{Limit: 1, DifferentOnly: true})
	if err != nil || got.Pairs[0].Field != "args.city" || got.Pairs[0].InA != "Oslo" || got.Pairs[0].InB != "Bergen" {
		t.Errorf("the difference is %+v, %v", got.Pairs, err)
	}
}

// TestCompareAlignsCalls compares runs whose parallel calls took turns in another order, under
// other names, and of which one makes a call more.
func TestCompareAlignsCalls(t *testing.T) {
	log := store.Memory()
	run := func(id, prefix string, order ...string) {
		chain := logtest.Chain{RunID: id, Clock: 1e18}
		add := func(p event.Payload) {
			ev := chain.Next(p)
			if ev.Seq == 1 {
				log.Adopt(ev)
			} else if err := log.Append(t.Context(), id, ev); err != nil {
				t.Fatal(err)
			}
		}
		add(event.RunStarted{SchemaVersion: 1, Goal: "g", ToolSchemas: []event.ToolSchemaRef{}})
		answer := event.AssistantMessageCompleted{TurnID: prefix}
		for _, step := range order {
			if tool, begins := strings.CutPrefix(step, "+"); begins {
				args, _ := canon.Marshal(map[string]string{"of": tool})
				answer.ToolUses = append(answer.ToolUses, event.PlannedToolUse{CallID: prefix + tool, ToolName: tool[:1], Args: args})
				add(event.ToolCallScheduled{CallID: prefix + tool, TurnID: prefix, ToolName: tool[:1], Args: args, Attempt: 1})
			} else if tool, ends := strings.CutPrefix(step, "-"); ends {
				add(event.ToolCallCompleted{CallID: prefix + tool, Attempt: 1, Result: canon.Raw("\xf6"), DurationMs: int64(len(order))})
			} else {
				add(event.SideEffectRecorded{CallID: prefix + step, Name: "get", Value: canon.Raw("\x01"), Fuel: 5})
			}
		}
		add(answer)
		add(event.RunCompleted{FinalText: "null", DurationMs: int64(len(order))})
	}
	run("a", "x", "+p1", "+p2", "+q1", "p1", "p2", "-p1", "q1", "-p2", "-q1")
	run("b", "y", "+p1", "+p2", "+q1", "q1", "-q1", "p2", "p1", "-p2", "-p1")
	run("c", "z", "+p1", "+q1", "+p2", "+q2", "q1", "-q1", "p2", "p1", "p1", "-p2", "-p1", "-q2")
	v := eventview.View{Log: log}
	c, err := v.Compare(t.Context(), "a", "b", eventview.DiffOptions{Limit: 20, DifferentOnly: true})
	if err != nil || c.Match != 12 || c.First.Position != 0 {
		t.Errorf("the same in another order: %+v, %v", c, err)
	}
	if c, err = v.Compare(t.Context(), "a", "c", eventview.DiffOptions{Limit: 20, DifferentOnly: true}); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, p := range c.Pairs {
		got = append(got, fmt.Sprintf("%s %s %d-%d", p.Call, p.Relation, p.A.Seq, p.B.Seq))
	}
	want := "#1 p only-b 0-10, #4 q only-b 0-5, #4 q only-b 0-13,  diff 11-14"
	if text := strings.Join(got, ", "); text != want || c.Match != 11 {
		t.Errorf("got  %s, %d match\nwant %s", text, c.Match, want)
	}
	// Pages follow each other.
	one, err := v.Compare(t.Context(), "a", "c", eventview.DiffOptions{Limit: 3, DifferentOnly: true})
	if err != nil || len(one.Pairs) != 3 || one.Next != c.Pairs[3].Position {
		t.Errorf("%d pairs, next %d, want %d", len(one.Pairs), one.Next, c.Pairs[3].Position)
	}
}
