package book

import (
	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/host/queue"
)

// pending is what a transaction has been told and has not written yet. It is
// written before anything looks at it.
type pending struct {
	inserts  [][]any
	inserted map[string]bool // the runs of inserts
	finished []queue.Lease
}

var (
	insertJobs = bulk{
		head: `INSERT INTO queue_job (run_id, tenant, number, rank, max_attempts, enqueued, payload,
	state, attempt, deaths, snoozes, epoch, cancelled, due, owner, turn, failure) VALUES `,
		row: "(?, ?, ?, ?, ?, ?, ?, 0, 0, 0, 0, 0, 0, 0, '', 0, '')", separator: ", ",
		tail: " ON CONFLICT DO NOTHING",
	}
	deleteJobs = bulk{
		head: "DELETE FROM queue_job WHERE ",
		row:  "(run_id = ? AND epoch = ? AND state = 2)", separator: " OR ",
		tail: " RETURNING run_id",
	}
)

// push writes what is pending.
func (b *Tx) push() error {
	if err := b.pushFinished(); err != nil {
		return err
	}
	rows := b.inserts
	b.inserts, b.inserted = nil, nil
	n, err := insertJobs.exec(b.tx, rows)
	if err == nil && n < int64(len(rows)) {
		err = queue.ErrExists // of one of them
	}
	return err
}

// pushFinished removes the jobs that are done, and looks closer at those that are
// not where they were.
func (b *Tx) pushFinished() error {
	if len(b.finished) == 0 {
		return nil
	}
	leases := b.finished
	b.finished = nil
	rows := make([][]any, len(leases))
	for i, l := range leases {
		rows[i] = []any{l.RunID, int64(l.Epoch)}
	}
	gone := make(map[string]bool, len(leases))
	err := deleteJobs.query(b.tx, rows, func(r eventlog.Row) error {
		var runID string
		err := r.Scan(&runID)
		gone[runID] = true
		return err
	})
	for _, l := range leases {
		switch {
		case err != nil:
			return err
		case gone[l.RunID]:
			err = b.move(l.Tenant, running, states)
		default:
			err = b.finishLate(l)
		}
	}
	return err
}

// finishLate removes a job that went back to the line, if nobody else was given it.
func (b *Tx) finishLate(l queue.Lease) error {
	r, ok, err := b.read(l.RunID)
	if err != nil || !ok || r.epoch != int64(l.Epoch) {
		return err
	}
	if _, err := b.tx.Exec("DELETE FROM queue_job WHERE run_id = $1", l.RunID); err != nil {
		return err
	}
	return b.move(r.tenant, int(r.state), states)
}
