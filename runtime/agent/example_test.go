package agent_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/eventlog/store"
	"github.com/starling-host/starling/runtime/agent"
	"github.com/starling-host/starling/runtime/agenttest"
	"github.com/starling-host/starling/runtime/step"
	"github.com/starling-host/starling/runtime/tool"
)

// clerk is an agent whose model follows a script. A real one has a provider of
// runtime/internal/anthropic, openai and so on in its place.
func clerk() *agent.Agent {
	stock := tool.Typed("stock", "How many are left.", func(ctx context.Context, in struct {
		Item string `json:"item"`
	}) (map[string]int, error) {
		left, err := step.SideEffect(ctx, "stock/"+in.Item, func() (int, error) { return 3, nil }) // asks the warehouse
		return map[string]int{"left": left}, err
	})
	return &agent.Agent{
		Provider: agenttest.ScriptedProvider{Turns: []agenttest.Turn{
			agenttest.Call("c1", "stock", `{"item": "kettle"}`), agenttest.Say("There are three kettles left."),
		}},
		Tools:  []tool.Tool{stock},
		Log:    store.Memory(),
		Config: agent.Config{Model: "scripted-1", SystemPrompt: "You are a clerk.", MaxTurns: 8},
	}
}

func ExampleAgent_Run() {
	a := clerk()
	r, err := a.Run(context.Background(), "How many kettles do we have?")
	if err != nil {
		panic(err)
	}
	fmt.Println(r.FinalText)
	fmt.Println(r.TurnCount, "turns,", r.ToolCallCount, "call,", r.TerminalKind)

	// Whoever has the log can make the run again, without model and warehouse.
	fmt.Println("replay:", agent.Verify(context.Background(), a.Log, r.RunID, a))
	// Output:
	// There are three kettles left.
	// 2 turns, 1 call, RunCompleted
	// replay: <nil>
}

func ExampleAgent_RunWithID() {
	a := clerk()
	id := event.NewID() // known before the run begins
	r, err := a.RunWithID(context.Background(), id, "How many kettles do we have?")
	fmt.Println(r.RunID == id, err)
	// Output: true <nil>
}

func ExampleAgent_RunStream() {
	_, events, err := clerk().RunStream(context.Background(), "How many kettles do we have?")
	if err != nil {
		panic(err)
	}
	for ev := range events {
		switch ev := ev.(type) {
		case agent.ToolCallStarted:
			fmt.Println("->", ev.Tool, string(ev.Args))
		case agent.ToolCallEnded:
			fmt.Println("<-", string(ev.Result))
		case agent.TextDelta:
			fmt.Println(ev.Text)
		case agent.Done:
			fmt.Println("done:", ev.Err)
		}
	}
	// Output:
	// -> stock {"item":"kettle"}
	// <- {"left":3}
	// There are three kettles left.
	// done: <nil>
}

func ExampleAgent_Stream() {
	_, events, err := clerk().Stream(context.Background(), "How many kettles do we have?")
	if err != nil {
		panic(err)
	}
	for ev := range events {
		fmt.Println(ev.Seq, ev.Kind)
	}
	// Output:
	// 1 RunStarted
	// 2 TurnStarted
	// 3 AssistantMessageCompleted
	// 4 ToolCallScheduled
	// 5 SideEffectRecorded
	// 6 ToolCallCompleted
	// 7 TurnStarted
	// 8 AssistantMessageCompleted
	// 9 RunCompleted
}

func ExampleAgent_Resume() {
	a := clerk()
	whole, err := a.Run(context.Background(), "How many kettles do we have?")
	if err != nil {
		panic(err)
	}
	events, _ := a.Log.Read(context.Background(), whole.RunID)

	// A process that died after the fourth event leaves this.
	crashed := store.Memory()
	for _, ev := range events[:4] {
		_ = crashed.Append(context.Background(), ev.RunID, ev)
	}
	a.Log = crashed
	r, err := a.Resume(context.Background(), whole.RunID, "")
	fmt.Println(r.FinalText, err)

	_, err = a.Resume(context.Background(), whole.RunID, "")
	fmt.Println(errors.Is(err, agent.ErrRunAlreadyTerminal))
	fmt.Println("replay:", agent.Verify(context.Background(), a.Log, whole.RunID, a))
	// Output:
	// There are three kettles left. <nil>
	// true
	// replay: <nil>
}
