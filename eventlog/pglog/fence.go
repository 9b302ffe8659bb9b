package pglog

import (
	"context"
	"fmt"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/event"
)

// fenceSQL makes a new epoch. The row's lock is also taken by whoever appends to the
// run: an append that has it first is committed before the fence, one that comes later
// sees the new epoch.
const fenceSQL = `INSERT INTO run_fence (run_id, epoch) VALUES ($1, 1)
	ON CONFLICT (run_id) DO UPDATE SET epoch = run_fence.epoch + 1 RETURNING epoch`

// findEpoch returns the last epoch of a run, zero if it was never fenced.
func findEpoch(ctx context.Context, q rowQuerier, runID string) (epoch uint64, err error) {
	err = q.QueryRow(ctx, "SELECT coalesce(max(epoch), 0) FROM run_fence WHERE run_id = $1", runID).Scan(&epoch)
	if err != nil {
		return 0, fmt.Errorf("pglog: look up the epoch of run %q: %w", runID, err)
	}
	return epoch, nil
}

// fenced is the error of a writer whose epoch is not the last one.
func fenced(runID string, epoch, last uint64) error {
	return fmt.Errorf("%w: run %q is in epoch %d, the writer's is %d", eventlog.ErrFenced, runID, last, epoch)
}

// Fenced implements [eventlog.Fencer].
func (l *Log) Fenced(runID string, epoch uint64) eventlog.EventLog {
	return &fencedLog{Log: l, runID: runID, epoch: epoch}
}

// fencedLog is the log as the writer of one run sees it, in one epoch.
type fencedLog struct {
	*Log
	runID string
	epoch uint64
}

// Append implements [eventlog.EventLog].
func (f *fencedLog) Append(ctx context.Context, runID string, ev event.Event) error {
	if runID != f.runID {
		return fmt.Errorf("%w: the writer was given run %q, not %q", eventlog.ErrInvalidAppend, f.runID, runID)
	}
	return f.append(ctx, runID, f.epoch, ev)
}

// Sync implements [eventlog.EventLog].
func (f *fencedLog) Sync(ctx context.Context, runID string) error {
	if runID != f.runID {
		return f.Log.Sync(ctx, runID)
	}
	return f.sync(ctx, runID, f.epoch)
}

// Close implements [eventlog.EventLog]. The log stays open.
func (f *fencedLog) Close() error { return nil }
