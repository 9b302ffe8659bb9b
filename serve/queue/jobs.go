package queue

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/internal/lists"
	"github.com/starling-host/starling/serve/tenant"
)

// newJob is a job that is not in the table yet.
type newJob struct {
	numbered
	owner string // empty until it is handed out
}

// enqueue adds a job. [ErrFull] and [ErrTenantFull] are a refusal, which has changed
// nothing. That a job of the run exists may show only later, as the error [ErrExists] of
// any other method, flush at the latest.
func (s *storeTx) enqueue(j Job) (refusal, err error) {
	waiting, err := s.waitingOf(j.Tenant)
	if err != nil {
		return nil, err
	}
	switch most := s.cfg.Limits(j.Tenant).MaxWaiting; {
	case s.waiting >= int64(s.cfg.MaxWaiting):
		return ErrFull, nil
	case most > 0 && waiting >= int64(most):
		return ErrTenantFull, nil
	case s.inserted[j.RunID] != nil:
		return ErrExists, nil
	}
	j.MaxAttempts = cmp.Or(j.MaxAttempts, DefaultMaxAttempts)
	j.Payload = append([]byte{}, j.Payload...)
	// A job's number is microseconds since 1970, and more than the last one: so hosts need no counter that all of
	// them change.
	*s.cfg.number = max(s.now/1000, *s.cfg.number+1)
	added := &newJob{numbered: numbered{Lease{Job: j}, *s.cfg.number}}
	if s.inserted == nil {
		s.inserted = make(map[string]*newJob)
	}
	s.inserts, s.inserted[j.RunID] = append(s.inserts, added), added
	return nil, s.move(j.Tenant, states, ready)
}

// waitingOf counts the jobs of a tenant that are not running.
func (s *storeTx) waitingOf(name string) (int64, error) {
	t, err := s.tenant(name)
	if err != nil {
		return 0, err
	}
	return t.n[ready] + t.n[sleeping] + t.n[ending], nil
}

const insertJob = `INSERT INTO queue_job (run_id, tenant, number, rank, max_attempts, enqueued, payload,
	state, epoch, attempt, owner, started) `

var insertJobs = statement{
	one: insertJob + "VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12) ON CONFLICT DO NOTHING",
	many: insertJob + `SELECT v.* FROM unnest($1::text[], $2::text[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[],
	$7::bytea[], $8::bigint[], $9::bigint[], $10::bigint[], $11::text[], $12::bigint[]) AS v
	ON CONFLICT DO NOTHING`,
}

// push writes the jobs that were finished and added.
func (s *storeTx) push() error {
	if err := s.pushFinished(); err != nil {
		return err
	}
	rows := make([][]any, len(s.inserts))
	for i, j := range s.inserts {
		state, started := ready, int64(0)
		if j.owner != "" {
			state, started = running, s.now
		}
		rows[i] = []any{j.RunID, j.Tenant, j.number, int64(-j.Priority), int64(j.MaxAttempts), s.now, j.Payload,
			int64(state), int64(j.Epoch), int64(j.Attempt), j.owner, started}
	}
	s.inserts, s.inserted = nil, nil
	n, err := s.execAll(&insertJobs, rows)
	if err == nil && n < int64(len(rows)) {
		err = ErrExists // for one of the jobs
	}
	return err
}

// finish removes a job that was handed out in that epoch. It is not an error if the job
// was handed out again since, or is gone. A job that went back and was not handed out
// again is done too: its run has ended.
func (s *storeTx) finish(l Lease, u tenant.DayUsage) { s.finished = append(s.finished, finished{l, u}) }

// finished is a job that is done, and what its run has used.
type finished struct {
	Lease
	used tenant.DayUsage
}

// state + 0 keeps the server away from the index over all that runs.
var deleteJobs = statement{
	one: "DELETE FROM queue_job WHERE run_id = $1 AND epoch = $2 AND state = 2",
	many: `DELETE FROM queue_job USING unnest($1::text[], $2::bigint[]) AS v(run_id, epoch)
	WHERE queue_job.run_id = v.run_id AND queue_job.epoch = v.epoch AND state + 0 = 2 RETURNING queue_job.run_id`,
}

