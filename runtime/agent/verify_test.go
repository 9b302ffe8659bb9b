package agent_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/starling-host/starling/eventlog/store"
	"github.com/starling-host/starling/runtime/agent"
	"github.com/starling-host/starling/runtime/agenttest"
)

// greeter is an agent without tools, and a run of it.
func greeter() (*agent.Agent, *agent.Result) {
	a := &agent.Agent{
		Provider: agenttest.ScriptedProvider{Turns: []agenttest.Turn{agenttest.Say("Hello.")}},
		Log:      store.Memory(), Config: agent.Config{Model: "scripted-1", SystemPrompt: "Be polite."},
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
	err := agent.Verify(context.Background(), a.Log, r.RunID, a)
	var d *agent.Divergence
	if errors.As(err, &d) {
		fmt.Println(d.Seq, d.Kind, d.Class, d.Field)
	}
	// Output: 1 RunStarted payload system_prompt
}

// A replay can be watched, event by event.
func ExampleReplayStream() {
	a, r := greeter()
	steps, err := agent.ReplayStream(context.Background(), func(context.Context) (*agent.Agent, error) { return a, nil }, a.Log, r.RunID)
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
	steps, err := agent.ReplayStream(context.Background(), func(context.Context) (*agent.Agent, error) { return &changed, nil }, a.Log, r.RunID)
	if err != nil {
		t.Fatal(err)
	}
	var last agent.ReplayStep
	n := 0
	for last = range steps {
		n++
	}
	var d *agent.Divergence
	if n != 1 || !last.Diverged || !errors.As(last.Err, &d) || d.Seq != 1 {
		t.Errorf("%d steps, the last %+v", n, last)
	}
}

func TestAgentVerifyErrors(t *testing.T) {
	a, r := greeter()
	if err := agent.Verify(context.Background(), a.Log, "nobody", a); !errors.Is(err, agent.ErrRunNotFound) {
		t.Errorf("a run that is not there: %v", err)
	}
	broken := errors.New("broken")
	if _, err := agent.ReplayStream(context.Background(), func(context.Context) (*agent.Agent, error) { return nil, broken }, a.Log, r.RunID); !errors.Is(err, broken) {
		t.Errorf("a factory that fails: %v", err)
	}
	other := *a
	other.Config.Model = "another"
	err := agent.Verify(context.Background(), a.Log, r.RunID, &other)
	if !errors.Is(err, agent.ErrProviderModelMismatch) || errors.Is(err, agent.ErrNonDeterminism) {
		t.Errorf("another model: %v", err)
	}
}
