package book

import (
	"cmp"
	"slices"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/host/queue"
)

const jobColumns = "run_id, tenant, rank, max_attempts, attempt, snoozes, cancelled, failure, payload"

func scanJob(r eventlog.Row) (l queue.Lease, err error) {
	var rank, maximum, attempt, snoozes, cancelled int64
	err = r.Scan(&l.RunID, &l.Tenant, &rank, &maximum, &attempt, &snoozes, &cancelled, &l.Failure, &l.Payload)
	l.Priority, l.MaxAttempts, l.Attempt, l.Snoozes, l.Cancelled = int(-rank), int(maximum), int(attempt), int(snoozes), cancelled != 0
	return l, err
}

// Claim hands out jobs to owner, one for each of the turns or fewer, in the order
// in which it is their turn. turns are what [Cancelled].Turn will be.
func (b *Tx) Claim(owner string, turns []int64) ([]queue.Lease, error) {
	leases, err := b.endings(len(turns))
	if err != nil {
		return nil, err
	}
	fair, err := b.takeTurns(len(turns) - len(leases))
	if err != nil {
		return nil, err
	}
	leases = append(leases, fair...)
	for i := range leases {
		if err := b.handOut(&leases[i], owner, turns[i]); err != nil {
			return nil, err
		}
	}
	return leases, nil
}

// handOut fences the run and writes down who has the job.
func (b *Tx) handOut(l *queue.Lease, owner string, turn int64) (err error) {
	from := ready
	if l.Cancelled {
		from = ending
	}
	l.Attempt++
	l.Exhausted = l.Attempt > l.MaxAttempts
	if l.Epoch, err = b.tx.Fence(l.RunID); err != nil {
		return err
	}
	const sql = "UPDATE queue_job SET state = 2, attempt = $1, epoch = $2, owner = $3, turn = $4, failure = '' WHERE run_id = $5"
	if _, err := b.tx.Exec(sql, int64(l.Attempt), int64(l.Epoch), owner, turn, l.RunID); err != nil {
		return err
	}
	return b.move(l.Tenant, from, running)
}

// endings returns jobs that were cancelled, the oldest first.
func (b *Tx) endings(n int) (leases []queue.Lease, err error) {
	if n == 0 {
		return nil, nil
	}
	err = b.tx.Query("SELECT "+jobColumns+" FROM queue_job WHERE state = 3 ORDER BY number LIMIT $1", []any{int64(n)}, func(r eventlog.Row) error {
		l, err := scanJob(r)
		leases = append(leases, l)
		return err
	})
	return leases, err
}

// takeTurns gives n turns to the tenants with the lowest tags and returns a job for
// each. Tags and virtual time are moved on; the counts are left to handOut.
func (b *Tx) takeTurns(n int) ([]queue.Lease, error) {
	if n == 0 {
		return nil, nil
	}
	if err := b.load(); err != nil {
		return nil, err
	}
	line, err := b.open(n)
	if err != nil {
		return nil, err
	}
	var order []*tenant
	taken := make(map[*tenant]int)
	for range n {
		t := lowest(line, taken)
		if t == nil {
			break
		}
		b.virtual = max(b.virtual, t.tag)
		t.tag += 1 / weight(b.rules.Limits(t.name))
		order = append(order, t)
		taken[t]++
	}
	return b.fetch(order, taken)
}

// weight is what the tenant's turns are divided by.
func weight(l queue.Limits) float64 {
	if l.Weight > 0 {
		return l.Weight
	}
	return 1
}

// open returns the tenants with the n lowest tags among those that have jobs that
// may be handed out. No others can have one of the next n turns. Tenants that this
// transaction has changed count as they are now.
func (b *Tx) open(n int) (line []*tenant, err error) {
	for _, t := range b.tenants {
		if t.reckon(b.rules.Limits(t.name)); t.open > 0 {
			line = append(line, t)
		}
	}
	const sql = "SELECT tenant, " + tenantColumns + " FROM queue_tenant WHERE open > 0 ORDER BY tag LIMIT $1"
	err = b.tx.Query(sql, []any{int64(n + len(b.tenants))}, func(r eventlog.Row) error {
		t := &tenant{known: true}
		if err := r.Scan(append([]any{&t.name}, t.before.columns()...)...); err != nil {
			return err
		}
		t.counts = t.before
		if b.tenants[t.name] != nil {
			return nil
		}
		if t.reckon(b.rules.Limits(t.name)); t.open > 0 {
			line = append(line, t)
		}
		b.tenants[t.name] = t // its limits may have changed since it was written
		return nil
	})
	slices.SortFunc(line, func(x, y *tenant) int { return cmp.Or(cmp.Compare(x.tag, y.tag), cmp.Compare(x.name, y.name)) })
	return line, err
}

// lowest returns the tenant whose turn it is among those that have a job left.
func lowest(line []*tenant, taken map[*tenant]int) (least *tenant) {
	for _, t := range line {
		if int64(taken[t]) < t.open && (least == nil || t.tag < least.tag) {
			least = t
		}
	}
	return least
}

// fetch reads as many jobs of each tenant as it has turns, and returns them in the
// order of the turns.
func (b *Tx) fetch(order []*tenant, taken map[*tenant]int) ([]queue.Lease, error) {
	jobs := make(map[*tenant][]queue.Lease, len(taken))
	for _, t := range order {
		if jobs[t] != nil {
			continue
		}
		const sql = "SELECT " + jobColumns + " FROM queue_job WHERE tenant = $1 AND state = 0 ORDER BY rank, number LIMIT $2"
		err := b.tx.Query(sql, []any{t.name, int64(taken[t])}, func(r eventlog.Row) error {
			l, err := scanJob(r)
			jobs[t] = append(jobs[t], l)
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	leases := make([]queue.Lease, 0, len(order))
	for _, t := range order {
		if len(jobs[t]) > 0 {
			leases = append(leases, jobs[t][0])
			jobs[t] = jobs[t][1:]
		}
	}
	return leases, nil
}
