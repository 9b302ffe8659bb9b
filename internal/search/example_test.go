package search_test

import (
	"context"
	"fmt"
	"time"

	"github.com/starling-host/starling/eventlog/logtest"
	"github.com/starling-host/starling/eventlog/store"
	"github.com/starling-host/starling/internal/search"
)

func Example() {
	ctx, log := context.Background(), store.Memory()
	for _, e := range logtest.Finished("run-1", 1) {
		if err := log.Append(ctx, e.RunID, e); err != nil {
			panic(err)
		}
	}
	q, err := search.Parse("state:completed run-", time.Now())
	if err != nil {
		panic(err)
	}
	found, err := search.Find(ctx, log, q, search.Options{})
	fmt.Println(found.Total, found.Runs[0].RunID, err)
	_, err = search.Parse("run- status:broken", time.Now())
	fmt.Println(err)
	// Output:
	// 1 run-1 <nil>
	// search, character 6: "broken" is not the status of a response
}
