package queue_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/starling-host/starling/eventlog/store"
	"github.com/starling-host/starling/serve/queue"
)

// A job is stored before Enqueue returns, and a worker takes it.
func ExampleQueue_Work() {
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	db, err := store.OpenFile(ctx, filepath.Join(dir, "host.db"), store.FileOptions{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer db.Close()
	q, err := queue.Open(ctx, db, queue.Config{})
	if err != nil {
		fmt.Println(err)
		return
	}
	// A host also appends the first events of the run, in the same transaction.
	if err := q.Enqueue(ctx, queue.Job{RunID: "acme/1", Tenant: "acme", Payload: []byte("ticket 17")}, nil); err != nil {
		fmt.Println(err)
		return
	}
	err = q.Work(ctx, func(_ context.Context, l queue.Lease) error {
		fmt.Printf("%s of %s: %s\n", l.RunID, l.Tenant, l.Payload)
		stop()
		return nil
	})
	fmt.Println(err)
	// Output:
	// acme/1 of acme: ticket 17
	// <nil>
}
