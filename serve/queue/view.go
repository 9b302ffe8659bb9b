package queue

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/internal/display"
)

// news is the changes by other processes that a process has to know.
type news struct {
	open      bool      // there are jobs that may be handed out
	due       time.Time // when the next job wakes; zero when none sleeps
	dead      bool      // another process has not renewed its lease
	draining  bool      // the owner should claim no more jobs
	cancelled []Lease   // the jobs of the owner that are to stop: run and epoch
}

// readNews looks for what concerns the owner.
func readNews(v eventlog.Querier, owner string, now time.Time) (n news, err error) {
	const sql = `SELECT (SELECT count(*) FROM (SELECT 1 FROM queue_tenant WHERE open > 0 LIMIT 1) a) +
	(SELECT count(*) FROM (SELECT 1 FROM queue_change LIMIT 1) c) +
	(SELECT count(*) FROM (SELECT 1 FROM queue_job WHERE state = 3 LIMIT 1) b),
	(SELECT coalesce(min(due), 0) FROM queue_job WHERE state = 1),
	(SELECT count(*) FROM queue_host WHERE until < $1 AND gone = 0 AND owner <> $2),
	(SELECT count(*) FROM queue_host WHERE owner = $2 AND draining > 0)`
	if _, err = eventlog.QueryOne(v, sql, []any{now.UnixNano(), owner}, &n.open, &n.due, &n.dead, &n.draining); err != nil {
		return n, err
	}
	n.cancelled, err = eventlog.QueryAll(v, "SELECT run_id, epoch FROM queue_job WHERE state = 2 AND owner = $1 AND cancelled = 1", []any{owner}, scanEpoch)
	return n, err
}

// scanEpoch reads the run of a job and its epoch.
var scanEpoch = eventlog.Columns(func(l *Lease) []any { return []any{&l.RunID, &l.Epoch} })

// statuses reads jobs with where they stand, by the rest of a query behind its columns.
func statuses(v eventlog.Querier, where string, args ...any) ([]Status, error) {
	const sql = "SELECT " + jobColumns + `, state, due, enqueued, started, epoch, number,
	coalesce((SELECT CASE WHEN label = '' THEN host ELSE label END FROM queue_host WHERE queue_host.owner = queue_job.owner), '') FROM queue_job `
	return eventlog.QueryAll(v, sql+where, args, func(r eventlog.Row) (s Status, err error) {
		var state int
		var due, started time.Time
		var l Lease
		err = scanJob(r, &l, &state, &due, &s.Enqueued, &started, &s.Epoch, &s.Number, &s.Host)
		s.Tenant, s.RunID, s.Priority, s.Snoozes, s.HostFailures = l.Tenant, l.RunID, l.Priority, l.Snoozes, l.HostFailures
		s.Deaths = l.Deaths + l.Stranded
		s.Progress = Progress{State: Waiting, Attempt: l.Attempt, MaxAttempts: l.MaxAttempts}
		switch {
		case l.Cancelled:
			s.State = Cancelling
		case state == sleeping:
			s.State, s.Until = Sleeping, due
		case state == running:
			s.State, s.Since = Running, started
		}
		if l.Class != "" {
			s.LastError = &LastError{l.Class, l.Failure}
		}
		return s, err
	})
}

// Find returns the status of a job, or [ErrNotFound].
func (q *Queue) Find(ctx context.Context, runID string) (Status, error) {
	return eventlog.View(ctx, q.log, func(v eventlog.Querier) (Status, error) {
		list, err := statuses(v, "WHERE run_id = $1", runID)
		if err == nil && len(list) == 0 {
			err = ErrNotFound
		}
		if err != nil {
			return Status{}, err
		}
		s := list[0]
		if s.State != Waiting {
			return s, nil
		}
		const sql = "SELECT count(*) FROM queue_job WHERE tenant = $1 AND state = 0 AND (rank < $2 OR (rank = $2 AND number < $3))"
		_, err = eventlog.QueryOne(v, sql, []any{s.Tenant, int64(-s.Priority), s.Number}, &s.Position)
		return s, err
	})
}

// Lookup returns the status of each run's job that exists, by run. They have no Position.
func (q *Queue) Lookup(ctx context.Context, runIDs ...string) (found map[string]Status, err error) {
	found = make(map[string]Status)
	for some := range slices.Chunk(runIDs, 1000) {
		args, places := make([]any, len(some)), make([]string, len(some))
		for i, id := range some {
			args[i], places[i] = id, fmt.Sprint("$", i+1)
		}
		list, err := eventlog.View(ctx, q.log, func(v eventlog.Querier) ([]Status, error) {
			return statuses(v, "WHERE run_id IN ("+strings.Join(places, ", ")+")", args...)
		})
		if err != nil {
			return found, err
		}
		for _, s := range list {
			found[s.RunID] = s
		}
	}
	return found, nil
}

