package queue

import (
	"cmp"
	"slices"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/internal/lists"
)

// jobColumns are the columns of a lease, without its payload, which may be large.
const jobColumns = "run_id, tenant, rank, max_attempts, attempt, deaths, stranded, snoozes, host_failures, cancelled, class, failure"

// scanJob reads jobColumns, and what more the query has.
func scanJob(r eventlog.Row, l *Lease, more ...any) error {
	err := r.Scan(append([]any{&l.RunID, &l.Tenant, &l.Priority, &l.MaxAttempts, &l.Attempt, &l.Deaths, &l.Stranded, &l.Snoozes,
		&l.HostFailures, &l.Cancelled, &l.Class, &l.Failure}, more...)...)
	l.Priority = -l.Priority
	return err
}

// claim hands out at most n jobs to owner: first the cancelled ones, then others by fair
// queueing. The last reserved of the n go to tenants without a running job.
func (s *storeTx) claim(owner string, n, reserved int) ([]Lease, error) {
	if err := s.pushFinished(); err != nil {
		return nil, err
	}
	var leases []Lease
	if s.ends {
		var err error
		leases, err = eventlog.QueryAll(s.tx, "SELECT "+jobColumns+", payload FROM queue_job WHERE state = 3 ORDER BY number LIMIT $1"+s.locking(" SKIP LOCKED"), []any{int64(n)}, func(r eventlog.Row) (l Lease, err error) {
			err = scanJob(r, &l, &l.Payload)
			return l, err
		})
		if err != nil {
			return nil, err
		}
	}
	if n -= len(leases); n > 0 {
		fair, err := s.claimFairly(n, min(reserved, n))
		if err != nil {
			return nil, err
		}
		leases = append(leases, fair...)
	}
	if err := s.fence(leases); err != nil {
		return nil, err
	}
	var rows [][]any
	for i := range leases {
		l := &leases[i]
		l.Attempt++
		l.Exhausted = l.Attempt > l.MaxAttempts || l.Deaths >= MaxDeaths || l.Stranded >= MaxStranded || l.HostFailures >= MaxHostFailures
		from := ready
		if l.Cancelled {
			from = ending
		}
		if err := s.move(l.Tenant, from, running); err != nil {
			return nil, err
		}
		if j := s.inserted[l.RunID]; j != nil {
			j.Lease, j.owner = *l, owner
			continue
		}
		rows = append(rows, []any{l.RunID, int64(l.Epoch), int64(l.Attempt), owner, s.now})
	}
	_, err := s.execAll(&updateClaimed, rows)
	return leases, err
}

var updateClaimed = statement{
	one: "UPDATE queue_job SET state = 2, epoch = $2, attempt = $3, owner = $4, started = $5, begun = 0 WHERE run_id = $1",
	many: `UPDATE queue_job SET state = 2, epoch = v.epoch, attempt = v.attempt, owner = v.owner, started = v.started, begun = 0
	FROM unnest($1::text[], $2::bigint[], $3::bigint[], $4::text[], $5::bigint[]) AS v(run_id, epoch, attempt, owner, started)
	WHERE queue_job.run_id = v.run_id`,
}

// fence makes new epochs of the runs.
func (s *storeTx) fence(leases []Lease) (err error) {
	if s.bulk == nil {
		for i := range leases {
			if leases[i].Epoch, err = s.tx.Fence(leases[i].RunID); err != nil {
				return err
			}
		}
		return nil
	}
	if len(leases) == 0 {
		return nil
	}
	epochs, err := s.bulk.FenceAll(lists.Map(leases, func(l Lease) string { return l.RunID }))
	for i, l := range leases {
		leases[i].Epoch = epochs[l.RunID]
	}
	return err
}

// The tenants with the lowest tags that have jobs to hand out: all of them, and only
// tenants without a running job. SQLite prepares a statement again for each value of a
// limit that is a bare parameter.
const (
	openTenants = "SELECT tenant, " + tenantColumns + " FROM queue_tenant WHERE open > 0 ORDER BY tag LIMIT $1 + 0"
	idleTenants = "SELECT tenant, " + tenantColumns + " FROM queue_tenant WHERE open > 0 AND running = 0 ORDER BY tag LIMIT $1 + 0"
)

