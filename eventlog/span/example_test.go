package span_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/starling-host/starling/eventlog/span"
	"github.com/starling-host/starling/eventlog/store"
	"github.com/starling-host/starling/runtime/agent"
	"github.com/starling-host/starling/runtime/step"
	"github.com/starling-host/starling/runtime/tool"
)

func Example() {
	ctx, log := context.Background(), store.Memory()
	draw := tool.Typed("draw", "Draws a number.", func(ctx context.Context, _ struct{}) (bool, error) {
		step.Now(ctx)
		return step.Random(ctx) > 0, nil
	})
	if _, err := (agent.Direct{Log: log, Tool: draw}).RunWithID(ctx, "r", json.RawMessage(`{}`)); err != nil {
		panic(err)
	}
	var b span.Builder
	for ev, err := range log.Events(ctx, "r", 0) {
		if err == nil {
			err = b.Add(ev)
		}
		if err != nil {
			panic(err)
		}
	}
	for _, row := range b.Run().Rows(10, nil) {
		fmt.Printf("%s%s %s: %s\n", strings.Repeat("  ", row.Depth), row.Kind, row.Name, row.State)
	}
	// Output:
	// call draw: ok
	//   effect now: ok
	//   effect rand: ok
}
