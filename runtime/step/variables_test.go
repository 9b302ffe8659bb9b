package step_test

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/eventlog/logtest"
	"github.com/starling-host/starling/eventlog/store"
	"github.com/starling-host/starling/runtime/step"
	"github.com/starling-host/starling/runtime/tool"
)

// tenant answers with all that it knows of its run.
func tenant() step.Config {
	return oneTool("tenant", func(ctx context.Context, _ json.RawMessage) (json.RawMessage, error) {
		run, _ := tool.GetRunContext(ctx)
		info, _ := step.CallInfo(ctx)
		return json.Marshal([]any{run.RunID, run.SessionID, tool.MustGetVariable[string](ctx, "tenant"), info.Variables})
	})
}

// recordWith makes a live run with variables.
func recordWith(t *testing.T, cfg step.Config, variables map[string]any, do body) []event.Event {
	t.Helper()
	log := store.Memory()
	cfg.Log, cfg.RunID = log, "run"
	ctx, err := tool.WithVariables(tool.WithSessionID(context.Background(), "session"), variables)
	if err == nil {
		ctx, err = tool.WithCaller(ctx, event.Caller{Subject: "ada"})
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := drive(ctx, step.MustNewContext(cfg), do); err != nil {
		t.Fatal(err)
	}
	events, err := log.Read(ctx, "run")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := eventlog.Check(events, eventlog.CheckOptions{Strict: true}); err != nil {
		t.Fatal(err)
	}
	return events
}

func TestVariablesAreRecordedAndReplayed(t *testing.T) {
	var got json.RawMessage
	do := func(ctx context.Context) (err error) {
		got, err = step.CallTool(ctx, step.ToolCall{TurnID: "t", Name: "tenant", Args: json.RawMessage(`{}`)})
		return err
	}
	const want = `["run","session","a",{"n":1,"tenant":"a"}]`
	events := recordWith(t, tenant(), map[string]any{"tenant": "a", "n": 1}, do)
	if string(got) != want {
		t.Errorf("live: %s", got)
	}
	if started, err := events[0].AsRunStarted(); err != nil || started.Caller == nil || started.Caller.Subject != "ada" {
		t.Errorf("the caller is %+v, %v", started.Caller, err)
	}
	got = nil
	mustReplay(t, events, tenant(), do) // in a context that has none
	if string(got) != want {
		t.Errorf("replayed: %s", got)
	}
}

func TestRunWithoutVariablesIsTheSeedRuntimes(t *testing.T) {
	events := recordRun(t, step.Config{}, func(context.Context) error { return nil })
	started, err := events[0].AsRunStarted()
	if err != nil || started.Variables != nil || started.SessionID != "" {
		t.Errorf("%+v, %v", started, err)
	}
	var fields map[string]any
	line, _ := event.ToJSON(events[0])
	if err := json.Unmarshal(line, &struct{ Payload *map[string]any }{&fields}); err != nil {
		t.Fatal(err)
	}
	if _, there := fields["variables"]; there || len(fields) == 0 {
		t.Errorf("recorded %v", fields)
	}
}

func TestOtherVariablesAreADifference(t *testing.T) {
	events := recordWith(t, tenant(), map[string]any{"tenant": "a"}, callOnce("tenant", `{}`))
	started, err := events[0].AsRunStarted()
	if err != nil {
		t.Fatal(err)
	}
	started.Variables = nil
	if events[0].Payload, err = event.EncodePayload(started); err != nil {
		t.Fatal(err)
	}
	mustDiffer(t, logtest.Relink(events), tenant(), callOnce("tenant", `{}`), 3, step.MismatchKind)
}

func TestRunWithinARunHasItsVariables(t *testing.T) {
	var inner json.RawMessage
	cfg := oneTool("delegate", func(ctx context.Context, _ json.RawMessage) (json.RawMessage, error) {
		child := tenant()
		child.Log, child.RunID = store.Memory(), "child"
		err := drive(ctx, step.MustNewContext(child), func(ctx context.Context) (err error) {
			inner, err = step.CallTool(ctx, step.ToolCall{TurnID: "t", Name: "tenant", Args: json.RawMessage(`{}`)})
			return err
		})
		return nil, err
	})
	recordWith(t, cfg, map[string]any{"tenant": "a"}, callOnce("delegate", `{}`))
	if want := `["child","session","a",{"tenant":"a"}]`; string(inner) != want {
		t.Errorf("got %s, want %s", inner, want)
	}
}