// claimFairly chooses n times the tenant with the lowest tag, and returns a job for each
// time; the last reserved times it chooses among tenants without a running job. Tags and
// virtual time move on; the counts are left to claim.
func (s *storeTx) claimFairly(n, reserved int) ([]Lease, error) {
	// No tenants but these can be chosen. Jobs that this transaction has changed count
	// in their new state.
	most := []any{int64(n + len(s.tenants))}
	err := s.tx.Query(openTenants, most, s.scanTenant)
	if err == nil && reserved > 0 {
		err = s.tx.Query(idleTenants, most, s.scanTenant)
	}
	if err != nil {
		return nil, err
	}
	var candidates []*tenantRow
	for _, t := range s.tenants {
		if t.countOpen(s.cfg.Limits(t.name)); t.open > 0 {
			candidates = append(candidates, t)
		}
	}
	slices.SortFunc(candidates, func(x, y *tenantRow) int { return cmp.Or(cmp.Compare(x.tag, y.tag), cmp.Compare(x.name, y.name)) })
	var order []*tenantRow
	chosen := make(map[*tenantRow]int64)
	for i := range n {
		var next *tenantRow
		for _, t := range candidates {
			if i >= n-reserved && t.n[running]+chosen[t] > 0 {
				continue
			}
			if chosen[t] < t.open && (next == nil || t.tag < next.tag) {
				next = t
			}
		}
		if next == nil {
			break
		}
		s.virtual = max(s.virtual, next.tag)
		weight := s.cfg.Limits(next.name).Weight
		if weight <= 0 {
			weight = 1
		}
		next.tag += 1 / weight
		order = append(order, next)
		chosen[next]++
	}
	return s.front(order, chosen)
}

// numbered is a job with its place in the order of all.
type numbered struct {
	Lease
	number int64
}

var selectFront = statement{
	one: "SELECT " + jobColumns + ", number, payload FROM queue_job WHERE tenant = $1 AND state = 0 ORDER BY rank, number LIMIT $2 + 0",
	many: `SELECT front.* FROM unnest($1::text[], $2::bigint[]) AS v(tenant, n), LATERAL (
	SELECT ` + jobColumns + `, number, payload FROM queue_job WHERE tenant = v.tenant AND state = 0 ORDER BY rank, number LIMIT v.n
	FOR UPDATE SKIP LOCKED) AS front`,
}

// front returns the first jobs of the chosen tenants, from the table and from the jobs to
// be added, in the order in which the tenants were chosen.
func (s *storeTx) front(order []*tenantRow, chosen map[*tenantRow]int64) ([]Lease, error) {
	jobs := make(map[string][]numbered, len(chosen))
	rows := make([][]any, 0, len(chosen))
	for t, n := range chosen {
		rows = append(rows, []any{t.name, n})
	}
	err := s.queryAll(&selectFront, rows, func(r eventlog.Row) error {
		var j numbered
		err := scanJob(r, &j.Lease, &j.number, &j.Payload)
		jobs[j.Tenant] = append(jobs[j.Tenant], j)
		return err
	})
	if err != nil {
		return nil, err
	}
	for _, j := range s.inserts {
		jobs[j.Tenant] = append(jobs[j.Tenant], j.numbered)
	}
	for _, line := range jobs { // databases promise the order of no join
		slices.SortFunc(line, func(x, y numbered) int {
			return cmp.Or(cmp.Compare(y.Priority, x.Priority), cmp.Compare(x.number, y.number))
		})
	}
	leases := make([]Lease, 0, len(order))
	for _, t := range order {
		if line := jobs[t.name]; len(line) > 0 {
			leases = append(leases, line[0].Lease)
			jobs[t.name] = line[1:]
		}
	}
	return leases, nil
}
