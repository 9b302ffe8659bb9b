package agent_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/eventlog/store"
	"github.com/starling-host/starling/runtime/agent"
	"github.com/starling-host/starling/runtime/step"
)

type native func(ctx context.Context, input json.RawMessage) (json.RawMessage, error)

func (native) Name() string            { return "t" }
func (native) Description() string     { return "a tool for tests" }
func (native) Schema() json.RawMessage { return json.RawMessage(`{"type":"object"}`) }
func (n native) Execute(ctx context.Context, input json.RawMessage) (json.RawMessage, error) {
	return n(ctx, input)
}

// asking reads the clock and asks the world.
func asking(ctx context.Context, _ json.RawMessage) (json.RawMessage, error) {
	step.Now(ctx)
	answer, err := step.Do(ctx, step.Effect{Name: "ask", Request: []byte("four")}, func(context.Context, string) (string, error) { return "yes", nil })
	if err != nil {
		return nil, err
	}
	return json.Marshal(answer)
}

func TestResultSaysWhatTheLogSays(t *testing.T) {
	log := store.Memory()
	at := time.Unix(1_800_000_000, 0)
	d := agent.Direct{Log: log, Tool: native(asking), AppVersion: "app", ClockFn: func() time.Time { at = at.Add(time.Millisecond); return at }}
	got, err := d.RunWithID(context.Background(), "run", json.RawMessage(`{ "b": 1, "a": 2.0 }`))
	if err != nil {
		t.Fatal(err)
	}
	want := &agent.Result{
		RunID: "run", Output: json.RawMessage(`"yes"`), TerminalKind: event.KindRunCompleted,
		ToolCallCount: 1, Effects: 2, BytesIn: 9 + 4, BytesOut: 4, Events: 6, Duration: 11 * time.Millisecond, MerkleRoot: got.MerkleRoot,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	events, err := log.Read(context.Background(), "run")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := eventlog.Check(events, eventlog.CheckOptions{Strict: true}); err != nil {
		t.Error(err)
	}
	started, err := events[0].AsRunStarted()
	wantStarted := event.RunStarted{
		SchemaVersion: event.SchemaVersion, Goal: "t", AppVersion: "app", StarlingVersion: started.StarlingVersion,
		ToolSchemas: []event.ToolSchemaRef{agent.ToolRef(d.Tool)}, ToolRegistryHash: event.RegistryHash(started.ToolSchemas),
	}
	if diff := cmp.Diff(wantStarted, started, cmpopts.IgnoreFields(event.RunStarted{}, "Params")); diff != "" || err != nil {
		t.Error(diff, err)
	}
	call, err := events[1].AsToolCallScheduled()
	if err != nil || call.TurnID != agent.DirectTurn || call.Attempt != 1 || call.ToolName != "t" {
		t.Errorf("%+v, %v", call, err)
	}
	completed, err := events[5].AsRunCompleted()
	if err != nil || completed.FinalText != `"yes"` || completed.DurationMs != 11 || !bytes.Equal(completed.MerkleRoot, got.MerkleRoot) {
		t.Errorf("%+v, %v", completed, err)
	}
}

func TestFailureOfTheLogIsAnErrorOfTheHost(t *testing.T) {
	log := store.Memory()
	d := agent.Direct{Log: log, Tool: native(func(context.Context, json.RawMessage) (json.RawMessage, error) { return nil, log.Close() })}
	if result, err := d.Run(context.Background(), json.RawMessage(`{}`)); !errors.Is(err, eventlog.ErrLogClosed) || result != nil {
		t.Errorf("got %+v, %v", result, err)
	}
}

func TestInputThatIsNoArgumentsLeavesNoRun(t *testing.T) {
	log := store.Memory()
	d := agent.Direct{Log: log, Tool: native(asking)}
	if _, err := d.RunWithID(context.Background(), "run", json.RawMessage(`{`)); err == nil {
		t.Error("it was accepted")
	}
	if _, err := log.Read(context.Background(), "run"); !errors.Is(err, eventlog.ErrRunNotFound) {
		t.Errorf("the log has %v", err)
	}
}

// A direct run is one call of one tool, and everything that it did is in the log.
func ExampleDirect() {
	ctx := context.Background()
	log := store.Memory()
	result, err := agent.Direct{Log: log, Tool: native(asking)}.Run(ctx, json.RawMessage(`{"city":"Oslo"}`))
	if err != nil {
		panic(err)
	}
	fmt.Printf("%s after %d effects\n", result.Output, result.Effects)
	events, err := log.Read(ctx, result.RunID)
	if err != nil {
		panic(err)
	}
	for _, ev := range events {
		fmt.Println(ev.Seq, ev.Kind)
	}
	// Output:
	// "yes" after 2 effects
	// 1 RunStarted
	// 2 ToolCallScheduled
	// 3 SideEffectRecorded
	// 4 SideEffectRecorded
	// 5 ToolCallCompleted
	// 6 RunCompleted
}
