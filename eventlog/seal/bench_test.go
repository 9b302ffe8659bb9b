package seal_test

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/eventlog/logtest"
	"github.com/starling-host/starling/eventlog/seal"
	"github.com/starling-host/starling/eventlog/store"
)

// BenchmarkVerify verifies a database of 10,000 sealed runs, beside the check of the same
// runs alone: the difference is the price of the log of runs.
func BenchmarkVerify(b *testing.B) {
	const runs = 10_000
	ctx := b.Context()
	db, err := store.OpenFile(ctx, filepath.Join(b.TempDir(), "runs.db"), store.FileOptions{})
	if err != nil {
		b.Fatal(err)
	}
	defer db.Close()
	ids := make([]string, runs)
	for i := range ids {
		ids[i] = fmt.Sprintf("run-%05d", i)
		c := logtest.Chain{RunID: ids[i], Clock: 1_700_000_000_000_000_000 + int64(i)*1e6}
		for _, e := range []event.Event{c.Start("call"), c.Effect(1), c.Effect(2), c.Effect(3), c.Complete()} {
			if err := db.Append(ctx, ids[i], e); err != nil {
				b.Fatal(err)
			}
		}
	}
	if err := db.Sync(ctx, ids[runs-1]); err != nil {
		b.Fatal(err)
	}
	key := fixedKey(b, "example.com/runs", 1)
	policy, err := seal.Trust(key.VKey())
	if err != nil {
		b.Fatal(err)
	}
	check := func(ctx context.Context, ids []string, found func(string, eventlog.Report, error) error) error {
		for _, id := range ids {
			r, err := eventlog.CheckRun(ctx, db, id, eventlog.CheckOptions{Strict: true})
			if err := found(id, r, err); err != nil {
				return err
			}
		}
		return nil
	}
	b.Run("seal", func(b *testing.B) {
		for b.Loop() {
			if _, err := seal.Seal(ctx, db, key); err != nil { // all of them the first time, none later
				b.Fatal(err)
			}
		}
	})
	b.Run("check", func(b *testing.B) {
		for b.Loop() {
			if err := check(ctx, ids, func(string, eventlog.Report, error) error { return nil }); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("verify", func(b *testing.B) {
		for b.Loop() {
			if r, err := seal.Verify(ctx, db, policy, seal.Evidence{}, check); err != nil || len(r.Problems) > 0 || r.Present != runs {
				b.Fatalf("%+v, %v", r, err)
			}
		}
	})
}
