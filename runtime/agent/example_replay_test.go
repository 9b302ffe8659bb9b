package agent_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/eventlog/store"
	"github.com/starling-host/starling/runtime/agent"
	"github.com/starling-host/starling/runtime/step"
	"github.com/starling-host/starling/runtime/tool"
)

// weather is a native tool that asks somebody.
type weather struct{ ask func() (string, error) }

func (weather) Name() string            { return "weather" }
func (weather) Description() string     { return "The weather in a city." }
func (weather) Schema() json.RawMessage { return json.RawMessage(`{"type":"object"}`) }

func (w weather) Execute(ctx context.Context, _ json.RawMessage) (json.RawMessage, error) {
	sky, err := step.SideEffect(ctx, "sky", w.ask)
	if err != nil {
		return nil, err
	}
	return json.Marshal(map[string]any{"sky": sky})
}

// A run is recorded once and made again without the world.
func ExampleReplay() {
	ctx := context.Background()
	log := store.Memory()
	online := weather{ask: func() (string, error) { return "clear", nil }}
	result, err := agent.Direct{Log: log, Tool: online}.Run(ctx, json.RawMessage(`{"city":"Oslo"}`))
	if err != nil {
		panic(err)
	}
	fmt.Printf("%s %s\n", result.TerminalKind, result.Output)

	events, err := log.Read(ctx, result.RunID)
	if err != nil {
		panic(err)
	}
	offline := weather{ask: func() (string, error) { panic("a replay asks nobody") }}
	verdict, err := agent.Replay(ctx, events, func(context.Context, event.ToolSchemaRef) (tool.Tool, error) { return offline, nil }, agent.ReplayOptions{})
	if err != nil {
		panic(err)
	}
	fmt.Printf("%d events, identical: %t\n", verdict.Events, verdict.Identical())
	// Output:
	// RunCompleted {"sky":"clear"}
	// 5 events, identical: true
}

// forecast has weather's description, and does something else.
type forecast struct{ weather }

func (forecast) Execute(ctx context.Context, _ json.RawMessage) (json.RawMessage, error) {
	step.Now(ctx)
	return json.RawMessage(`{"sky":"clear"}`), nil
}

// The first difference is a typed error that says where it is.
func ExampleDivergence() {
	ctx := context.Background()
	log := store.Memory()
	recorded := weather{ask: func() (string, error) { return "clear", nil }}
	result, err := agent.Direct{Log: log, Tool: recorded}.Run(ctx, json.RawMessage(`{}`))
	if err != nil {
		panic(err)
	}
	events, err := log.Read(ctx, result.RunID)
	if err != nil {
		panic(err)
	}
	verdict, err := agent.Replay(ctx, events, func(context.Context, event.ToolSchemaRef) (tool.Tool, error) { return forecast{recorded}, nil }, agent.ReplayOptions{})
	if err != nil {
		panic(err)
	}
	if d := verdict.Divergence; d != nil {
		err = d
	}
	var mismatch *step.MismatchError
	if errors.As(err, &mismatch) {
		fmt.Printf("event %d, %s: %s is %q, not %q\n", mismatch.Seq, mismatch.Class, mismatch.Field, mismatch.Got, mismatch.Expected)
	}
	fmt.Println(errors.Is(err, agent.ErrNonDeterminism))
	// Output:
	// event 3, payload: name is "now", not "sky"
	// true
}
