package seal

import (
	"context"
	"errors"
	"fmt"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/event"
)

// Run is a run that was validated in the reading that returned it: its chain, its Merkle root and the
// bytes of each event, by the strict rules of [eventlog.CheckRun]. Use [ReadRun]. Whatever signs a
// statement about the runs of a database takes it from a Run.
type Run struct {
	Stored []event.Event // as stored
	Events []event.Event // as they were before they were encrypted, or Stored
	Leaf   Leaf          // zero for an open run
}

// Opener is implemented by a log that decrypts.
type Opener interface {
	// Open returns a stored event as it was before it was encrypted. Without a key for it the error
	// is [event.ErrEncrypted].
	Open(ctx context.Context, stored event.Event) (event.Event, error)
}

// ReadRun reads a run as it is stored, once, and validates it. The events of an encrypted run are
// opened one by one, and validated in this form too; the error is [event.ErrEncrypted] if open is nil
// or has no key, and the run then has its stored events.
func ReadRun(ctx context.Context, stored eventlog.EventLog, open Opener, runID string) (run Run, err error) {
	options := eventlog.CheckOptions{Strict: true, AllowOpen: true}
	opened, unread := eventlog.NewChecker(options), error(nil)
	r, err := eventlog.VisitRun(ctx, stored, runID, options, func(e event.Event) error {
		run.Stored = append(run.Stored, e)
		if _, encrypted := event.AsEncrypted(e.Payload); !encrypted || unread != nil {
			return nil
		}
		if open == nil {
			unread = fmt.Errorf("event %d: %w", e.Seq, event.ErrEncrypted)
			return nil
		}
		plain, err := open.Open(ctx, e)
		if errors.Is(err, event.ErrEncrypted) {
			unread = err
			return nil
		}
		if err == nil {
			err = opened.Add(plain)
		}
		run.Events = append(run.Events, plain)
		return err
	})
	if err != nil {
		return Run{}, err
	}
	if !r.Open {
		run.Leaf = leafOf(runID, r)
	}
	switch {
	case r.Encrypted == 0:
		run.Events = run.Stored
	case unread != nil:
		run.Events = nil
		return run, unread
	default:
		if _, err := opened.Finish(); err != nil {
			return Run{}, err
		}
	}
	return run, nil
}

// leafOf returns the leaf of a run that a check found to be valid, and that has ended.
func leafOf(runID string, r eventlog.Report) Leaf {
	return Leaf{Events: r.Events, RunID: runID, MerkleRoot: r.Root, TerminalHash: r.Head}
}

// ProveRuns proves that runs are in the newest checkpoint with exactly these events. It is [Prove],
// and [eventlog.ErrLogCorrupt] if a run is not the one that was sealed.
func ProveRuns(ctx context.Context, db eventlog.Transactor, runs ...Run) ([]Proof, error) {
	ids := make([]string, len(runs))
	for i, run := range runs {
		ids[i] = run.Stored[0].RunID
	}
	leaves, proofs, err := Prove(ctx, db, ids...)
	if err != nil {
		return nil, err
	}
	for i, run := range runs {
		if leaves[i] != run.Leaf {
			return nil, &eventlog.CorruptError{RunID: ids[i], Seq: run.Leaf.Events, Kind: run.Stored[len(run.Stored)-1].Kind, Invariant: "head",
				Reason: fmt.Sprintf("the run is not the one that was sealed: its last event has the hash %v, sealed was %v", run.Leaf.TerminalHash, leaves[i].TerminalHash)}
		}
	}
	return proofs, nil
}
