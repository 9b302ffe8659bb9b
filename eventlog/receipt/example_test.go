package receipt_test

import (
	"context"
	"fmt"

	"github.com/starling-host/starling/eventlog/logtest"
	"github.com/starling-host/starling/eventlog/receipt"
	"github.com/starling-host/starling/eventlog/seal"
)

// The call of a run gets a receipt, which a reader checks with the public key alone.
func Example() {
	events := logtest.Finished("run-1", 1)
	last := events[len(events)-1]
	leaf, err := seal.LeafOf(last, last.Hash())
	if err != nil {
		fmt.Println(err)
		return
	}
	statements, err := receipt.Of(events, leaf, receipt.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	key, err := seal.NewKey("example.com/runs")
	if err != nil {
		fmt.Println(err)
		return
	}
	r, err := statements[0].Sign(key)
	if err != nil {
		fmt.Println(err)
		return
	}
	trust, err := seal.Trust(key.VKey())
	if err != nil {
		fmt.Println(err)
		return
	}
	checked, err := r.Check(context.Background(), trust)
	fmt.Println(checked.Statement, err)
	r.Payload[40] ^= 1
	_, err = r.Check(context.Background(), trust)
	fmt.Println(err)
	// Output:
	// t completed, run run-1, call c1, event 4 <nil>
	// receipt: the statement is of type "https://in-toto.io/Statement/v0"
}
