package book

import (
	"errors"
	"time"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/host/queue"
)

// Enqueue adds a job. [queue.ErrFull] and [queue.ErrTenantFull] are a refusal, which
// has changed nothing. That a job of the run exists may show only later, as the
// error [queue.ErrExists] of any other method, Flush at the latest.
func (b *Tx) Enqueue(j queue.Job) (refusal, err error) {
	if err := b.load(); err != nil {
		return nil, err
	}
	t, err := b.tenant(j.Tenant)
	if err != nil {
		return nil, err
	}
	switch most := b.rules.Limits(j.Tenant).MaxWaiting; {
	case b.waiting >= int64(b.rules.MaxWaiting):
		return queue.ErrFull, nil
	case most > 0 && t.n[ready]+t.n[sleeping]+t.n[ending] >= int64(most):
		return queue.ErrTenantFull, nil
	}
	if j.MaxAttempts == 0 {
		j.MaxAttempts = queue.DefaultMaxAttempts
	}
	if b.inserted[j.RunID] != nil {
		return queue.ErrExists, nil
	}
	b.number++
	j.Payload = append([]byte{}, j.Payload...)
	b.insert(&fresh{placed: placed{queue.Lease{Job: j}, b.number}})
	return nil, b.move(j.Tenant, states, ready)
}

// Waiting returns how many jobs were counted for the refusal: those of the tenant,
// or of all.
func (b *Tx) Waiting(name string, refusal error) (int64, error) {
	if errors.Is(refusal, queue.ErrFull) {
		err := b.load()
		return b.waiting, err
	}
	t, err := b.tenant(name)
	return t.n[ready] + t.n[sleeping] + t.n[ending], err
}

// row is what the changes of a job look at.
type row struct {
	tenant                         string
	state, epoch, cancelled, turn  int64
	attempt, snoozes, due, maximum int64
	owner                          string
}

// find reads a job, as it is after all that this transaction was told.
func (b *Tx) find(runID string) (r row, ok bool, err error) {
	if err := b.push(); err != nil {
		return r, false, err
	}
	return b.read(runID)
}

// read reads a job as it is written down.
func (b *Tx) read(runID string) (r row, ok bool, err error) {
	const sql = "SELECT tenant, state, epoch, cancelled, turn, attempt, snoozes, due, max_attempts, owner FROM queue_job WHERE run_id = $1"
	err = b.tx.Query(sql, []any{runID}, func(q eventlog.Row) error {
		ok = true
		return q.Scan(&r.tenant, &r.state, &r.epoch, &r.cancelled, &r.turn, &r.attempt, &r.snoozes, &r.due, &r.maximum, &r.owner)
	})
	return r, ok, err
}

// Finish removes a job that was handed out in that epoch. It is no error when it
// was handed out again since, or is gone. One that went back to the line and was
// not handed out again is done all the same: its run has ended.
func (b *Tx) Finish(l queue.Lease) error {
	b.finished = append(b.finished, l)
	return nil
}

// Again says how a job is to come back.
type Again struct {
	After   time.Duration // zero or less means at once
	Free    bool          // the attempt is not spent
	Snooze  bool          // it is a snooze, which is free
	Failure string
}

// Return puts back a job that was handed out in that epoch. It is no error when
// it was handed out again since, or is gone. One that was cancelled meanwhile
// comes back at once.
func (b *Tx) Return(l queue.Lease, a Again) error {
	r, ok, err := b.find(l.RunID)
	if err != nil || !ok || r.epoch != int64(l.Epoch) || r.state != running {
		return err
	}
	to, due := sleeping, b.now+int64(a.After)
	switch {
	case r.cancelled != 0 && (a.After <= 0 || !l.Cancelled):
		to = ending
	case a.After <= 0:
		to = ready
	}
	if a.Free || a.Snooze {
		r.attempt--
	}
	if a.Snooze {
		r.snoozes++
	}
	const sql = "UPDATE queue_job SET state = $1, due = $2, attempt = $3, snoozes = $4, failure = $5, owner = '', turn = 0 WHERE run_id = $6"
	if _, err := b.tx.Exec(sql, int64(to), due, r.attempt, r.snoozes, a.Failure, l.RunID); err != nil {
		return err
	}
	return b.move(r.tenant, running, to)
}

// Cancelled is what a job was when it was cancelled.
type Cancelled struct {
	Running bool
	Owner   string // of a job that is running
	Epoch   uint64
	Turn    int64
}

// Cancel marks a job, and hands it out soon if nobody works it. A job that is not
// there is [queue.ErrNotFound], a refusal.
func (b *Tx) Cancel(runID string) (c Cancelled, refusal, err error) {
	r, ok, err := b.find(runID)
	if err != nil || !ok {
		return c, queue.ErrNotFound, err
	}
	c = Cancelled{Running: r.state == running, Owner: r.owner, Epoch: uint64(r.epoch), Turn: r.turn}
	if r.cancelled != 0 {
		return c, nil, nil
	}
	to := ending
	if c.Running {
		to = running
	}
	if _, err := b.tx.Exec("UPDATE queue_job SET cancelled = 1, state = $1 WHERE run_id = $2", int64(to), runID); err != nil || c.Running {
		return c, nil, err
	}
	return c, nil, b.move(r.tenant, int(r.state), to)
}

// maxWake bounds the jobs that one transaction wakes.
const maxWake = 256

// Wake makes the jobs ready that have slept long enough; if there are very many,
// some of them.
func (b *Tx) Wake() error {
	return b.reset("SELECT run_id, tenant, cancelled FROM queue_job WHERE state = 1 AND due <= $1 ORDER BY due LIMIT $2", sleeping, b.now, int64(maxWake))
}

// Begin notes that a job's run begins which was handed out in that epoch. A job that
// was handed out again since, or is gone, is [queue.ErrLost], a refusal.
func (b *Tx) Begin(l queue.Lease) (refusal, err error) {
	n, err := b.tx.Exec("UPDATE queue_job SET begun = 1 WHERE run_id = $1 AND epoch = $2 AND state = 2", l.RunID, int64(l.Epoch))
	if err == nil && n == 0 {
		refusal = queue.ErrLost
	}
	return refusal, err
}

// resetJob takes the state, whether the process of the job has died, and the run.
const resetJob = `UPDATE queue_job SET state = $1, attempt = attempt - $2, deaths = deaths + $2 * begun,
	stranded = stranded + $2 * (1 - begun), owner = '', turn = 0 WHERE run_id = $3`

// reset puts the jobs that the query selects in the line, from a state in which
// all of them are. From running they come because their process died, which is not
// held against them as a failure would be. Those that had begun may be the reason.
func (b *Tx) reset(query string, from int, args ...any) error {
	type job struct {
		runID, tenant string
		cancelled     int64
	}
	var jobs []job
	if err := b.push(); err != nil {
		return err
	}
	err := b.tx.Query(query, args, func(r eventlog.Row) error {
		var j job
		jobs = append(jobs, j)
		last := &jobs[len(jobs)-1]
		return r.Scan(&last.runID, &last.tenant, &last.cancelled)
	})
	died := int64(0)
	if from == running {
		died = 1
	}
	for _, j := range jobs {
		to := ready
		if j.cancelled != 0 {
			to = ending
		}
		if err == nil {
			_, err = b.tx.Exec(resetJob, int64(to), died, j.runID)
		}
		if err == nil {
			err = b.move(j.tenant, from, to)
		}
	}
	return err
}
