package agenttest_test

import (
	"context"
	"errors"
	"flag"
	"io"
	"testing"

	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/eventlog/store"
	"github.com/starling-host/starling/runtime/agent"
	"github.com/starling-host/starling/runtime/agenttest"
	"github.com/starling-host/starling/runtime/provider"
	"github.com/starling-host/starling/runtime/step"
	"github.com/starling-host/starling/runtime/tool"
)

var update = flag.Bool("update", false, "record the fixture again")

// testAgent returns the agent under test, which a program would build for production as well.
func testAgent(model provider.Provider) *agent.Agent {
	lookup := tool.Typed("lookup", "Looks a customer up.", func(ctx context.Context, in struct {
		ID int `json:"id"`
	}) (map[string]any, error) {
		plan, err := step.SideEffect(ctx, "customer", func() (string, error) { return "gold", nil }) // would ask a server
		return map[string]any{"id": in.ID, "plan": plan, "at": step.Now(ctx).Unix()}, err
	})
	return &agent.Agent{
		Provider: model, Tools: []tool.Tool{lookup}, Log: store.Memory(),
		Config: agent.Config{Model: "scripted-1", SystemPrompt: "You help customers.", MaxTurns: 5},
	}
}

const fixture = "testdata/lookup.ndjson"

// TestFixture holds the agent to a run that was recorded once. It fails when the
// prompt, a tool's schema or what it returns, or the order of effects changes; it
// asks no model and no server.
func TestFixture(t *testing.T) {
	if *update {
		a := testAgent(agenttest.ScriptedProvider{Turns: []agenttest.Turn{
			agenttest.Call("c1", "lookup", `{ "id": 42 }`), agenttest.Say("Customer 42 is on the gold plan."),
		}})
		r, err := a.Run(t.Context(), "Which plan is customer 42 on?")
		if err != nil {
			t.Fatal(err)
		}
		agenttest.SaveFixture(t, fixture, a.Log, r.RunID)
	}
	log, runID := agenttest.Fixture(t, fixture)
	agenttest.AssertReplayMatches(t, log, runID, testAgent(agenttest.ScriptedProvider{}))

	edited := testAgent(agenttest.ScriptedProvider{})
	edited.Config.SystemPrompt = "You are rude to customers."
	if d := agenttest.AssertReplayDiverges(t, log, runID, edited); d != nil && (d.Seq != 1 || d.Field != "system_prompt") {
		t.Errorf("an edited prompt: %v", d)
	}
}

// quiet is a testing.TB that remembers that it failed.
type quiet struct {
	testing.TB
	failed bool
}

func (q *quiet) Helper()               {}
func (q *quiet) Errorf(string, ...any) { q.failed = true }

func TestAssertionsFail(t *testing.T) {
	log, runID := agenttest.Fixture(t, fixture)
	edited := testAgent(agenttest.ScriptedProvider{})
	edited.Config.MaxTurns = 6
	q := &quiet{TB: t}
	if agenttest.AssertReplayMatches(q, log, runID, edited); !q.failed {
		t.Error("another agent matches")
	}
	q = &quiet{TB: t}
	if d := agenttest.AssertReplayDiverges(q, log, runID, testAgent(agenttest.ScriptedProvider{})); !q.failed || d != nil {
		t.Error("the same agent diverges")
	}
}

func TestAppendRunStarted(t *testing.T) {
	log := store.Memory()
	first := agenttest.AppendRunStarted(t, log, "run", event.RunStarted{Goal: "go"})
	hash := first.Hash()
	payload, err := event.EncodePayload(event.UserMessageAppended{Content: "and on"})
	if err != nil {
		t.Fatal(err)
	}
	next := event.Event{RunID: "run", Seq: 2, PrevHash: hash[:], Timestamp: 2, Kind: event.KindUserMessageAppended, Payload: payload}
	if err := log.Append(t.Context(), "run", next); err != nil {
		t.Error(err)
	}
}

func TestScriptedProvider(t *testing.T) {
	broken := errors.New("broken")
	p := agenttest.ScriptedProvider{Turns: []agenttest.Turn{{Refuse: broken}, {Chunks: []provider.StreamChunk{agenttest.Tokens(1, 2)}, Breaks: broken}}}
	if _, err := p.Stream(t.Context(), &provider.Request{}); err != broken {
		t.Errorf("a refusal: %v", err)
	}
	second := &provider.Request{Messages: []provider.Message{{Role: provider.RoleAssistant}}}
	s, err := p.Stream(t.Context(), second)
	if err != nil {
		t.Fatal(err)
	}
	if chunk, err := s.Next(t.Context()); err != nil || chunk.Usage.OutputTokens != 2 {
		t.Errorf("%+v, %v", chunk, err)
	}
	if _, err := s.Next(t.Context()); err != broken {
		t.Errorf("a break: %v", err)
	}
	second.Messages = append(second.Messages, second.Messages...)
	if _, err := p.Stream(t.Context(), second); err == nil {
		t.Error("the script goes on behind its end")
	}
	ended := agenttest.NewStream()
	if _, err := ended.Next(t.Context()); err != io.EOF {
		t.Errorf("an empty stream: %v", err)
	}
}
