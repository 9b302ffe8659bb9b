package store_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/logtest"
	"github.com/starling-host/starling/eventlog/store"
)

// A database is a file, or a server with the same address as for other programs. Its runs
// are read and checked in the same way.
func ExampleOpen() {
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	ctx := context.Background()
	db, err := store.Open(ctx, filepath.Join(dir, "starling.db"), store.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer db.Close()
	for _, e := range logtest.Finished("run-1", 1) {
		if err := db.Append(ctx, e.RunID, e); err != nil {
			fmt.Println(err)
			return
		}
	}
	report, err := eventlog.CheckRun(ctx, db, "run-1", eventlog.CheckOptions{Strict: true})
	fmt.Println(report.Events, "events,", report.Terminal, err)
	// Output: 5 events, RunCompleted <nil>
}
