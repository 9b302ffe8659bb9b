package mcptool_test

import (
	"context"
	"fmt"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/starling-host/starling/eventlog/store"
	"github.com/starling-host/starling/runtime/agent"
	"github.com/starling-host/starling/runtime/mcptool"
)

// A run is recorded with a server, and replayed where there is none.
func Example() {
	ctx := context.Background()
	near, far := mcp.NewInMemoryTransports()
	if _, err := newServer().Connect(ctx, far, nil); err != nil {
		panic(err)
	}
	client, err := mcptool.New(ctx, near, mcptool.Options{Include: []string{"weather"}})
	if err != nil {
		panic(err)
	}
	tools := client.Tools()
	log := store.Memory()
	live, err := agent.Direct{Log: log, Tool: tools[0]}.Run(ctx, []byte(`{"city":"Oslo"}`))
	if err != nil {
		panic(err)
	}
	fmt.Printf("live    %s\n", live.Output)

	_ = client.Close()

	known := mcptool.Definition{Name: "weather", Description: tools[0].Description(), Schema: tools[0].Schema()}
	tools, err = mcptool.Offline([]mcptool.Definition{known}, mcptool.Options{})
	if err != nil {
		panic(err)
	}
	recorded, _ := log.Read(ctx, live.RunID)
	again, err := agent.Direct{Tool: tools[0]}.Replay(ctx, recorded, agent.ReplayOptions{})
	if err != nil {
		panic(err)
	}
	fmt.Printf("replay  %s\n", again.Output)
	// Output:
	// live    {"content":[],"structuredContent":{"degrees":4}}
	// replay  {"content":[],"structuredContent":{"degrees":4}}
}