// pushFinished removes the finished jobs, and inspects any that is not running in its
// epoch.
func (s *storeTx) pushFinished() error {
	if len(s.finished) == 0 {
		return nil
	}
	leases, gone := s.finished, make(map[string]bool, len(s.finished))
	s.finished = nil
	rows := lists.Map(leases, func(l finished) []any { return []any{l.RunID, int64(l.Epoch)} })
	var err error
	if s.bulk != nil {
		err = s.queryAll(&deleteJobs, rows, func(r eventlog.Row) error {
			var runID string
			err := r.Scan(&runID)
			gone[runID] = true
			return err
		})
	} else { // one by one, and without RETURNING, which is expensive in SQLite
		for i, l := range leases {
			n, err := s.tx.Exec(deleteJobs.one, rows[i]...)
			if err != nil {
				return err
			}
			gone[l.RunID] = gone[l.RunID] || n == 1
		}
	}
	for _, l := range leases {
		switch {
		case err != nil:
			return err
		case gone[l.RunID]:
			s.done(l.Tenant, l.used)
			err = s.move(l.Tenant, running, states)
		default:
			r, ok, readErr := s.read(l.RunID)
			if readErr != nil {
				return readErr
			}
			if ok && r.epoch == l.Epoch {
				if _, err = s.tx.Exec("DELETE FROM queue_job WHERE run_id = $1", l.RunID); err == nil {
					s.done(r.tenant, l.used)
					err = s.move(r.tenant, r.state, states)
				}
			}
		}
	}
	return err
}

// jobRow has the columns that a change to a job needs.
type jobRow struct {
	tenant, owner string
	state         int
	epoch         uint64
	cancelled     bool
}

// find reads a job, including the unwritten changes of this transaction.
func (s *storeTx) find(runID string) (r jobRow, ok bool, err error) {
	if err := s.push(); err != nil {
		return r, false, err
	}
	return s.read(runID)
}

// read reads a job from the table, to change it.
func (s *storeTx) read(runID string) (r jobRow, ok bool, err error) {
	const sql = "SELECT tenant, owner, state, epoch, cancelled FROM queue_job WHERE run_id = $1"
	ok, err = eventlog.QueryOne(s.tx, sql+s.locking(""), []any{runID}, &r.tenant, &r.owner, &r.state, &r.epoch, &r.cancelled)
	return r, ok, err
}

// verdict describes how a job comes back.
type verdict struct {
	after         time.Duration // zero or less means at once
	free          bool          // the attempt is not spent
	snooze, host  bool          // it is a snooze, or a failure of the host; both are free
	class, reason string        // the reason; empty keeps the old one
}

// giveBack puts back a job that was handed out in that epoch. It is not an error if the
// job was handed out again since, or is gone. A job that was cancelled meanwhile comes
// back at once.
func (s *storeTx) giveBack(l Lease, v verdict) error {
	r, ok, err := s.find(l.RunID)
	if err != nil || !ok || r.epoch != l.Epoch || r.state != running {
		return err
	}
	to, due := sleeping, s.now+int64(v.after)
	switch {
	case r.cancelled && (v.after <= 0 || !l.Cancelled):
		to = ending
	case v.after <= 0:
		to = ready
	}
	const sql = `UPDATE queue_job SET state = $1, due = $2, attempt = attempt - $3, snoozes = snoozes + $4, host_failures = host_failures + $5,
	class = CASE WHEN $6 = '' THEN class ELSE $6 END, failure = CASE WHEN $6 = '' THEN failure ELSE $7 END, owner = '' WHERE run_id = $8`
	if _, err := s.tx.Exec(sql, int64(to), due, eventlog.Flag(v.free || v.snooze || v.host), eventlog.Flag(v.snooze), eventlog.Flag(v.host), v.class, v.reason, l.RunID); err != nil {
		return err
	}
	return s.move(r.tenant, running, to)
}

// resetJob takes the state, whether the process of the job has died, and the run.
const resetJob = `UPDATE queue_job SET state = $1, attempt = attempt - $2, deaths = deaths + $2 * begun,
	stranded = stranded + $2 * (1 - begun), owner = '', class = CASE WHEN $2 = 1 THEN '' ELSE class END,
	failure = CASE WHEN $2 = 1 THEN '' ELSE failure END WHERE run_id = $3`

