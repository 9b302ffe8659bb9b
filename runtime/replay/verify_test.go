package replay_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/starling-host/starling/eventlog/memlog"
	"github.com/starling-host/starling/runtime/agent"
	"github.com/starling-host/starling/runtime/agenttest"
	"github.com/starling-host/starling/runtime/replay"
)

// greeter is an agent without tools, and a run of it.
func greeter() (*agent.Agent, *agent.RunResult) {
	a := &agent.Agent{
		Provider: agenttest.ScriptedProvider{Turns: []agenttest.Turn{agenttest.Say("Hello.")}},
		Log:      memlog.New(), Config: agent.Config{Model: "scripted-1", SystemPrompt: "Be polite."},
	}
	r, err := a.Run(context.Background(), "Greet me.")
	if err != nil {
		panic(err)
	}
	return a, r
}

// A prompt that was edited is found, with its place.
func ExampleVerify() {
	a, r := greeter()
	a.Config.SystemPrompt = "Be rude."
	err := replay.Verify(context.Background(), a.Log, r.RunID, a)
	var d *replay.Divergence
	if errors.As(err, &d) {
		fmt.Println(d.Seq, d.Kind, d.Class, d.Field)
	}
	// Output: 1 RunStarted payload system_prompt
}

// A replay can be watched, event by event.
func ExampleStream() {
	a, r := greeter()
	steps, err := replay.Stream(context.Background(), func(context.Context) (*agent.Agent, error) { return a, nil }, a.Log, r.RunID)
	if err != nil {
		panic(err)
	}
	for s := range steps {
		fmt.Println(s.Event.Seq, s.Event.Kind, s.Diverged)
	}
	// Output:
	// 1 RunStarted false
	// 2 TurnStarted false
	// 3 AssistantMessageCompleted false
	// 4 RunCompleted false
}

func TestStreamEndsWithTheDivergence(t *testing.T) {
	a, r := greeter()
	changed := *a
	changed.Config.MaxTurns = 3
	steps, err := replay.Stream(context.Background(), func(context.Context) (*agent.Agent, error) { return &changed, nil }, a.Log, r.RunID)
	if err != nil {
		t.Fatal(err)
	}
	var last replay.Step
	n := 0
	for last = range steps {
		n++
	}
	var d *replay.Divergence
	if n != 1 || !last.Diverged || !errors.As(last.Err, &d) || d.Seq != 1 {
		t.Errorf("%d steps, the last %+v", n, last)
	}
}

func TestWhatCannotBeVerified(t *testing.T) {
	a, r := greeter()
	if err := replay.Verify(context.Background(), a.Log, "nobody", a); !errors.Is(err, replay.ErrRunNotFound) {
		t.Errorf("a run that is not there: %v", err)
	}
	broken := errors.New("broken")
	if _, err := replay.Stream(context.Background(), func(context.Context) (*agent.Agent, error) { return nil, broken }, a.Log, r.RunID); !errors.Is(err, broken) {
		t.Errorf("a factory that fails: %v", err)
	}
	other := *a
	other.Config.Model = "another"
	err := replay.Verify(context.Background(), a.Log, r.RunID, &other)
	if !errors.Is(err, agent.ErrProviderModelMismatch) || errors.Is(err, replay.ErrNonDeterminism) {
		t.Errorf("another model: %v", err)
	}
}
