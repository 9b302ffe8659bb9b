package agenttest_test

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/starling-host/starling/eventlog/store"
	"github.com/starling-host/starling/runtime/agent"
	"github.com/starling-host/starling/runtime/agenttest"
	"github.com/starling-host/starling/runtime/tool"
)

// An agent is tested with what its model is to say.
func ExampleScriptedProvider() {
	double := tool.Typed("double", "Doubles a number.", func(_ context.Context, in struct{ N int }) (int, error) { return 2 * in.N, nil })
	model := agenttest.ScriptedProvider{Turns: []agenttest.Turn{agenttest.Call("c1", "double", `{"N":21}`), agenttest.Say("It is 42.")}}
	a := agent.Agent{Provider: model, Tools: []tool.Tool{double}, Log: store.Memory(), Config: agent.Config{Model: "scripted"}}
	result, err := a.Run(context.Background(), "Double 21.")
	if err != nil {
		fmt.Println(err)
		return
	}
	doc, err := json.Marshal(result.FinalText)
	fmt.Println(string(doc), result.ToolCallCount, "call", err)
	// Output: "It is 42." 1 call <nil>
}
