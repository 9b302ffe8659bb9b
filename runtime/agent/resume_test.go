package agent_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/eventlog/store"
	"github.com/starling-host/starling/runtime/agent"
	"github.com/starling-host/starling/runtime/agenttest"
	"github.com/starling-host/starling/runtime/provider"
	"github.com/starling-host/starling/runtime/step"
)

// cut returns a log that holds the first n events of a run: what a process left
// that died there.
func cut(t failer, events []event.Event, n int) eventlog.EventLog {
	t.Helper()
	log := store.Memory()
	for _, ev := range events[:n] {
		if err := log.Append(context.Background(), ev.RunID, ev); err != nil {
			t.Fatal(err)
		}
	}
	return log
}

// eventful is a run with parallel calls, failures, reasoning and retries.
func eventful() []agenttest.Turn {
	return []agenttest.Turn{
		agenttest.Calls(
			agenttest.Use{CallID: "c1", Tool: "clocked", Args: `{"city":"Oslo"}`}, agenttest.Use{CallID: "c2", Tool: "failing", Args: `{}`},
			agenttest.Use{CallID: "c3", Tool: "clocked", Args: `{"city":"Rome"}`}, agenttest.Use{CallID: "c4", Tool: "nobody", Args: `{`}),
		thoughtfulCall(),
		agenttest.Say("done"), agenttest.Say("done"), // the second for what is said after the first
	}
}

func thoughtfulCall() agenttest.Turn {
	turn := agenttest.Call("c1", "clocked", `{"city":"Bern"}`)
	turn.Chunks = append([]provider.StreamChunk{{Kind: provider.ChunkReasoning, Text: "hm", Signature: []byte{1}}}, turn.Chunks...)
	return turn
}

// TestResumeAtEveryBoundary kills a run behind each of its events, resumes it, kills
// it again behind each event of that, and resumes it again. Whatever is left is a
// valid log, ends with the answer, and replays.
func TestResumeAtEveryBoundary(t *testing.T) {
	a := newAgent(eventful(), clocked, failing)
	r, err := a.Run(context.Background(), "go")
	if err != nil {
		t.Fatal(err)
	}
	events := eventsOf(t, a, r.RunID, false)
	for n := 1; n < len(events); n++ {
		first := resumed(t, a, events, n, "")
		step := 1
		if testing.Short() {
			step = 5
		}
		for m := n + 1; m < len(first); m += step {
			resumed(t, a, first, m, "and then?")
		}
	}
}

// resumed resumes a run that was cut off behind n events, and returns all of it.
func resumed(t *testing.T, a *agent.Agent, events []event.Event, n int, message string) []event.Event {
	t.Helper()
	again := *a
	again.Log = cut(t, events, n)
	r, err := again.Resume(context.Background(), events[0].RunID, message)
	if err != nil || r.FinalText != "done" {
		t.Fatalf("cut behind %d events (%s): %+v, %v", n, kinds(events[:n]), r, err)
	}
	all := eventsOf(t, &again, r.RunID, false)
	if all[n].Kind != event.KindRunResumed {
		t.Errorf("the seam is %s", all[n].Kind)
	}
	turns, calls, in, out, usd, _ := eventlog.AggregateRun(all)
	if r.TurnCount != turns || r.ToolCallCount != calls || r.InputTokens != in || r.OutputTokens != out || r.TotalCostUSD != usd {
		t.Errorf("the result says %+v, the log %d turns, %d calls, %d and %d tokens, %g dollars", r, turns, calls, in, out, usd)
	}
	mustReplay(t, &again, r, all)
	return all
}

