package queue

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/starling-host/starling/eventlog"
)

// news is what a process has to know of what others have done.
type news struct {
	open      bool      // there are jobs that may be handed out
	due       time.Time // when the next job wakes; zero when none sleeps
	dead      bool      // another process has not renewed its lease
	draining  bool      // the owner is to claim no more jobs
	cancelled []Lease   // the jobs of the owner that are to stop: run and epoch
}

// readNews looks for what concerns the owner.
func readNews(v eventlog.Querier, owner string, now time.Time) (n news, err error) {
	var due int64
	const sql = `SELECT (SELECT count(*) FROM (SELECT 1 FROM queue_tenant WHERE open > 0 LIMIT 1) a) +
	(SELECT count(*) FROM (SELECT 1 FROM queue_job WHERE state = 3 LIMIT 1) b),
	(SELECT coalesce(min(due), 0) FROM queue_job WHERE state = 1),
	(SELECT count(*) FROM queue_host WHERE until < $1 AND gone = 0 AND owner <> $2),
	(SELECT count(*) FROM queue_host WHERE owner = $2 AND draining > 0)`
	err = v.Query(sql, []any{now.UnixNano(), owner}, func(r eventlog.Row) error { return r.Scan(&n.open, &due, &n.dead, &n.draining) })
	if err != nil {
		return n, err
	}
	n.due = instant(due)
	const stop = "SELECT run_id, epoch FROM queue_job WHERE state = 2 AND owner = $1 AND cancelled = 1"
	err = v.Query(stop, []any{owner}, func(r eventlog.Row) error {
		var l Lease
		var epoch int64
		err := r.Scan(&l.RunID, &epoch)
		l.Epoch = uint64(epoch)
		n.cancelled = append(n.cancelled, l)
		return err
	})
	return n, err
}

// instant is the inverse of UnixNano, with zero for never.
func instant(ns int64) (t time.Time) {
	if ns != 0 {
		t = time.Unix(0, ns)
	}
	return t
}

// statuses reads jobs with where they stand, by the rest of a query behind its columns.
func statuses(v eventlog.Querier, where string, args ...any) (list []Status, err error) {
	const sql = "SELECT " + jobColumns + `, state, due, enqueued, started, epoch, number,
	coalesce((SELECT CASE WHEN label = '' THEN host ELSE label END FROM queue_host WHERE queue_host.owner = queue_job.owner), '') FROM queue_job `
	err = v.Query(sql+where, args, func(r eventlog.Row) (err error) {
		var s Status
		var state, due, enqueued, started, epoch int64
		s.Lease, err = scanJob(r, &state, &due, &enqueued, &started, &epoch, &s.Number, &s.Host)
		s.State, s.Epoch, s.Enqueued = State(state), uint64(epoch), time.Unix(0, enqueued)
		switch int(state) {
		case sleeping:
			s.Due = time.Unix(0, due)
		case running:
			s.Started = instant(started)
		case ending:
			s.State = Ready
		}
		list = append(list, s)
		return err
	})
	return list, err
}

// Find says where a job stands, or [ErrNotFound].
func (q *Queue) Find(ctx context.Context, runID string) (s Status, err error) {
	err = q.log.View(ctx, func(v eventlog.Querier) error {
		list, err := statuses(v, "WHERE run_id = $1", runID)
		if err == nil && len(list) == 0 {
			err = ErrNotFound
		}
		if err != nil {
			return err
		}
		if s = list[0]; s.State != Ready || s.Cancelled {
			return nil
		}
		var before int64
		const sql = "SELECT count(*) FROM queue_job WHERE tenant = $1 AND state = 0 AND (rank < $2 OR (rank = $2 AND number < $3))"
		err = v.Query(sql, []any{s.Tenant, int64(-s.Priority), s.Number}, func(r eventlog.Row) error { return r.Scan(&before) })
		s.Position = int(before)
		return err
	})
	return s, err
}

// Lookup says where the jobs of runs stand, by run, as far as there are any. They have no
// Position.
func (q *Queue) Lookup(ctx context.Context, runIDs ...string) (found map[string]Status, err error) {
	found = make(map[string]Status)
	for some := range slices.Chunk(runIDs, 1000) {
		args, places := make([]any, len(some)), make([]string, len(some))
		for i, id := range some {
			args[i], places[i] = id, fmt.Sprint("$", i+1)
		}
		err = q.log.View(ctx, func(v eventlog.Querier) error {
			list, err := statuses(v, "WHERE run_id IN ("+strings.Join(places, ", ")+")", args...)
			for _, s := range list {
				found[s.RunID] = s
			}
			return err
		})
		if err != nil {
			break
		}
	}
	return found, err
}

