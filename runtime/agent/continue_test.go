package agent_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/eventlog/logtest"
	"github.com/starling-host/starling/eventlog/store"
	"github.com/starling-host/starling/runtime/agent"
	"github.com/starling-host/starling/runtime/agenttest"
	"github.com/starling-host/starling/runtime/step"
	"github.com/starling-host/starling/runtime/tool"
)

// world counts what is done to it, by name.
type world map[string]int

// shop is a tool with effects of every sort: what it asks for depends on what it
// was told before.
func (w world) shop(ctx context.Context, in json.RawMessage) (json.RawMessage, error) {
	var order struct{ Item string }
	if err := json.Unmarshal(in, &order); err != nil {
		return nil, err
	}
	number := step.Random(ctx)
	stock, err := w.ask(ctx, step.Effect{Name: "stock", Request: fmt.Appendf(nil, "%s %d", order.Item, number)})
	if err != nil {
		return nil, err
	}
	if _, err := w.ask(ctx, step.Effect{Name: "broken"}); err == nil {
		return nil, errors.New("the broken effect works")
	}
	paid, err := w.ask(ctx, step.Effect{Name: "pay", Request: []byte(stock), Unsafe: true})
	if err != nil {
		return nil, err
	}
	return json.Marshal([]any{number, stock, paid, step.Now(ctx)})
}

func (w world) ask(ctx context.Context, e step.Effect) (string, error) {
	return step.Do(ctx, e, func(context.Context, string) (string, error) {
		w[e.Name]++
		if e.Name == "broken" {
			return "", errors.New("out of order")
		}
		return fmt.Sprintf("%s of %s, number %d", e.Name, e.Request, w[e.Name]), nil
	})
}

// recorded counts the effects that events hold, by name, each call once.
func recorded(t *testing.T, events []event.Event) world {
	t.Helper()
	w, key := world{}, ""
	for _, ev := range events {
		switch ev.Kind {
		case event.KindToolCallScheduled:
			call, err := ev.AsToolCallScheduled()
			if err != nil {
				t.Fatal(err)
			}
			w, key = world{}, call.CallID // a call that is made again begins with what is recorded
		case event.KindSideEffectRecorded:
			p, err := ev.AsSideEffectRecorded()
			if err != nil || p.CallID != key {
				t.Fatal(p.CallID, err)
			}
			w[p.Name]++
		}
	}
	return w
}

// TestContinuedDirectRuns kills a direct run behind each of its events, continues
// it, kills that behind each of its events, and continues it again. The run ends as
// it would have, replays, and nothing that was recorded is done twice.
func TestContinuedDirectRuns(t *testing.T) {
	t.Run("plain", func(t *testing.T) { continuedDirectRuns(t, func(t tool.Tool) tool.Tool { return t }) })
	t.Run("guarded", func(t *testing.T) { continuedDirectRuns(t, guarded) })
}

// guarded has each call of a tool allowed.
func guarded(t tool.Tool) tool.Tool {
	return tool.Guarded(t, func(context.Context, string, json.RawMessage) event.Verdicts {
		return event.Verdicts{{Policy: make([]byte, 32), Side: "operator", Line: 1}}
	})
}

func continuedDirectRuns(t *testing.T, wrap func(tool.Tool) tool.Tool) {
	w := world{}
	d := agent.Direct{Log: store.Memory(), Tool: wrap(raw("shop", w.shop))}
	if _, err := d.RunWithID(context.Background(), "run", json.RawMessage(`{"Item":"tea"}`)); err != nil {
		t.Fatal(err)
	}
	whole, err := d.Log.Read(context.Background(), "run")
	if err != nil {
		t.Fatal(err)
	}
	for n := 1; n < len(whole); n++ {
		once := continued(t, whole[:n], wrap)
		for m := n + 1; m < len(once); m++ {
			continued(t, once[:m], wrap)
		}
	}
}

// continued continues a run of the shop that a process left behind, and returns all
// of it.
func continued(t *testing.T, left []event.Event, wrap func(tool.Tool) tool.Tool) []event.Event {
	t.Helper()
	w := world{}
	d := agent.Direct{Log: cut(t, left, len(left)), Tool: wrap(raw("shop", w.shop))}
	r, err := d.Continue(context.Background(), "run", json.RawMessage(`{"Item":"tea"}`))
	if err != nil || r.TerminalKind != event.KindRunCompleted {
		t.Fatalf("behind %s: %+v, %v", kinds(left), r, err)
	}
	events, err := d.Log.Read(context.Background(), "run")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := eventlog.Check(events, eventlog.CheckOptions{Strict: true}); err != nil {
		t.Fatalf("%v\n%s", err, kinds(events))
	}
	for name, n := range recorded(t, left) {
		if n > 0 && w[name] > 0 && name != "intent" {
			t.Errorf("%s was done again behind %s", name, kinds(left))
		}
	}
	seam := slices.ContainsFunc(events[len(left):], func(ev event.Event) bool { return ev.Kind == event.KindRunResumed })
	if seam != (len(left) > 1) {
		t.Errorf("a seam behind %d events: %v", len(left), seam)
	}
	mustReplayDirect(t, d, r, events)
	return events
}

