package step_test

import (
	"context"
	"fmt"

	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/eventlog/store"
	"github.com/starling-host/starling/runtime/step"
)

// What a run learns from outside goes through the log first: a replay reads it there.
func ExampleSideEffect() {
	log := store.Memory()
	run, err := step.NewContext(step.Config{Log: log, RunID: "run"})
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx := step.WithContext(context.Background(), run)
	if err := step.Emit(ctx, run, event.KindRunStarted, event.RunStarted{SchemaVersion: event.SchemaVersion, Goal: "weather", ToolSchemas: []event.ToolSchemaRef{}}); err != nil {
		fmt.Println(err)
		return
	}
	degrees, err := step.SideEffect(ctx, "thermometer", func() (int, error) { return 21, nil })
	if err != nil {
		fmt.Println(err)
		return
	}
	recorded, err := log.Read(ctx, "run")
	if err != nil {
		fmt.Println(err)
		return
	}
	line, err := event.Describe(recorded[1])
	fmt.Println(degrees, line, err)
	// Output: 21 thermometer = 21 <nil>
}
