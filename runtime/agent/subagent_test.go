package agent_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/runtime/agent"
	"github.com/starling-host/starling/runtime/agenttest"
	"github.com/starling-host/starling/runtime/tool"
)

// TestAnAgentIsATool has an agent ask another one, which sees the variables of the
// outer run. Both runs replay, the outer one without the inner agent's model.
func TestAnAgentIsATool(t *testing.T) {
	var tenants []string
	whoami := tool.Typed("whoami", "", func(ctx context.Context, _ struct{}) (string, error) {
		tenants = append(tenants, tool.GetVariableOr(ctx, "tenant", "nobody"))
		return tool.GetVariableOr(ctx, "tenant", "nobody"), nil
	})
	inner := newAgent([]agenttest.Turn{agenttest.Call("i1", "whoami", `{}`), agenttest.Say("You are acme.")}, whoami)
	outer := newAgent([]agenttest.Turn{agenttest.Call("c1", "ask", `{"goal":"Who am I?"}`), told("c1", `"You are acme."`)}, agent.AsTool(inner, "ask", "Asks."))
	outer.Log = inner.Log
	ctx, err := tool.WithVariables(context.Background(), map[string]any{"tenant": "acme"})
	if err != nil {
		t.Fatal(err)
	}
	r, err := outer.Run(ctx, "go")
	if err != nil {
		t.Fatal(err)
	}
	events := eventsOf(t, outer, r.RunID, false)
	mustReplay(t, outer, r, events)
	runs, err := inner.Log.ListRuns(context.Background())
	if err != nil || len(runs) != 2 {
		t.Fatalf("%d runs, %v", len(runs), err)
	}
	for _, run := range runs {
		if run.RunID != r.RunID {
			mustReplay(t, inner, nil, eventsOf(t, inner, run.RunID, false))
		}
	}
	if got := fmt.Sprint(tenants); got != "[acme acme acme]" { // live, and in both replays of the inner run
		t.Errorf("the tool saw %s", got)
	}
}

// TestAnInnerRunThatFails tells the outer model why.
func TestAnInnerRunThatFails(t *testing.T) {
	inner := newAgent([]agenttest.Turn{agenttest.Call("i1", "failing", `{}`), agenttest.Say("never")}, failing)
	inner.Config.MaxTurns = 1
	outer := newAgent([]agenttest.Turn{agenttest.Call("c1", "ask", `{"goal":"x"}`), agenttest.Call("c2", "ask", `{"gaol":"x"}`), agenttest.Say("I see")}, agent.AsTool(inner, "ask", "Asks."))
	r, err := outer.Run(context.Background(), "go")
	if err != nil {
		t.Fatal(err)
	}
	events := eventsOf(t, outer, r.RunID, false)
	failures := 0
	for _, ev := range events {
		if _, err := ev.AsToolCallFailed(); err == nil {
			failures++
		}
	}
	if failures != 2 {
		t.Errorf("%d calls failed", failures)
	}
	mustReplay(t, outer, r, events)
}

// TestANativeToolHasATime ends a tool that takes too long, and records how long was
// waited before another attempt.
func TestANativeToolHasATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := tool.Typed("slow", "", func(ctx context.Context, _ struct{}) (int, error) {
			<-ctx.Done()
			return 0, ctx.Err()
		})
		flaky := tool.Typed("flaky", "", func(context.Context, struct{}) (int, error) { return 0, tool.ErrTransient })
		a := newAgent([]agenttest.Turn{agenttest.Calls(agenttest.Use{CallID: "c1", Tool: "slow", Args: `{}`}, agenttest.Use{CallID: "c2", Tool: "flaky", Args: `{}`}), agenttest.Say("I see")}, slow, flaky)
		a.Config.Retries = map[string]tool.RetryConfig{"flaky": {MaxAttempts: 2, Jitter: 0.5}}
		began := time.Now()
		r, err := a.Run(context.Background(), "go")
		if err != nil || time.Since(began) != 5*time.Minute {
			t.Fatalf("%v after %s", err, time.Since(began))
		}
		events := eventsOf(t, a, r.RunID, false)
		for _, ev := range events {
			failed, err := ev.AsToolCallFailed()
			if err == nil && failed.CallID == "c1" && failed.ErrorType != event.ErrorTimeout {
				t.Errorf("the slow one: %+v", failed)
			}
			if err == nil && failed.CallID == "c2" && failed.Attempt == 1 && (failed.WaitMs < 500 || failed.WaitMs > 1500) {
				t.Errorf("the flaky one: %+v", failed)
			}
		}
		began = time.Now()
		mustReplay(t, a, r, events)
		if time.Since(began) != 0 {
			t.Errorf("the replays took %s", time.Since(began))
		}
	})
}