func mustReplayDirect(t *testing.T, d agent.Direct, live *agent.Result, events []event.Event) {
	t.Helper()
	again, err := d.Replay(context.Background(), events, agent.ReplayOptions{})
	if err != nil {
		t.Fatalf("replay: %v\n%s", err, kinds(events))
	}
	if diff := cmp.Diff(live, again, sameResult); diff != "" {
		t.Errorf("results (-live +replay):\n%s", diff)
	}
}

// TestContinuedAgentRuns is the same for a run in which a model takes part.
func TestContinuedAgentRuns(t *testing.T) {
	script := []agenttest.Turn{agenttest.Call("c1", "shop", `{"Item":"tea"}`), agenttest.Say("done")}
	a := newAgent(script, raw("shop", world{}.shop))
	r, err := a.Run(context.Background(), "go")
	if err != nil {
		t.Fatal(err)
	}
	whole := eventsOf(t, a, r.RunID, false)
	for n := 1; n < len(whole); n++ {
		w := world{}
		again := newAgent(script, raw("shop", w.shop))
		again.Log = cut(t, whole, n)
		r, err := again.Continue(context.Background(), r.RunID)
		if err != nil || r.FinalText != "done" {
			t.Fatalf("behind %d events: %+v, %v", n, r, err)
		}
		for name, done := range recorded(t, whole[:n]) {
			if done > 0 && w[name] > 0 && name != "intent" {
				t.Errorf("%s was done again behind %d events", name, n)
			}
		}
		mustReplay(t, again, r, eventsOf(t, again, r.RunID, false))
	}
}

// TestOpenedRunsLeaveNoSeam: that one process opened a run and another one made it
// cannot be told from the log.
func TestOpenedRunsLeaveNoSeam(t *testing.T) {
	ctx := context.Background()
	a := newAgent([]agenttest.Turn{agenttest.Say("done")})
	first, err := a.Opening(ctx, "run", "go")
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Log.Append(ctx, "run", first); err != nil {
		t.Fatal(err)
	}
	r, err := a.Continue(ctx, "run")
	if err != nil || r.FinalText != "done" {
		t.Fatalf("%+v, %v", r, err)
	}
	events := eventsOf(t, a, "run", false)
	if got := kinds(events); got != kinds(eventsOf(t, a, mustRun(t, a), false)) {
		t.Errorf("an opened run is %s", got)
	}
	mustReplay(t, a, r, events)
	if _, err := a.Continue(ctx, "run"); !errors.Is(err, agent.ErrRunAlreadyTerminal) {
		t.Errorf("a run that has ended: %v", err)
	}
}

func mustRun(t *testing.T, a *agent.Agent) string {
	t.Helper()
	r, err := a.Run(context.Background(), "go")
	if err != nil {
		t.Fatal(err)
	}
	return r.RunID
}

// TestAgentContinueErrors: another tool, a run that is not there, arguments that
// are none.
func TestAgentContinueErrors(t *testing.T) {
	ctx := context.Background()
	d := agent.Direct{Log: store.Memory(), Tool: native(asking)}
	if _, err := d.Opening(ctx, "run", json.RawMessage(`{`)); err == nil {
		t.Error("a run was opened with broken arguments")
	}
	first, err := d.Opening(ctx, "run", json.RawMessage(`{}`))
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Log.Append(ctx, "run", first); err != nil {
		t.Fatal(err)
	}
	other := d
	other.Tool = raw("other", asking)
	if _, err := other.Continue(ctx, "run", json.RawMessage(`{}`)); !errors.Is(err, agent.ErrAgentChanged) {
		t.Errorf("another tool: %v", err)
	}
	if _, err := d.Continue(ctx, "nobody", json.RawMessage(`{}`)); !errors.Is(err, agent.ErrRunNotFound) {
		t.Errorf("no run: %v", err)
	}
	if _, err := d.Continue(ctx, "run", json.RawMessage(`{`)); err == nil {
		t.Error("broken arguments were accepted")
	}
	cancelled, cancel := context.WithCancel(ctx)
	cancel()
	r, err := d.Continue(cancelled, "run", json.RawMessage(`{}`))
	if err != nil || r.TerminalKind != event.KindRunCancelled {
		t.Errorf("a run that was cancelled before it began: %+v, %v", r, err)
	}
}

