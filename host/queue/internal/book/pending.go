package book

import (
	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/host/queue"
)

// pending is what a transaction has been told and has not written yet. It is written
// before anything looks at it; but Claim looks here for the jobs that the transaction
// adds, so that the row of one that is handed out at once is written once.
type pending struct {
	inserts  []*fresh
	inserted map[string]*fresh // inserts, by run
	finished []queue.Lease
}

// fresh is a job that is not in the table yet.
type fresh struct {
	placed
	turn  int64
	owner string // empty until it is handed out
}

func (p *pending) insert(f *fresh) {
	if p.inserted == nil {
		p.inserted = make(map[string]*fresh)
	}
	p.inserts, p.inserted[f.RunID] = append(p.inserts, f), f
}

// row has the values of insertJobs.
func (f *fresh) row(now int64) []any {
	state := int64(ready)
	if f.owner != "" {
		state = running
	}
	return []any{f.RunID, f.Tenant, f.number, int64(-f.Priority), int64(f.MaxAttempts), now, f.Payload,
		state, int64(f.Epoch), int64(f.Attempt), f.turn, f.owner}
}

var (
	insertJobs = bulk{
		one: insertJob + "VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12" + freshJob + ") ON CONFLICT DO NOTHING",
		many: insertJob + "SELECT v.*" + freshJob + ` FROM unnest($1::text[], $2::text[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[],
	$7::bytea[], $8::bigint[], $9::bigint[], $10::bigint[], $11::bigint[], $12::text[]) AS v
	ON CONFLICT DO NOTHING`,
	}
	// state + 0 keeps the server away from the index over all that runs: who reads that in a
	// serialisable transaction conflicts with every other host.
	deleteJobs = bulk{
		one: "DELETE FROM queue_job WHERE run_id = $1 AND epoch = $2 AND state = 2",
		many: `DELETE FROM queue_job USING unnest($1::text[], $2::bigint[]) AS v(run_id, epoch)
	WHERE queue_job.run_id = v.run_id AND queue_job.epoch = v.epoch AND state + 0 = 2 RETURNING queue_job.run_id`,
	}
)

const (
	insertJob = `INSERT INTO queue_job (run_id, tenant, number, rank, max_attempts, enqueued, payload,
	state, epoch, attempt, turn, owner, deaths, snoozes, cancelled, due, failure) `
	freshJob = ", 0, 0, 0, 0, ''"
)

// push writes what is pending.
func (b *Tx) push() error {
	if err := b.pushFinished(); err != nil {
		return err
	}
	rows := make([][]any, len(b.inserts))
	for i, f := range b.inserts {
		rows[i] = f.row(b.now)
	}
	b.inserts, b.inserted = nil, nil
	n, err := b.execAll(&insertJobs, rows)
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
	gone, err := b.remove(leases)
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

// remove removes the jobs that are where they were, and returns their runs.
func (b *Tx) remove(leases []queue.Lease) (gone map[string]bool, err error) {
	gone = make(map[string]bool, len(leases))
	rows := make([][]any, len(leases))
	for i, l := range leases {
		rows[i] = []any{l.RunID, int64(l.Epoch)}
	}
	if b.server != nil {
		err = b.queryAll(&deleteJobs, rows, func(r eventlog.Row) error {
			var runID string
			err := r.Scan(&runID)
			gone[runID] = true
			return err
		})
		return gone, err
	}
	for i, l := range leases {
		n, err := b.tx.Exec(deleteJobs.one, rows[i]...)
		if err != nil {
			return nil, err
		}
		gone[l.RunID] = gone[l.RunID] || n == 1
	}
	return gone, nil
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