// Filter selects the jobs that [Queue.List] returns.
type Filter struct {
	Tenant string // only jobs of the tenant; empty is all
	State  State  // only jobs in this state; empty is all
	After  int64  // only those behind the job of that number, see [Status].Number
	Limit  int    // maximum number; zero means 100
}

const defaultLimit = 100

// List returns jobs and where they stand, in the order in which they were enqueued.
// Its Status has no Position.
func (q *Queue) List(ctx context.Context, f Filter) (list []Status, err error) {
	where, args := "WHERE number > $1", []any{f.After}
	if f.Tenant != "" {
		where, args = where+" AND tenant = $2", append(args, f.Tenant)
	}
	if f.State != "" {
		where += " AND state IN (" + map[State]string{Waiting: "0, 3", Sleeping: "1", Running: "2"}[f.State] + ")"
	}
	f.Limit = cmp.Or(f.Limit, defaultLimit)
	return eventlog.View(ctx, q.log, func(v eventlog.Querier) ([]Status, error) {
		return statuses(v, fmt.Sprintf("%s ORDER BY number, run_id LIMIT %d", where, f.Limit), args...)
	})
}

// Stats counts the jobs of all tenants.
func (q *Queue) Stats(ctx context.Context) (all Stats, err error) {
	loads, err := q.Loads(ctx)
	for _, s := range loads {
		all.Waiting, all.Sleeping, all.Running = all.Waiting+s.Waiting, all.Sleeping+s.Sleeping, all.Running+s.Running
		all.Tenants += min(s.Waiting, 1)
		if all.Oldest.IsZero() || s.Oldest.Before(all.Oldest) {
			all.Oldest = s.Oldest
		}
	}
	return all, err
}

// countLoads adds up the counts of each tenant.
const countLoads = "SELECT tenant, sum(ready + ending), sum(sleeping), sum(running) FROM " + allCounts +
	" GROUP BY tenant HAVING sum(ready + sleeping + running + ending) > 0"

// oldestLoads finds when the oldest job of each tenant in each state was enqueued. Of the ready ones,
// the first of each priority is enough, which an index has, as it has the first of those that sleep: a queue
// is long where these are many.
const oldestLoads = `WITH RECURSIVE front (tenant, rank) AS (
	SELECT tenant, (SELECT min(rank) FROM queue_job WHERE tenant = t.tenant AND state = 0)
	FROM (SELECT DISTINCT tenant FROM ` + allCounts + ` WHERE ready > 0) t
	UNION ALL
	SELECT tenant, (SELECT min(rank) FROM queue_job WHERE tenant = front.tenant AND state = 0 AND rank > front.rank) FROM front WHERE rank IS NOT NULL
)
SELECT tenant, (SELECT enqueued FROM queue_job WHERE tenant = front.tenant AND state = 0 AND rank = front.rank ORDER BY number LIMIT 1) FROM front WHERE rank IS NOT NULL
UNION ALL SELECT tenant, (SELECT min(enqueued) FROM queue_job WHERE tenant = t.tenant AND state = 1)
	FROM (SELECT DISTINCT tenant FROM ` + allCounts + ` WHERE sleeping > 0) t
UNION ALL SELECT tenant, min(enqueued) FROM queue_job WHERE state = 2 GROUP BY tenant
UNION ALL SELECT tenant, min(enqueued) FROM queue_job WHERE state = 3 GROUP BY tenant`

// Loads counts the jobs of each tenant that has any.
func (q *Queue) Loads(ctx context.Context) (loads map[string]Stats, err error) {
	err = q.log.View(ctx, func(v eventlog.Querier) error {
		loads = make(map[string]Stats)
		var name string
		err := v.Query(countLoads, nil, func(r eventlog.Row) error {
			var s Stats
			err := r.Scan(&name, &s.Waiting, &s.Sleeping, &s.Running)
			loads[name] = s
			return err
		})
		if err != nil {
			return err
		}
		return v.Query(oldestLoads, nil, func(r eventlog.Row) error {
			var oldest time.Time
			err := r.Scan(&name, &oldest)
			if s, ok := loads[name]; ok && (s.Oldest.IsZero() || oldest.Before(s.Oldest)) {
				s.Oldest = oldest
				loads[name] = s
			}
			return err
		})
	})
	return loads, err
}

// The states of a host.
const (
	HostWorking  = "working"
	HostDraining = "draining" // claims no jobs, and has some left
	HostDrained  = "drained"  // claims no jobs, and has none
	HostSilent   = "silent"   // its lease has ended, and no other host has noticed
	HostGone     = "gone"     // has died
)

