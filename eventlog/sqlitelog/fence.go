package sqlitelog

import (
	"context"
	"database/sql/driver"
	"fmt"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/event"
)

// A run that was never fenced has no row in run_fence and stands in epoch 0, which
// is that of whoever appends to the log itself. The epoch is compared in the
// transaction that writes the events, by the statements that write the run's row:
// whatever a writer had queued when its run was given away is left out there.
const (
	inEpochSQL = "coalesce((SELECT epoch FROM run_fence WHERE run_id = ?), 0) = ?"
	epochSQL   = "SELECT epoch FROM run_fence WHERE run_id = ?"
	fenceSQL   = `INSERT INTO run_fence (run_id, epoch) VALUES (?, 1)
	ON CONFLICT (run_id) DO UPDATE SET epoch = epoch + 1 RETURNING epoch`
)

// fenced is the error of a writer whose epoch is not the last one.
func fenced(runID string, epoch, last uint64) error {
	return fmt.Errorf("%w: run %q is in epoch %d, the writer's is %d", eventlog.ErrFenced, runID, last, epoch)
}

// epochOf takes an epoch from a row.
func epochOf(to *uint64) func([]driver.Value) error {
	return func(row []driver.Value) error {
		n, ok := row[0].(int64)
		if !ok || n < 0 {
			return fmt.Errorf("%w: run_fence holds the epoch %v", eventlog.ErrLogCorrupt, row[0])
		}
		*to = uint64(n)
		return nil
	}
}

// epoch returns the last epoch of a run, zero if it was never fenced.
func (r *reader) epoch(ctx context.Context, runID string) (epoch uint64, err error) {
	err = r.query(ctx, epochSQL, []driver.Value{runID}, epochOf(&epoch))
	return epoch, err
}

func (w *writer) epoch(runID string) (epoch uint64, err error) {
	err = w.query(epochSQL, []driver.Value{runID}, epochOf(&epoch))
	return epoch, err
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
