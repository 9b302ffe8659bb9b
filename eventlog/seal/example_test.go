package seal_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/starling-host/starling/eventlog/logtest"
	"github.com/starling-host/starling/eventlog/seal"
	"github.com/starling-host/starling/eventlog/store"
)

// A run is sealed, and then proven to a reader who has only the public key.
func Example() {
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	ctx := context.Background()
	db, err := store.OpenFile(ctx, filepath.Join(dir, "starling.db"), store.FileOptions{})
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
	key, err := seal.NewKey("example.com/runs")
	if err != nil {
		fmt.Println(err)
		return
	}
	sealed, err := seal.Seal(ctx, db, key)
	if err != nil {
		fmt.Println(err)
		return
	}
	leaves, proofs, err := seal.Prove(ctx, db, "run-1")
	if err != nil {
		fmt.Println(err)
		return
	}
	trust, err := seal.Trust(key.VKey())
	if err != nil {
		fmt.Println(err)
		return
	}
	_, signatures, err := proofs[0].Check(leaves[0], trust)
	fmt.Println(sealed.Checkpoint.Leaves, "run sealed,", len(signatures), "signature, error", err)
	leaves[0].Events++
	_, _, err = proofs[0].Check(leaves[0], trust)
	fmt.Println(err)
	// Output:
	// 1 run sealed, 1 signature, error <nil>
	// seal: run "run-1" is not leaf 0 of the checkpoint: the proof leads to another root
}
