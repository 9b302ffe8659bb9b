package sqlitelog

import (
	"context"
	"database/sql/driver"
	"fmt"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/internal/pending"
)

// A run that was never fenced has no row in run_fence and stands in epoch 0, which
// is that of whoever appends to the log itself. The epoch is compared in the
// transaction that writes the events, by the statements that write the run's row:
// whatever a writer had queued when its run was given away is left out there.
const (
	inEpochSQL    = "coalesce((SELECT epoch FROM run_fence WHERE run_id = ?), 0) = ?"
	epochSQL      = "SELECT epoch FROM run_fence WHERE run_id = ?"
	firstFenceSQL = "INSERT INTO run_fence (run_id, epoch) VALUES (?, 1) ON CONFLICT DO NOTHING"
	nextFenceSQL  = "UPDATE run_fence SET epoch = epoch + 1 WHERE run_id = ?"
)

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

// fence makes a new epoch of a run. Most have none yet, and then it takes one
// statement.
func (w *writer) fence(runID string) (epoch uint64, err error) {
	first, err := w.exec(firstFenceSQL, runID)
	if err != nil || first == 1 {
		return 1, err
	}
	if _, err := w.exec(nextFenceSQL, runID); err != nil {
		return 0, err
	}
	return w.epoch(runID)
}

// Fenced implements [eventlog.Fencer].
func (l *Log) Fenced(runID string, epoch uint64) eventlog.EventLog {
	return &fencedLog{pending.NewWriter(l.runs, runID, epoch), others{l}}
}

// fencedLog is the log as the writer of one run sees it, in one epoch.
type fencedLog struct {
	pending.Writer
	others
}

// others has the methods of the log that the writer does not have. Those of both are
// the writer's, because the log's are embedded more deeply.
type others struct{ *Log }