// reset makes ready the jobs that the query selects, all in the state from, and returns
// their number. Jobs in state running come back because their process died. That spends
// no attempt; but a run that had begun may be the reason, so its deaths are counted.
func (s *storeTx) reset(query string, from int, args ...any) (n int, err error) {
	type job struct {
		runID, tenant string
		cancelled     bool
	}
	if err := s.push(); err != nil {
		return 0, err
	}
	jobs, err := eventlog.QueryAll(s.tx, query+s.locking(""), args, eventlog.Columns(func(j *job) []any { return []any{&j.runID, &j.tenant, &j.cancelled} }))
	for _, j := range jobs {
		to := ready
		if j.cancelled {
			to = ending
		}
		if err == nil {
			_, err = s.tx.Exec(resetJob, int64(to), eventlog.Flag(from == running), j.runID)
		}
		if err == nil {
			err = s.move(j.tenant, from, to)
		}
	}
	return len(jobs), err
}

// register adds a process that begins to work. It replaces the process that had its name
// before and makes that one's jobs ready; it returns that process if it has died. An
// empty name replaces none. A process that has lost its lease replaces what it was before, too, and
// what an earlier try has left of itself; whether it drains is what an operator has told either.
func (s *storeTx) register(before, owner, name string, until time.Time, draining bool) (dead []lost, err error) {
	const told = "SELECT draining FROM queue_host WHERE owner IN ($1, $2, $3, $4)"
	_, err = eventlog.QueryOne(s.tx, told, []any{before, "gone " + before, owner, "gone " + owner}, &draining)
	if err == nil {
		dead, err = s.removeHosts("owner IN ($1, $2) OR host = $3 AND host <> ''", before, owner, name)
	}
	if err != nil {
		return nil, err
	}
	const forget = "DELETE FROM queue_host WHERE gone > 0 AND (gone < $1 OR label = $2)"
	if _, err := s.tx.Exec(forget, s.now-int64(rememberGone), s.cfg.Label); err != nil {
		return nil, err
	}
	const sql = "INSERT INTO queue_host (owner, host, until, label, version, began, seen, draining) VALUES ($1, $2, $3, $4, $5, $6, $6, $7)"
	_, err = s.tx.Exec(sql, owner, name, until.UnixNano(), s.cfg.Label, s.cfg.Version, s.now, eventlog.Flag(draining))
	return dead, err
}

// rememberGone is how long a dead host stays in the list.
const rememberGone = 24 * time.Hour

// errReplaced means that others took this process for dead: its lease ended, or another
// process with its name has begun since.
var errReplaced = errors.New("queue: this process has not renewed its lease in time, or another one has begun under its name (queue.host); its jobs were given to others")

// renew extends the lease of a live host. For any other process it returns [errReplaced].
func (s *storeTx) renew(owner string, until time.Time) error {
	n, err := s.tx.Exec("UPDATE queue_host SET until = $1, seen = $2 WHERE owner = $3", until.UnixNano(), s.now, owner)
	if err == nil && n == 0 {
		err = errReplaced
	}
	return err
}

// lost is a host that is no longer alive.
type lost struct {
	owner, label, version string
	seen                  int64
	draining              bool
	jobs                  int
}

// recover finds the other processes that have not renewed their lease, makes their jobs
// ready, and returns these processes. They stay listed for a while under another owner,
// so that a process that comes back finds itself replaced.
func (s *storeTx) recover(owner string) ([]lost, error) {
	dead, err := s.removeHosts("until < $1 AND gone = 0 AND owner <> $2", s.now, owner)
	for _, d := range dead {
		if err == nil {
			const sql = "INSERT INTO queue_host (owner, host, until, label, version, seen, draining, gone) VALUES ($1, '', 0, $2, $3, $4, $5, $6) ON CONFLICT DO NOTHING"
			_, err = s.tx.Exec(sql, "gone "+d.owner, d.label, d.version, d.seen, eventlog.Flag(d.draining), s.now)
		}
	}
	return dead, err
}

// removeHosts removes the hosts for which the condition holds, makes their jobs ready, and returns them.
func (s *storeTx) removeHosts(where string, args ...any) (dead []lost, err error) {
	query := "SELECT owner, label, version, seen, draining FROM queue_host WHERE " + where + s.locking("")
	dead, err = eventlog.QueryAll(s.tx, query, args, eventlog.Columns(func(d *lost) []any { return []any{&d.owner, &d.label, &d.version, &d.seen, &d.draining} }))
	for i, d := range dead {
		if err == nil {
			dead[i].jobs, err = s.reset("SELECT run_id, tenant, cancelled FROM queue_job WHERE state = 2 AND owner = $1 ORDER BY number", running, d.owner)
		}
		if err == nil {
			_, err = s.tx.Exec("DELETE FROM queue_host WHERE owner = $1", d.owner)
		}
	}
	return dead, err
}