// TestResumeRefusesRunsOfANewerProgram: whoever is asked to go on with the run, or to end it,
// says why not, and records nothing.
func TestResumeRefusesRunsOfANewerProgram(t *testing.T) {
	ctx := context.Background()
	for name, goOn := range map[string]func(log eventlog.EventLog) error{
		"resume an agent": func(log eventlog.EventLog) error {
			a := newAgent(eventful(), clocked)
			a.Log = log
			_, err := a.Resume(ctx, "newer", "")
			return err
		},
		"continue an agent": func(log eventlog.EventLog) error {
			a := newAgent(eventful(), clocked)
			a.Log = log
			_, err := a.Continue(ctx, "newer")
			return err
		},
		"continue a direct run": func(log eventlog.EventLog) error {
			_, err := agent.Direct{Log: log, Tool: native(asking)}.Continue(ctx, "newer", json.RawMessage(`{}`))
			return err
		},
		"abandon": func(log eventlog.EventLog) error { return agent.Abandon(ctx, log, "newer", "nobody goes on with it") },
	} {
		log := store.Memory()
		c := logtest.Chain{RunID: "newer"}
		first := c.Next(event.RunStarted{SchemaVersion: event.SchemaVersion + 1, ToolSchemas: []event.ToolSchemaRef{}})
		if err := log.Append(ctx, "newer", first); err != nil {
			t.Fatal(err)
		}
		err := goOn(log)
		if !errors.Is(err, agent.ErrSchemaVersionMismatch) || !errors.Is(err, eventlog.ErrSchemaTooNew) || errors.Is(err, eventlog.ErrLogCorrupt) {
			t.Errorf("%s: %v", name, err)
		}
		if events, err := log.Read(ctx, "newer"); err != nil || len(events) != 1 {
			t.Errorf("%s: %d events, %v", name, len(events), err)
		}
	}
}

// TestAbandonedRuns abandons runs behind each of their events. What is left is a
// valid log that replays, and nobody goes on with it.
func TestAbandonedRuns(t *testing.T) {
	ctx := context.Background()
	a := newAgent(eventful(), clocked, failing)
	r, err := a.Run(ctx, "go")
	if err != nil {
		t.Fatal(err)
	}
	whole := eventsOf(t, a, r.RunID, false)
	d := agent.Direct{Log: store.Memory(), Tool: raw("shop", world{}.shop)}
	if _, err := d.RunWithID(ctx, "run", json.RawMessage(`{"Item":"tea"}`)); err != nil {
		t.Fatal(err)
	}
	called, err := d.Log.Read(ctx, "run")
	if err != nil {
		t.Fatal(err)
	}
	for _, reason := range []string{"the tool is gone", ""} {
		for n := 1; n < len(whole); n++ {
			again := *a
			again.Log = abandonedBehind(t, whole[:n], reason)
			mustReplay(t, &again, nil, eventsOf(t, &again, r.RunID, false))
			if _, err := again.Continue(ctx, r.RunID); !errors.Is(err, agent.ErrRunAlreadyTerminal) {
				t.Errorf("an abandoned run is continued: %v", err)
			}
		}
		for n := 1; n < len(called); n++ {
			log := abandonedBehind(t, called[:n], reason)
			events, err := log.Read(ctx, "run")
			if err != nil {
				t.Fatal(err)
			}
			got, err := d.Replay(ctx, events, agent.ReplayOptions{})
			if err != nil || got.Events != uint64(len(events)) {
				t.Errorf("behind %s: %+v, %v", kinds(called[:n]), got, err)
			}
		}
	}
}

// abandonedBehind returns a log with a run that was abandoned where a process left
// it.
func abandonedBehind(t *testing.T, left []event.Event, reason string) eventlog.EventLog {
	t.Helper()
	log := cut(t, left, len(left))
	runID := left[0].RunID
	if err := agent.Abandon(context.Background(), log, runID, reason); err != nil {
		t.Fatal(err)
	}
	events, err := log.Read(context.Background(), runID)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := eventlog.Check(events, eventlog.CheckOptions{Strict: true}); err != nil {
		t.Fatalf("%v\n%s", err, kinds(events))
	}
	want := event.KindRunFailed
	if reason == "" {
		want = event.KindRunCancelled
	}
	if last := events[len(events)-1].Kind; last != want {
		t.Errorf("the run ended with %s", last)
	}
	return log
}
