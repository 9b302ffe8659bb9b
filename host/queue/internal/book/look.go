package book

import (
	"time"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/host/queue"
)

// Outlook is what a process has to know of what others have done.
type Outlook struct {
	Open      int       // jobs that may be handed out, of some of the tenants at least
	Due       time.Time // when the next job wakes; zero when none sleeps
	Dead      bool      // a process has not renewed its lease
	Cancelled []queue.Lease
}

// Look looks for work. Cancelled are the jobs that owner runs and is to stop; they
// have a run and an epoch only.
func Look(q eventlog.Querier, owner string, now time.Time) (o Outlook, err error) {
	var open, ends, due, dead int64
	const sql = `SELECT (SELECT CAST(coalesce(sum(open), 0) AS BIGINT) FROM (SELECT open FROM queue_tenant WHERE open > 0 LIMIT 64) a),
	(SELECT count(*) FROM (SELECT 1 FROM queue_job WHERE state = 3 LIMIT 64) b),
	(SELECT coalesce(min(due), 0) FROM queue_job WHERE state = 1),
	(SELECT count(*) FROM queue_host WHERE until < $1)`
	err = q.Query(sql, []any{now.UnixNano()}, func(r eventlog.Row) error { return r.Scan(&open, &ends, &due, &dead) })
	if err != nil {
		return o, err
	}
	o.Open, o.Dead = int(open+ends), dead > 0
	if due != 0 {
		o.Due = time.Unix(0, due)
	}
	const stop = "SELECT run_id, epoch FROM queue_job WHERE state = 2 AND owner = $1 AND cancelled = 1"
	err = q.Query(stop, []any{owner}, func(r eventlog.Row) error {
		var l queue.Lease
		var epoch int64
		err := r.Scan(&l.RunID, &epoch)
		l.Epoch = uint64(epoch)
		o.Cancelled = append(o.Cancelled, l)
		return err
	})
	return o, err
}

// Find says where a job stands.
func Find(q eventlog.Querier, runID string) (s queue.Status, err error) {
	var state, due, enqueued, epoch, number int64
	found := false
	const sql = "SELECT " + jobColumns + ", state, due, enqueued, epoch, number FROM queue_job WHERE run_id = $1"
	err = q.Query(sql, []any{runID}, func(r eventlog.Row) (err error) {
		found = true
		s.Lease, err = scanJob(rest{r, []any{&state, &due, &enqueued, &epoch, &number}})
		return err
	})
	if err != nil || !found {
		return s, orNotFound(err)
	}
	s.State, s.Epoch, s.Enqueued = queue.State(state), uint64(epoch), time.Unix(0, enqueued)
	switch state {
	case ready:
		s.Position, err = position(q, s, number)
	case sleeping:
		s.Due = time.Unix(0, due)
	case ending:
		s.State = queue.Ready
	}
	return s, err
}

func orNotFound(err error) error {
	if err == nil {
		return queue.ErrNotFound
	}
	return err
}

// rest scans more columns than it is asked for.
type rest struct {
	eventlog.Row
	more []any
}

func (r rest) Scan(to ...any) error { return r.Row.Scan(append(to, r.more...)...) }

// position counts the jobs that are before this one in its tenant's line.
func position(q eventlog.Querier, s queue.Status, number int64) (int, error) {
	var n int64
	const sql = "SELECT count(*) FROM queue_job WHERE tenant = $1 AND state = 0 AND (rank < $2 OR (rank = $2 AND number < $3))"
	err := q.Query(sql, []any{s.Tenant, int64(-s.Priority), number}, func(r eventlog.Row) error { return r.Scan(&n) })
	return int(n), err
}

// Count counts the jobs of a tenant, or of all when tenant is nil.
func Count(q eventlog.Querier, tenant *string) (s queue.Stats, err error) {
	where, args := "", []any(nil)
	if tenant != nil {
		where, args = " WHERE tenant = $1", []any{*tenant}
	}
	err = q.Query("SELECT state, count(*), min(enqueued) FROM queue_job"+where+" GROUP BY state", args, func(r eventlog.Row) error {
		var state, n, oldest int64
		if err := r.Scan(&state, &n, &oldest); err != nil {
			return err
		}
		switch state {
		case ready, ending:
			s.Ready += int(n)
		case sleeping:
			s.Sleeping = int(n)
		case running:
			s.Running = int(n)
		}
		if at := time.Unix(0, oldest); s.Oldest.IsZero() || at.Before(s.Oldest) {
			s.Oldest = at
		}
		return nil
	})
	return s, err
}
