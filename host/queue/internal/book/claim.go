package book

import (
	"cmp"
	"slices"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/host/queue"
)

const jobColumns = "run_id, tenant, rank, max_attempts, attempt, deaths, stranded, snoozes, cancelled, failure, payload"

func scanJob(r eventlog.Row) (l queue.Lease, err error) {
	var rank, maximum, attempt, deaths, stranded, snoozes, cancelled int64
	err = r.Scan(&l.RunID, &l.Tenant, &rank, &maximum, &attempt, &deaths, &stranded, &snoozes, &cancelled, &l.Failure, &l.Payload)
	l.Priority, l.MaxAttempts, l.Attempt, l.Deaths = int(-rank), int(maximum), int(attempt), int(deaths)
	l.Stranded, l.Snoozes, l.Cancelled = int(stranded), int(snoozes), cancelled != 0
	return l, err
}

// Claim hands out jobs to owner, one for each of the turns or fewer, in the order
// in which it is their turn. turns are what [Cancelled].Turn will be. The last kept
// of them are for tenants of which nothing runs.
func (b *Tx) Claim(owner string, turns []int64, kept int) ([]queue.Lease, error) {
	if err := b.pushFinished(); err != nil {
		return nil, err
	}
	leases, err := b.endings(len(turns))
	if err != nil {
		return nil, err
	}
	left := len(turns) - len(leases)
	fair, err := b.takeTurns(left, min(kept, left))
	if err != nil {
		return nil, err
	}
	leases = append(leases, fair...)
	if err := b.fence(leases); err != nil {
		return nil, err
	}
	for i := range leases {
		l := &leases[i]
		l.Attempt++
		l.Exhausted = l.Attempt > l.MaxAttempts || l.Deaths >= queue.MaxDeaths || l.Stranded >= queue.MaxStranded
		from := ready
		if l.Cancelled {
			from = ending
		}
		if err := b.move(l.Tenant, from, running); err != nil {
			return nil, err
		}
	}
	return leases, b.hand(leases, turns, owner)
}

// hand writes down who has the jobs: in their rows, or in what is to become one.
func (b *Tx) hand(leases []queue.Lease, turns []int64, owner string) error {
	var rows [][]any
	for i, l := range leases {
		if f := b.inserted[l.RunID]; f != nil {
			f.Lease, f.turn, f.owner = l, turns[i], owner
			continue
		}
		rows = append(rows, []any{l.RunID, int64(l.Epoch), int64(l.Attempt), turns[i], owner})
	}
	_, err := b.execAll(&updateHanded, rows)
	return err
}

var updateHanded = bulk{
	one: "UPDATE queue_job SET state = 2, epoch = $2, attempt = $3, turn = $4, owner = $5, begun = 0, failure = '' WHERE run_id = $1",
	many: `UPDATE queue_job SET state = 2, epoch = v.epoch, attempt = v.attempt, turn = v.turn, owner = v.owner, begun = 0, failure = ''
	FROM unnest($1::text[], $2::bigint[], $3::bigint[], $4::bigint[], $5::text[]) AS v(run_id, epoch, attempt, turn, owner)
	WHERE queue_job.run_id = v.run_id`,
}

// fence makes new epochs of the runs.
func (b *Tx) fence(leases []queue.Lease) (err error) {
	if b.server == nil {
		for i := range leases {
			if leases[i].Epoch, err = b.tx.Fence(leases[i].RunID); err != nil {
				return err
			}
		}
		return nil
	}
	if len(leases) == 0 {
		return nil
	}
	runs := make([]string, len(leases))
	for i, l := range leases {
		runs[i] = l.RunID
	}
	epochs, err := b.server.FenceAll(runs)
	for i, l := range leases {
		leases[i].Epoch = epochs[l.RunID]
	}
	return err
}

// endings returns jobs that were cancelled, the oldest first.
func (b *Tx) endings(n int) (leases []queue.Lease, err error) {
	if err := b.load(); err != nil || n == 0 || !b.ends {
		return nil, err
	}
	err = b.tx.Query("SELECT "+jobColumns+" FROM queue_job WHERE state = 3 ORDER BY number LIMIT $1", []any{int64(n)}, func(r eventlog.Row) error {
		l, err := scanJob(r)
		leases = append(leases, l)
		return err
	})
	return leases, err
}

