package eventlog_test

import (
	"context"
	"fmt"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/eventlog/internal/memlog"
)

// An event is taken at once; the barrier comes before somebody may rely on it.
func Example() {
	ctx := context.Background()
	log := memlog.New()
	defer log.Close()

	payload, err := event.EncodePayload(event.RunStarted{
		SchemaVersion: event.SchemaVersion,
		Goal:          "greet",
		ToolSchemas:   []event.ToolSchemaRef{},
	})
	if err != nil {
		panic(err)
	}
	start := event.Event{RunID: "run-1", Seq: 1, Timestamp: 1_700_000_000_000_000_000, Kind: event.KindRunStarted, Payload: payload}
	if err := log.Append(ctx, "run-1", start); err != nil {
		panic(err)
	}
	if err := log.Sync(ctx, "run-1"); err != nil {
		panic(err)
	}

	report, err := eventlog.CheckRun(ctx, log, "run-1", eventlog.CheckOptions{Strict: true, AllowOpen: true})
	fmt.Println(report.Events, report.Open, err)

	err = log.Append(ctx, "run-1", start)
	fmt.Println(err)
	// Output:
	// 1 true <nil>
	// eventlog: invalid append: expected Seq=2, got 1
}