// TestResumedCallsHaveTheirKeys: an effect of a call that is made again has the
// idempotency key that it had before the crash.
func TestResumedCallsHaveTheirKeys(t *testing.T) {
	var mu sync.Mutex
	var keys []string
	pay := raw("pay", func(ctx context.Context, _ json.RawMessage) (json.RawMessage, error) {
		_, err := step.Do(ctx, step.Effect{Name: "pay", Unsafe: true}, func(_ context.Context, key string) (int, error) {
			mu.Lock()
			defer mu.Unlock()
			keys = append(keys, key)
			return 1, nil
		})
		return nil, err
	})
	a := newAgent([]agenttest.Turn{agenttest.Call("c1", "pay", `{}`), agenttest.Say("done")}, pay)
	r, err := a.Run(context.Background(), "go")
	if err != nil {
		t.Fatal(err)
	}
	events := eventsOf(t, a, r.RunID, false)
	intent := 4 // the call is scheduled, the intent recorded, the payment made, and its outcome lost
	for range 2 {
		events = resumed(t, a, events, intent+1, "")
		intent = len(events) - 6
	}
	if len(keys) != 3 || keys[0] != keys[1] || keys[1] != keys[2] {
		t.Errorf("the keys are %q", keys)
	}
}

func TestAgentResumeErrors(t *testing.T) {
	a := newAgent(eventful(), clocked, failing)
	r, err := a.Run(context.Background(), "go")
	if err != nil {
		t.Fatal(err)
	}
	events := eventsOf(t, a, r.RunID, false)
	half := len(events) / 2
	for events[half-1].Kind != event.KindToolCallScheduled {
		half--
	}
	direct, err := agent.Direct{Log: store.Memory(), Tool: failing}.Run(context.Background(), []byte(`{}`))
	if err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name  string
		log   eventlog.EventLog
		runID string
		alter func(*agent.Agent)
		opts  []agent.ResumeOption
		want  error
	}{
		{"no such run", store.Memory(), "nobody", nil, nil, agent.ErrRunNotFound},
		{"a run that has ended", a.Log, r.RunID, nil, nil, agent.ErrRunAlreadyTerminal},
		{"calls that are not to be repeated", cut(t, events, half), r.RunID, nil, []agent.ResumeOption{agent.WithReissueTools(false)}, agent.ErrPartialToolCall},
		{"another prompt", cut(t, events, half), r.RunID, func(a *agent.Agent) { a.Config.SystemPrompt = "?" }, nil, agent.ErrAgentChanged},
		{"another tool", cut(t, events, half), r.RunID, func(a *agent.Agent) { a.Tools = a.Tools[:1] }, nil, agent.ErrAgentChanged},
		{"a direct call", direct1(t, direct.RunID), direct.RunID, nil, nil, agent.ErrNoModel},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			again := *a
			again.Log = tt.log
			if tt.alter != nil {
				tt.alter(&again)
			}
			before, _ := tt.log.Read(context.Background(), tt.runID)
			result, err := again.ResumeWith(context.Background(), tt.runID, "", tt.opts...)
			if result != nil || !errors.Is(err, tt.want) {
				t.Errorf("%+v, %v", result, err)
			}
			if after, _ := tt.log.Read(context.Background(), tt.runID); len(after) != len(before) {
				t.Error("something was recorded")
			}
		})
	}
}

// direct1 is a log with the beginning of a direct run.
func direct1(t *testing.T, runID string) eventlog.EventLog {
	log := store.Memory()
	agenttest.AppendRunStarted(t, log, runID, event.RunStarted{Goal: "failing"})
	return log
}

// TestAMessageWaitsForTheOutcomes: what the user says at the seam comes after the
// outcomes of the calls that are made again.
func TestAMessageWaitsForTheOutcomes(t *testing.T) {
	last := agenttest.Say("done")
	last.Expects = func(req *provider.Request) error {
		var roles []string
		for _, m := range req.Messages {
			roles = append(roles, m.Role)
		}
		if got := strings.Join(roles, " "); got != "user assistant tool user" {
			return fmt.Errorf("the model sees %s", got)
		}
		return nil
	}
	a := newAgent([]agenttest.Turn{agenttest.Call("c1", "failing", `{}`), agenttest.Say("done")}, failing)
	r, err := a.Run(context.Background(), "go")
	if err != nil {
		t.Fatal(err)
	}
	a.Provider = agenttest.ScriptedProvider{Turns: []agenttest.Turn{{}, last}}
	resumed(t, a, eventsOf(t, a, r.RunID, false), 4, "and then?")
}

