package starling_test

import (
	"context"
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"github.com/starling-host/starling"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/eventlog/store"
	"github.com/starling-host/starling/host/policy"
	"github.com/starling-host/starling/runtime/agent"
	"github.com/starling-host/starling/runtime/agenttest"
	"github.com/starling-host/starling/runtime/tool"
)

// TestPolicyOfALoadedTool calls a tool that was loaded under a policy in every way that
// the library has: each call is under that policy, its module is in a database that was empty,
// and the run replays.
func TestPolicyOfALoadedTool(t *testing.T) {
	db := starling.Must(starling.Open(t.Context(), filepath.Join(t.TempDir(), "rules.db"), starling.Options{}))
	defer db.Close()
	rules := starling.Must(policy.Parse("p.yaml", []byte("version: \"1.0\"\npermissions:\n  tools:\n    dice:\n      arguments: {type: object, properties: {rolls: {type: integer, maximum: 3}}}\n")))
	dice, err := db.Load(t.Context(), filepath.Join("tools-wasm", "dice"), starling.ToolOptions{Policy: rules})
	if err != nil {
		t.Fatal(err)
	}
	log, err := db.Log(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	around := tool.Wrap(dice, func(inner func(context.Context, json.RawMessage) (json.RawMessage, error)) func(context.Context, json.RawMessage) (json.RawMessage, error) {
		return inner
	})
	run := func(given tool.Tool, rolls string) (outcome event.ToolCallFailed, completed bool) {
		t.Helper()
		a := &agent.Agent{Log: log, Tools: []tool.Tool{given}, Config: agent.Config{Model: "gpt-4o-mini"},
			Provider: agenttest.ScriptedProvider{Turns: []agenttest.Turn{agenttest.Call("c1", "dice", `{"rolls":`+rolls+`}`), agenttest.Say("done")}}}
		r, err := a.Run(t.Context(), "roll")
		if err != nil {
			t.Fatal(err)
		}
		events, err := log.Read(t.Context(), r.RunID)
		if err != nil {
			t.Fatal(err)
		}
		for _, ev := range events {
			if ev.Kind == event.KindToolCallFailed {
				if outcome, err = ev.AsToolCallFailed(); err != nil {
					t.Fatal(err)
				}
			}
			completed = completed || ev.Kind == event.KindToolCallCompleted
		}
		if given == dice {
			if v, err := db.Replay(t.Context(), r.RunID); err != nil || !v.Identical() {
				t.Errorf("replay: %v, %v", v, err)
			}
			if _, err := a.Replay(t.Context(), events, agent.ReplayOptions{}); err != nil {
				t.Errorf("the agent's own replay: %v", err)
			}
		}
		return outcome, completed
	}
	if failed, ok := run(dice, "2"); !ok {
		t.Errorf("an agent's call that the policy allows: %+v", failed)
	}
	if failed, ok := run(dice, "9"); ok || !strings.Contains(failed.Error, "policy") {
		t.Errorf("an agent's call that the policy does not allow: %+v, %v", failed, ok)
	}
	if failed, ok := run(around, "9"); ok || !strings.Contains(failed.Error, "has a policy") {
		t.Errorf("a tool around it: %+v, %v", failed, ok)
	}
	if r, err := (agent.Direct{Log: log, Tool: dice}).Run(t.Context(), json.RawMessage(`{"rolls":9}`)); err != nil || !strings.Contains(r.Error, "policy") {
		t.Errorf("a direct call: %+v, %v", r, err)
	}
	if _, err := dice.Execute(t.Context(), json.RawMessage(`{"rolls":9}`)); err == nil {
		t.Error("executed without its policy")
	}
	memory := store.Memory()
	if r, err := (agent.Direct{Log: memory, Tool: dice}).Run(t.Context(), json.RawMessage(`{"rolls":1}`)); err != nil || r.Error != "" {
		t.Errorf("in another log: %+v, %v", r, err)
	}
}

// TestReplayOfNativeTools: a Go function is not in the database, so its program supplies it,
// and a replay without it is an error.
func TestReplayOfNativeTools(t *testing.T) {
	db := starling.Must(starling.Open(t.Context(), filepath.Join(t.TempDir(), "native.db"), starling.Options{}))
	defer db.Close()
	log, err := db.Log(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	double := tool.Typed("double", "Doubles.", func(_ context.Context, in struct {
		N int `json:"n"`
	}) (int, error) {
		return 2 * in.N, nil
	})
	a := &agent.Agent{Log: log, Tools: []tool.Tool{double}, Config: agent.Config{Model: "gpt-4o-mini"},
		Provider: agenttest.ScriptedProvider{Turns: []agenttest.Turn{agenttest.Call("c1", "double", `{"n":21}`), agenttest.Say("42")}}}
	r, err := a.Run(t.Context(), "double it")
	if err != nil {
		t.Fatal(err)
	}
	if v, err := db.Replay(t.Context(), r.RunID); err == nil || !strings.Contains(err.Error(), `"double"`) {
		t.Errorf("without the tool: %v, %v", v, err)
	}
	if v, err := db.Replay(t.Context(), r.RunID, double); err != nil || !v.Identical() {
		t.Errorf("with the tool: %v, %v", v, err)
	}
}