// takeTurns gives n turns to the tenants with the lowest tags and returns a job for
// each, the last kept turns to tenants of which nothing runs. Tags and virtual time
// are moved on; the counts are left to Claim.
func (b *Tx) takeTurns(n, kept int) ([]queue.Lease, error) {
	if n == 0 {
		return nil, nil
	}
	if err := b.load(); err != nil {
		return nil, err
	}
	line, err := b.open(n, kept > 0)
	if err != nil {
		return nil, err
	}
	var order []*tenant
	taken := make(map[*tenant]int)
	for i := range n {
		t := lowest(line, taken, i >= n-kept)
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

// The tenants with the lowest tags among those that have jobs that may be handed out:
// any, and those of which nothing runs.
const (
	openTenants = "SELECT tenant, " + tenantColumns + " FROM queue_tenant WHERE open > 0 ORDER BY tag LIMIT $1 + 0"
	idleTenants = "SELECT tenant, " + tenantColumns + " FROM queue_tenant WHERE open > 0 AND running = 0 ORDER BY tag LIMIT $1 + 0"
)

// open returns the tenants with the n lowest tags among those that have jobs that
// may be handed out, and those with the n lowest of which nothing runs if turns are
// kept for them. No others can have one of the next n turns. Tenants that this
// transaction has changed count as they are now.
func (b *Tx) open(n int, kept bool) (line []*tenant, err error) {
	n += len(b.tenants)
	err = b.meet(openTenants, n)
	if err == nil && kept {
		err = b.meet(idleTenants, n)
	}
	for _, t := range b.tenants {
		if t.reckon(b.rules.Limits(t.name)); t.open > 0 {
			line = append(line, t)
		}
	}
	slices.SortFunc(line, func(x, y *tenant) int { return cmp.Or(cmp.Compare(x.tag, y.tag), cmp.Compare(x.name, y.name)) })
	return line, err
}

// meet reads the rows of tenants that this transaction has not met.
func (b *Tx) meet(sql string, n int) error {
	return b.tx.Query(sql, []any{int64(n)}, func(r eventlog.Row) error {
		t := new(tenant)
		if err := r.Scan(append([]any{&t.name}, t.before.columns()...)...); err != nil {
			return err
		}
		t.counts = t.before
		if b.tenants[t.name] == nil {
			b.tenants[t.name] = t
		}
		return nil
	})
}

// lowest returns the tenant whose turn it is among those that have a job left, and
// nothing that runs if the turn is kept for such.
func lowest(line []*tenant, taken map[*tenant]int, kept bool) (least *tenant) {
	for _, t := range line {
		if kept && t.n[running]+int64(taken[t]) > 0 {
			continue
		}
		if int64(taken[t]) < t.open && (least == nil || t.tag < least.tag) {
			least = t
		}
	}
	return least
}

// fetch finds as many jobs of each tenant as it has turns, in the table and among those
// that are to be added, and returns them in the order of the turns.
func (b *Tx) fetch(order []*tenant, taken map[*tenant]int) ([]queue.Lease, error) {
	jobs := make(map[string][]placed, len(taken))
	rows := make([][]any, 0, len(taken))
	for t, n := range taken {
		rows = append(rows, []any{t.name, int64(n)})
	}
	var err error
	err = b.queryAll(&selectLines, rows, func(r eventlog.Row) error {
		var p placed
		p.Lease, err = scanJob(rest{r, []any{&p.number}})
		jobs[p.Tenant] = append(jobs[p.Tenant], p)
		return err
	})
	if err != nil {
		return nil, err
	}
	for _, f := range b.inserts {
		jobs[f.Tenant] = append(jobs[f.Tenant], f.placed)
	}
	for _, line := range jobs { // databases promise the order of no join
		slices.SortFunc(line, func(x, y placed) int {
			return cmp.Or(cmp.Compare(y.Priority, x.Priority), cmp.Compare(x.number, y.number))
		})
	}
	leases := make([]queue.Lease, 0, len(order))
	for _, t := range order {
		if line := jobs[t.name]; len(line) > 0 {
			leases = append(leases, line[0].Lease)
			jobs[t.name] = line[1:]
		}
	}
	return leases, nil
}

// placed is a job with its place in the order of all.
type placed struct {
	queue.Lease
	number int64
}

// selectLines reads the fronts of tenants' lines. SQLite looks at a limit that is
// nothing but a parameter and prepares the statement again for each value.
var selectLines = bulk{
	one: "SELECT " + jobColumns + ", number FROM queue_job WHERE tenant = $1 AND state = 0 ORDER BY rank, number LIMIT $2 + 0",
	many: `SELECT line.* FROM unnest($1::text[], $2::bigint[]) AS v(tenant, turns), LATERAL (
	SELECT ` + jobColumns + `, number FROM queue_job WHERE tenant = v.tenant AND state = 0 ORDER BY rank, number LIMIT v.turns) AS line`,
}