// Host is a process that works, or a dead one.
type Host struct {
	ID      string    `json:"id"`   // unique to the process; a later process with the same name has another
	Name    string    `json:"name"` // Config.Label
	Version string    `json:"version,omitempty"`
	State   string    `json:"state"`
	Running int       `json:"running"`           // its jobs
	Began   time.Time `json:"began_at,omitzero"` // when it began to work; zero for a dead host
	Seen    time.Time `json:"seen_at,omitzero"`  // when it last renewed its lease
	Gone    time.Time `json:"gone_at,omitzero"`  // when it was found dead; zero for a live host
}

// Hosts returns the working processes, and those that died within a day and were not
// replaced, by name.
func (q *Queue) Hosts(ctx context.Context) ([]Host, error) {
	const sql = `SELECT owner, CASE WHEN label = '' THEN host ELSE label END, version, began, seen, draining, gone,
	CASE WHEN until < $1 AND gone = 0 THEN 1 ELSE 0 END,
	(SELECT count(*) FROM queue_job WHERE state = 2 AND queue_job.owner = queue_host.owner) FROM queue_host ORDER BY 2, owner`
	return eventlog.ViewAll(ctx, q.log, sql, []any{q.cfg.Clock.Now().UnixNano()}, func(r eventlog.Row) (h Host, err error) {
		var draining, silent bool
		err = r.Scan(&h.ID, &h.Name, &h.Version, &h.Began, &h.Seen, &draining, &h.Gone, &silent, &h.Running)
		switch h.State = HostWorking; {
		case !h.Gone.IsZero():
			h.State = HostGone
		case silent:
			h.State = HostSilent
		case draining && h.Running > 0:
			h.State = HostDraining
		case draining:
			h.State = HostDrained
		}
		h.ID = strings.TrimPrefix(h.ID, "gone ")
		return h, err
	})
}

// Shown returns the progress of a job without the message of its last error, for tenants.
func (s Progress) Shown() Progress {
	if s.LastError != nil {
		s.LastError = &LastError{Class: s.LastError.Class}
	}
	return s
}

// Attempts returns the attempt and the maximum: "1 of 5".
func (s Progress) Attempts() string { return fmt.Sprintf("%d of %d", s.Attempt, s.MaxAttempts) }

// Why says in one line why the last attempt came to nothing, or nothing. The text is not
// escaped.
func (s Progress) Why() string {
	if s.LastError == nil {
		return ""
	}
	return strings.TrimSuffix(s.LastError.Class+": "+display.OneLine(s.LastError.Message), ": ")
}

// Sentence says in one line where the job stands. The text is not escaped.
func (s Status) Sentence() string {
	line := string(s.State)
	if s.Host != "" {
		line += " on " + s.Host
	}
	if !s.Until.IsZero() {
		line += " until " + s.Until.Format(millis)
	} else if !s.Since.IsZero() {
		line += " since " + s.Since.Format(millis)
	}
	line += ", attempt " + s.Attempts()
	if why := s.Why(); why != "" {
		line += ", last error " + why
	}
	return line
}

// millis is the format of times for people.
const millis = "2006-01-02T15:04:05.000Z07:00"

// Overview is a page of the queue as operators see it.
type Overview struct {
	Tenants []Stats  `json:"tenants"`        // that have jobs in the queue, by name
	Items   []Status `json:"items"`          // in the order in which they were enqueued
	Next    int64    `json:"next,omitempty"` // Filter.After of the next page
}

// HostList is the hosts that work on the queue, and the dead ones.
type HostList struct {
	Items []Host `json:"items"`
}

// Overview returns a page of the queue as operators see it.
func (q *Queue) Overview(ctx context.Context, f Filter) (Overview, error) {
	doc := Overview{Tenants: []Stats{}, Items: []Status{}}
	loads, err := q.Loads(ctx)
	if err != nil {
		return doc, err
	}
	for name, load := range loads {
		if load.Tenant, load.Paused = name, q.cfg.Limits(name).Paused; f.Tenant == "" || f.Tenant == name {
			doc.Tenants = append(doc.Tenants, load)
		}
	}
	slices.SortFunc(doc.Tenants, func(a, b Stats) int { return strings.Compare(a.Tenant, b.Tenant) })
	limit := cmp.Or(f.Limit, defaultLimit)
	f.Limit = limit + 1
	jobs, err := q.List(ctx, f)
	if len(jobs) > limit {
		for limit > 1 && jobs[limit-1].Number == jobs[limit].Number { // of two hosts at once
			limit--
		}
		jobs = jobs[:limit]
		doc.Next = jobs[limit-1].Number
	}
	doc.Items = append(doc.Items, jobs...)
	return doc, err
}

// HostList returns the hosts as operators see them.
func (q *Queue) HostList(ctx context.Context) (HostList, error) {
	hosts, err := q.Hosts(ctx)
	return HostList{Items: append([]Host{}, hosts...)}, err
}