// releaseUnclaimed gives back the owner's jobs that it does not have. has maps run ids to
// epochs. The attempts of the others never began.
func (s *storeTx) releaseUnclaimed(owner string, has map[string]uint64) error {
	if err := s.push(); err != nil {
		return err
	}
	leases, err := eventlog.QueryAll(s.tx, "SELECT run_id, epoch FROM queue_job WHERE state = 2 AND owner = $1", []any{owner}, scanEpoch)
	for _, l := range leases {
		if err == nil && has[l.RunID] != l.Epoch {
			err = s.giveBack(l, verdict{free: true})
		}
	}
	return err
}

// UsageDays is for how many days the usage of tenants is kept.
const UsageDays = 400

// dayOf returns the number of the day of a point in time.
func dayOf(ns int64) int64 { return ns / int64(24*time.Hour) }

// maxUsage bounds the usage of one run, so that no sum exceeds a database integer.
const maxUsage = 1 << 50

// usageRow names a row of queue_usage.
type usageRow struct {
	tenant string
	day    int64
}

// done counts the usage of a run whose job is done.
func (s *storeTx) done(id string, u tenant.DayUsage) {
	u.Runs = 1
	s.use(usageRow{id, dayOf(s.now)}, u)
}

// use adds to the usage of a tenant.
func (s *storeTx) use(of usageRow, u tenant.DayUsage) {
	if u == (tenant.DayUsage{}) {
		return
	}
	if s.usage == nil {
		s.usage = make(map[usageRow]tenant.DayUsage)
	}
	sum := s.usage[of]
	sum.Runs += u.Runs
	sum.Fuel += min(max(u.Fuel, 0), maxUsage)
	sum.Effects += min(max(u.Effects, 0), maxUsage)
	sum.EgressBytes += min(max(u.EgressBytes, 0), maxUsage)
	sum.RecordedBytes += min(max(u.RecordedBytes, 0), maxUsage)
	s.usage[of] = sum
}

var addUsage = statement{
	one: "INSERT INTO queue_usage (tenant, day, runs, fuel, effects, egress, recorded) VALUES ($1, $2, $3, $4, $5, $6, $7)" + toUsage,
	many: `INSERT INTO queue_usage (tenant, day, runs, fuel, effects, egress, recorded) SELECT *
	FROM unnest($1::text[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[], $7::bigint[])` + toUsage,
}

const toUsage = ` ON CONFLICT (tenant, day) DO UPDATE SET runs = queue_usage.runs + excluded.runs, fuel = queue_usage.fuel + excluded.fuel,
	effects = queue_usage.effects + excluded.effects, egress = queue_usage.egress + excluded.egress, recorded = queue_usage.recorded + excluded.recorded`

// HeldBytes returns the size of a tenant's jobs that have not ended.
func (q *Queue) HeldBytes(ctx context.Context, id string) (int64, error) {
	const sql = "SELECT coalesce(sum(length(payload)), 0) FROM queue_job WHERE tenant = $1"
	return eventlog.View(ctx, q.log, func(v eventlog.Querier) (n int64, err error) {
		return n, v.Query(sql, []any{id}, func(r eventlog.Row) error { return r.Scan(&n) })
	})
}

// Usage returns a tenant's usage for each of the last days, newest first, today included. A
// day on which no run ended is left out.
func (q *Queue) Usage(ctx context.Context, id string, days int) ([]tenant.DayUsage, error) {
	const sql = `SELECT day, CAST(sum(runs) AS BIGINT), CAST(sum(fuel) AS BIGINT), CAST(sum(effects) AS BIGINT), CAST(sum(egress) AS BIGINT), CAST(sum(recorded) AS BIGINT) FROM (
	SELECT tenant, day, runs, fuel, effects, egress, recorded FROM queue_usage
	UNION ALL SELECT tenant, day, runs, fuel, effects, egress, recorded FROM queue_change WHERE runs > 0) u WHERE tenant = $1 AND day > $2 GROUP BY day ORDER BY day DESC`
	since := dayOf(q.cfg.Clock.Now().UnixNano()) - int64(days)
	return eventlog.ViewAll(ctx, q.log, sql, []any{id, since}, func(r eventlog.Row) (u tenant.DayUsage, err error) {
		var day int64
		err = r.Scan(&day, &u.Runs, &u.Fuel, &u.Effects, &u.EgressBytes, &u.RecordedBytes)
		u.Day = time.Unix(0, day*int64(24*time.Hour)).UTC().Format(time.DateOnly)
		return u, err
	})
}
