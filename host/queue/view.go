package queue

import (
	"context"
	"time"

	"github.com/starling-host/starling/eventlog"
)

// news is what a process has to know of what others have done.
type news struct {
	open      bool      // there are jobs that may be handed out
	due       time.Time // when the next job wakes; zero when none sleeps
	dead      bool      // a process has not renewed its lease
	cancelled []Lease   // the jobs of the owner that are to stop: run and epoch
}

// readNews looks for what concerns the owner.
func readNews(q eventlog.Querier, owner string, now time.Time) (n news, err error) {
	var open, due, dead int64
	const sql = `SELECT (SELECT count(*) FROM (SELECT 1 FROM queue_tenant WHERE open > 0 LIMIT 1) a) +
	(SELECT count(*) FROM (SELECT 1 FROM queue_job WHERE state = 3 LIMIT 1) b),
	(SELECT coalesce(min(due), 0) FROM queue_job WHERE state = 1),
	(SELECT count(*) FROM queue_host WHERE until < $1)`
	err = q.Query(sql, []any{now.UnixNano()}, func(r eventlog.Row) error { return r.Scan(&open, &due, &dead) })
	if err != nil {
		return n, err
	}
	n.open, n.dead = open > 0, dead > 0
	if due != 0 {
		n.due = time.Unix(0, due)
	}
	const stop = "SELECT run_id, epoch FROM queue_job WHERE state = 2 AND owner = $1 AND cancelled = 1"
	err = q.Query(stop, []any{owner}, func(r eventlog.Row) error {
		var l Lease
		var epoch int64
		err := r.Scan(&l.RunID, &epoch)
		l.Epoch = uint64(epoch)
		n.cancelled = append(n.cancelled, l)
		return err
	})
	return n, err
}

// Find says where a job stands, or [ErrNotFound].
func (q *Queue) Find(ctx context.Context, runID string) (s Status, err error) {
	err = q.log.View(ctx, func(v eventlog.Querier) error {
		var state, due, enqueued, epoch, number int64
		found := false
		const sql = "SELECT " + jobColumns + ", state, due, enqueued, epoch, number FROM queue_job WHERE run_id = $1"
		err := v.Query(sql, []any{runID}, func(r eventlog.Row) (err error) {
			found = true
			s.Lease, err = scanJob(r, &state, &due, &enqueued, &epoch, &number)
			return err
		})
		if err == nil && !found {
			err = ErrNotFound
		}
		if err != nil {
			return err
		}
		s.State, s.Epoch, s.Enqueued = State(state), uint64(epoch), time.Unix(0, enqueued)
		switch int(state) {
		case ready:
			var before int64
			const sql = "SELECT count(*) FROM queue_job WHERE tenant = $1 AND state = 0 AND (rank < $2 OR (rank = $2 AND number < $3))"
			err = v.Query(sql, []any{s.Tenant, int64(-s.Priority), number}, func(r eventlog.Row) error { return r.Scan(&before) })
			s.Position = int(before)
		case sleeping:
			s.Due = time.Unix(0, due)
		case ending:
			s.State = Ready
		}
		return err
	})
	return s, err
}

// Stats counts the jobs of all tenants.
func (q *Queue) Stats(ctx context.Context) (Stats, error) { return q.count(ctx, "") }

// TenantStats counts the jobs of one tenant.
func (q *Queue) TenantStats(ctx context.Context, tenant string) (Stats, error) {
	return q.count(ctx, " WHERE tenant = $1", tenant)
}

func (q *Queue) count(ctx context.Context, where string, args ...any) (s Stats, err error) {
	err = q.log.View(ctx, func(v eventlog.Querier) error {
		return v.Query("SELECT state, count(*), min(enqueued) FROM queue_job"+where+" GROUP BY state", args, func(r eventlog.Row) error {
			var state, n, oldest int64
			if err := r.Scan(&state, &n, &oldest); err != nil {
				return err
			}
			switch int(state) {
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
	})
	return s, err
}
