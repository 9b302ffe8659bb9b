package script_test

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/starling-host/starling/runtime/internal/script"
	"github.com/starling-host/starling/runtime/provider"
)

func ExampleNew() {
	s, err := script.Parse("demo.yaml", []byte(`
- tool_calls: [{name: dice, args: {rolls: 2}}]
- text: You rolled.
`))
	if err != nil {
		fmt.Println(err)
		return
	}
	p, err := script.New(s)
	if err != nil {
		fmt.Println(err)
		return
	}
	stream, err := p.Stream(context.Background(), &provider.Request{Messages: []provider.Message{
		{Role: provider.RoleUser, Content: "Roll!"},
		{Role: provider.RoleAssistant, ToolUses: []provider.ToolUse{{CallID: "call_1_1", Name: "dice", Args: json.RawMessage(`{"rolls":2}`)}}},
		{Role: provider.RoleTool, ToolResult: &provider.ToolResult{CallID: "call_1_1", Content: `{"total":7}`}},
	}})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer stream.Close()
	for {
		chunk, err := stream.Next(context.Background())
		if err != nil {
			return
		}
		fmt.Printf("%v %q\n", chunk.Kind, chunk.Text+chunk.StopReason)
	}
	// Output:
	// text "You "
	// text "rolled."
	// usage ""
	// end "end_turn"
}