// TestManyProcessesOnOneRun: of several that resume the same run at the same time
// one brings it to its end, and the others are told.
func TestManyProcessesOnOneRun(t *testing.T) {
	a := newAgent(eventful(), clocked, failing)
	r, err := a.Run(context.Background(), "go")
	if err != nil {
		t.Fatal(err)
	}
	events := eventsOf(t, a, r.RunID, false)
	for n := 1; n < len(events); n++ {
		again := *a
		again.Log = cut(t, events, n)
		errs := make(chan error, 4)
		for range cap(errs) {
			go func() {
				_, err := again.Resume(context.Background(), r.RunID, "")
				errs <- err
			}()
		}
		won := 0
		for range cap(errs) {
			switch err := <-errs; {
			case err == nil:
				won++
			case !errors.Is(err, agent.ErrRunInUse) && !errors.Is(err, agent.ErrRunAlreadyTerminal):
				t.Errorf("cut behind %d events: %v", n, err)
			}
		}
		if won != 1 {
			t.Errorf("cut behind %d events: %d processes ended the run", n, won)
		}
		mustReplay(t, &again, nil, eventsOf(t, &again, r.RunID, false))
	}
}

// forgetful is a log that loses an acknowledgement: what it was told is durable, and
// it says that it is not.
type forgetful struct {
	eventlog.EventLog
	barriers int // until it forgets
}

var errForgotten = errors.New("the acknowledgement is lost")

func (f *forgetful) Sync(ctx context.Context, runID string) error {
	err := f.EventLog.Sync(ctx, runID)
	if f.barriers--; f.barriers == 0 {
		return errForgotten
	}
	return err
}

// TestResumeAfterALostAcknowledgement: a run whose log loses an acknowledgement stays open, at
// whichever barrier it is, and is resumed.
func TestResumeAfterALostAcknowledgement(t *testing.T) {
	for n := 1; ; n++ {
		a := newAgent(eventful(), clocked, failing)
		a.Config.MaxParallelTools = 1
		inner := a.Log
		log := &forgetful{inner, n}
		a.Log = log
		r, err := a.Run(context.Background(), "go")
		if err == nil {
			if log.barriers <= 0 {
				t.Errorf("the run does not notice that barrier %d failed", n)
			}
			if n < 5 {
				t.Errorf("the run has only %d barriers", n-1)
			}
			return
		}
		if r != nil || !errors.Is(err, errForgotten) {
			t.Fatalf("barrier %d: %+v, %v", n, r, err)
		}
		runs, err := inner.ListRuns(context.Background())
		if err != nil || len(runs) != 1 {
			t.Fatalf("barrier %d: %d runs, %v", n, len(runs), err)
		}
		a.Log = inner
		if runs[0].TerminalKind == 0 {
			if _, err := a.Resume(context.Background(), runs[0].RunID, ""); err != nil {
				t.Errorf("barrier %d: %v", n, err)
			}
		}
		mustReplay(t, a, nil, eventsOf(t, a, runs[0].RunID, false))
	}
}

// TestAbandonIsDurable: Abandon reports that the end of the run may not be durable.
func TestAbandonIsDurable(t *testing.T) {
	a := newAgent(eventful(), clocked, failing)
	inner := a.Log
	a.Log = &forgetful{inner, 1} // so the run stays open
	if _, err := a.Run(context.Background(), "go"); !errors.Is(err, errForgotten) {
		t.Fatal(err)
	}
	runs, err := inner.ListRuns(context.Background())
	if err != nil || len(runs) != 1 {
		t.Fatalf("%d runs, %v", len(runs), err)
	}
	if err := agent.Abandon(context.Background(), &forgetful{inner, 1}, runs[0].RunID, "no host can run it"); !errors.Is(err, errForgotten) {
		t.Errorf("the end is reported as durable: %v", err)
	}
}
