package logtest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/seal"
)

// checkRuns is a [seal.RunChecker] of one run after the other.
func checkRuns(log eventlog.EventLog) seal.RunChecker {
	return func(ctx context.Context, ids []string, found func(string, eventlog.Report, error) error) error {
		for _, id := range ids {
			var r eventlog.Report
			_, err := log.Run(ctx, id)
			if !errors.Is(err, eventlog.ErrRunNotFound) {
				r, err = eventlog.CheckRun(ctx, log, id, eventlog.CheckOptions{Strict: true, AllowOpen: true})
			}
			if err := found(id, r, err); err != nil {
				return err
			}
		}
		return nil
	}
}

// sealing seals a database, changes it behind the back of the log, and checks the
// report of a verification.
func sealing(t *testing.T, log eventlog.EventLog) {
	db, ctx := log.(eventlog.Database), t.Context()
	key, err := seal.NewKey("example.com/test")
	if err != nil {
		t.Fatal(err)
	}
	trust, err := seal.Trust(key.VKey())
	if err != nil {
		t.Fatal(err)
	}
	verify := func(given ...[]byte) seal.Report {
		t.Helper()
		r, err := seal.Verify(ctx, db, trust, seal.Evidence{Checkpoints: given}, checkRuns(log))
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	if _, err := seal.Verify(ctx, db, trust, seal.Evidence{}, checkRuns(log)); !errors.Is(err, seal.ErrNoLog) {
		t.Errorf("a database that was never sealed: %v", err)
	}
	for i := range 5 {
		store(t, log, Finished(fmt.Sprint("run-", i), i+1)...)
	}
	open := &Chain{RunID: "open"}
	store(t, log, open.Start("still at work"))
	first, err := seal.Seal(ctx, db, key)
	if err != nil || !first.New || first.Checkpoint.Leaves != 5 {
		t.Fatalf("the first seal: %+v, %v", first, err)
	}
	if again, err := seal.Seal(ctx, db, key); err != nil || again.New || string(again.Signed) != string(first.Signed) {
		t.Errorf("sealed again: %+v, %v", again, err)
	}
	for i := 5; i < 8; i++ {
		store(t, log, Finished(fmt.Sprint("run-", i), i+1)...)
	}
	second, err := seal.Seal(ctx, db, key)
	if err != nil || second.Checkpoint.Leaves != 8 {
		t.Fatalf("the second seal: %+v, %v", second, err)
	}
	store(t, log, Finished("late", 2)...)
	if r := verify(first.Signed, second.Signed); len(r.Problems) > 0 || r.Present != 8 || r.Gone != 0 || r.Unsealed != 1 || r.Open != 1 || r.Checkpoints != 2 {
		t.Errorf("a database as it is: %+v", r)
	}
	if other, _ := seal.NewKey("example.com/other"); other != nil {
		if _, err := seal.Seal(ctx, db, other); err == nil || !strings.Contains(err.Error(), `want a key called "example.com/test"`) {
			t.Errorf("a key of another name: %v", err)
		}
	}

	exec := func(statements ...string) {
		t.Helper()
		err := db.Transact(ctx, func(tx eventlog.Tx) error {
			for _, sql := range statements {
				if n, err := tx.Exec(sql); err != nil || n == 0 {
					return fmt.Errorf("%s: %d rows, %w", sql, n, err)
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	swap := []string{"UPDATE run_leaf SET leaf = 99 WHERE leaf = 1", "UPDATE run_leaf SET leaf = 1 WHERE leaf = 2", "UPDATE run_leaf SET leaf = 2 WHERE leaf = 99"}
	for _, c := range []struct {
		name     string
		do, undo []string
		want     string
	}{
		{"an event was changed", []string{"UPDATE eventlog_events SET ts = ts + 1 WHERE run_id = 'run-2' AND seq = 2"},
			[]string{"UPDATE eventlog_events SET ts = ts - 1 WHERE run_id = 'run-2' AND seq = 2"}, "run run-2 (leaf 2)"},
		{"a run was removed", []string{"UPDATE eventlog_events SET run_id = 'x' WHERE run_id = 'run-3'", "UPDATE run SET run_id = 'x' WHERE run_id = 'run-3'"},
			[]string{"UPDATE eventlog_events SET run_id = 'run-3' WHERE run_id = 'x'", "UPDATE run SET run_id = 'run-3' WHERE run_id = 'x'"}, "run run-3 (leaf 3): is missing, and no sealed removal explains it"},
		{"a run was put in the place of another one", []string{"UPDATE run_leaf SET run_id = 'x' WHERE run_id = 'run-4'", "UPDATE run_leaf SET run_id = 'run-4' WHERE run_id = 'run-6'", "UPDATE run_leaf SET run_id = 'run-6' WHERE run_id = 'x'"},
			[]string{"UPDATE run_leaf SET run_id = 'x' WHERE run_id = 'run-4'", "UPDATE run_leaf SET run_id = 'run-4' WHERE run_id = 'run-6'", "UPDATE run_leaf SET run_id = 'run-6' WHERE run_id = 'x'"}, "run run-6 (leaf 4): the leaf was changed"},
		{"leaves were reordered", swap, swap, "run run-2 (leaf 1): the leaf was changed"},
		{"a leaf was removed", []string{"UPDATE run_leaf SET leaf = 99 WHERE leaf = 6"}, []string{"UPDATE run_leaf SET leaf = 6 WHERE leaf = 99"}, "leaf 6: is missing"},
		{"a leaf and its hash were changed", []string{"UPDATE run_leaf SET events = events + 1 WHERE leaf = 7", "UPDATE run_leaf_hash SET hash = (SELECT hash FROM run_leaf_hash WHERE place = 0) WHERE place = 11"},
			nil, "the checkpoint of 8 runs has another tree: something between run 6 and run 8"},
	} {
		exec(c.do...)
		r := verify()
		text := fmt.Sprint(r.Problems, r.Unexplained)
		if !strings.Contains(text, c.want) {
			t.Errorf("%s: %s, want %q", c.name, text, c.want)
		}
		if c.undo == nil {
			break // the last one
		}
		exec(c.undo...)
		if r := verify(); len(r.Problems) > 0 {
			t.Fatalf("%s, undone: %v", c.name, r.Problems)
		}
	}
	if _, err := seal.Seal(ctx, db, key); err == nil { // which would sign the changed tree
		if r := verify(); len(r.Problems) == 0 {
			t.Error("a changed log of runs was sealed again without a trace")
		}
	}
}

// sealedPruning removes runs from a sealed database: they stay leaves.
func sealedPruning(t *testing.T, log eventlog.EventLog) {
	db, ctx := log.(eventlog.Database), t.Context()
	key, err := seal.NewKey("example.com/test")
	if err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		store(t, log, Finished(fmt.Sprint("run-", i), i+1)...)
	}
	first, err := seal.Seal(ctx, db, key)
	if err != nil {
		t.Fatal(err)
	}
	store(t, log, Finished("late", 2)...)
	if r, err := db.PruneRuns(ctx, eventlog.PruneOptions{RunIDs: []string{"run-1", "late"}, Why: `it's "old"`}); err != nil || r.Runs != 2 {
		t.Fatalf("%+v, %v", r, err)
	}
	if r, err := seal.Verify(ctx, db, nil, seal.Evidence{}, checkRuns(log)); err != nil || len(r.Unexplained) != 1 || r.Gone != 0 || !strings.Contains(r.Unexplained[0].Text, "no sealed removal explains it") {
		t.Errorf("a removal that is recorded and not sealed: %+v, %v", r, err)
	}
	second, err := seal.Seal(ctx, db, key)
	if err != nil || second.Checkpoint.Leaves != 4 || second.Removed != 1 || len(second.Removals) != 1 {
		t.Fatalf("a run that was removed, beside one that was not sealed: %+v, %v", second, err)
	}
	r, err := seal.Verify(ctx, db, nil, seal.Evidence{Checkpoints: [][]byte{first.Signed}}, checkRuns(log))
	if err != nil || len(r.Problems)+len(r.Unexplained) > 0 || r.Present != 2 || r.Gone != 1 || r.Removals[0].RunID != "run-1" || r.Removals[0].By == "" || r.Removals[0].Why != "it's \"old\"" {
		t.Errorf("%+v, %v", r, err)
	}
	if leaves, proofs, err := seal.Prove(ctx, db, "run-1", "run-0"); err != nil || leaves[0].RunID != "run-1" || proofs[0].Index != 1 {
		t.Errorf("a proof of a run that is gone: %+v, %v", leaves, err)
	}
	for seq := uint64(1); seq <= 3; seq++ {
		s, err := seal.ProveEvent(ctx, db, "run-2", seq)
		if err != nil {
			t.Fatal(err)
		}
		doc, err := s.JSON()
		if err != nil {
			t.Fatal(err)
		}
		if s, err = seal.ParseStatement(t.Context(), doc); err != nil {
			t.Fatal(err)
		}
		trust, _ := seal.Trust(key.VKey())
		if _, signatures, err := s.Check(trust); err != nil || len(signatures) != 1 {
			t.Errorf("event %d: %v, %v", seq, signatures, err)
		}
		s.Event.Timestamp++
		if _, _, err := s.Check(trust); err == nil {
			t.Errorf("event %d was changed, and its proof holds", seq)
		}
	}
}