// Filter says which jobs [Queue.List] returns.
type Filter struct {
	Tenant string  // only those of the tenant; empty is all
	States []State // only those in one of these states; none is all
	After  int64   // only those behind the job of that number, see [Status].Number
	Limit  int     // at most so many; zero is 100
}

const defaultLimit = 100

// List returns jobs and where they stand, in the order in which they were enqueued. A
// Status of it has no Position.
func (q *Queue) List(ctx context.Context, f Filter) (list []Status, err error) {
	where, args := "WHERE number > $1", []any{f.After}
	if f.Tenant != "" {
		where, args = where+" AND tenant = $2", append(args, f.Tenant)
	}
	if len(f.States) > 0 {
		var states []string
		for _, s := range f.States {
			if states = append(states, fmt.Sprint(int(s))); s == Ready {
				states = append(states, fmt.Sprint(ending))
			}
		}
		where += " AND state IN (" + strings.Join(states, ", ") + ")"
	}
	f.Limit = cmp.Or(f.Limit, defaultLimit)
	err = q.log.View(ctx, func(v eventlog.Querier) error {
		list, err = statuses(v, fmt.Sprintf("%s ORDER BY number LIMIT %d", where, f.Limit), args...)
		return err
	})
	return list, err
}

// Stats counts the jobs of all tenants.
func (q *Queue) Stats(ctx context.Context) (all Stats, err error) {
	loads, err := q.Loads(ctx)
	for _, s := range loads {
		all.Ready, all.Sleeping, all.Running = all.Ready+s.Ready, all.Sleeping+s.Sleeping, all.Running+s.Running
		if all.Oldest.IsZero() || s.Oldest.Before(all.Oldest) {
			all.Oldest = s.Oldest
		}
	}
	return all, err
}

// TenantStats counts the jobs of one tenant.
func (q *Queue) TenantStats(ctx context.Context, tenant string) (Stats, error) {
	loads, err := q.loads(ctx, " WHERE tenant = $1", tenant)
	return loads[tenant], err
}

// Loads counts the jobs of each tenant that has any.
func (q *Queue) Loads(ctx context.Context) (map[string]Stats, error) { return q.loads(ctx, "") }

func (q *Queue) loads(ctx context.Context, where string, args ...any) (loads map[string]Stats, err error) {
	err = q.log.View(ctx, func(v eventlog.Querier) error {
		loads = make(map[string]Stats)
		return v.Query("SELECT tenant, state, count(*), min(enqueued) FROM queue_job"+where+" GROUP BY tenant, state", args, func(r eventlog.Row) error {
			var tenant string
			var state, n, oldest int64
			if err := r.Scan(&tenant, &state, &n, &oldest); err != nil {
				return err
			}
			s := loads[tenant]
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
			loads[tenant] = s
			return nil
		})
	})
	return loads, err
}

// Host is a process that works, or one that has died.
type Host struct {
	ID       string // other processes have other ids, also the next one of the same name
	Name     string // Config.Label
	Version  string
	Running  int       // its jobs
	Began    time.Time // to work; zero for one that has died
	Seen     time.Time // when it last renewed its lease
	Draining bool      // it claims no more jobs; once it has none, it is drained
	Silent   bool      // its lease has ended, and no other process has noticed yet
	Gone     time.Time // when it was found dead; zero for one that lives
}

// Hosts returns the processes that work, and those that have died within a day and were
// not replaced, by name.
func (q *Queue) Hosts(ctx context.Context) (hosts []Host, err error) {
	err = q.log.View(ctx, func(v eventlog.Querier) error {
		hosts = nil
		const sql = `SELECT owner, CASE WHEN label = '' THEN host ELSE label END, version, began, seen, draining, gone,
	CASE WHEN until < $1 AND gone = 0 THEN 1 ELSE 0 END,
	(SELECT count(*) FROM queue_job WHERE state = 2 AND queue_job.owner = queue_host.owner) FROM queue_host ORDER BY 2, owner`
		return v.Query(sql, []any{q.cfg.Clock.Now().UnixNano()}, func(r eventlog.Row) error {
			var h Host
			var began, seen, gone, jobs int64
			err := r.Scan(&h.ID, &h.Name, &h.Version, &began, &seen, &h.Draining, &gone, &h.Silent, &jobs)
			h.Began, h.Seen, h.Gone, h.Running = instant(began), instant(seen), instant(gone), int(jobs)
			h.ID = strings.TrimPrefix(h.ID, "gone ")
			hosts = append(hosts, h)
			return err
		})
	})
	return hosts, err
}
