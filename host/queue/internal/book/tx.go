package book

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/host/queue"
)

// Rules are what a transaction goes by.
type Rules struct {
	MaxWaiting int
	Limits     func(tenant string) queue.Limits
	Now        time.Time
}

// Tx is one transaction on the tables. After an error it is not to be used, and
// nothing of it is to be committed.
type Tx struct {
	tx     eventlog.Tx
	server eventlog.Bulk // nil when the tables are in a file
	rules  Rules
	now    int64
	pending

	tenants map[string]*tenant
	loaded  bool // the fields from here on are those of queue_state
	virtual float64
	number  int64
	waiting int64
	before  state
	ends    bool // there may be jobs to be ended
}

// state is the row of queue_state.
type state struct {
	virtual         float64
	number, waiting int64
}

// tenant is a row of queue_tenant.
type tenant struct {
	name   string
	before counts
	counts
}

type counts struct {
	tag  float64
	open int64 // jobs that may be handed out now
	n    [states]int64
}

// Begin starts to use tx.
func Begin(tx eventlog.Tx, r Rules) *Tx {
	server, _ := tx.(eventlog.Bulk)
	return &Tx{tx: tx, server: server, rules: r, now: r.Now.UnixNano(), tenants: make(map[string]*tenant)}
}

// SQL returns the transaction itself.
func (b *Tx) SQL() eventlog.Tx { return b.tx }

// load reads queue_state, once.
func (b *Tx) load() error {
	if b.loaded {
		return nil
	}
	b.loaded = true
	const sql = "SELECT virtual, number, waiting, (SELECT count(*) FROM (SELECT 1 FROM queue_job WHERE state = 3 LIMIT 1) e) FROM queue_state WHERE id = 1"
	var ends int64
	err := b.tx.Query(sql, nil, func(r eventlog.Row) error { return r.Scan(&b.virtual, &b.number, &b.waiting, &ends) })
	b.ends = b.ends || ends > 0
	b.before = state{b.virtual, b.number, b.waiting}
	return err
}

// Expect reads the rows of the tenants that will be met, all at once.
func (b *Tx) Expect(names map[string]bool) error {
	var rows [][]any
	for name := range names {
		rows = append(rows, []any{name})
		b.tenants[name] = &tenant{name: name}
	}
	return b.queryAll(&selectTenants, rows, func(r eventlog.Row) error {
		var t tenant
		err := r.Scan(append([]any{&t.name}, t.before.columns()...)...)
		t.counts = t.before
		b.tenants[t.name] = &t
		return err
	})
}

var (
	selectTenants = bulk{
		one:  "SELECT tenant, " + tenantColumns + " FROM queue_tenant WHERE tenant = $1",
		many: "SELECT tenant, " + tenantColumns + " FROM queue_tenant WHERE tenant = ANY ($1)",
	}
	storeTenants = bulk{
		one: "INSERT INTO queue_tenant (tenant, " + tenantColumns + ") VALUES ($1, $2, $3, $4, $5, $6, $7)" + orReplaceTenant,
		many: "INSERT INTO queue_tenant (tenant, " + tenantColumns + `) SELECT *
	FROM unnest($1::text[], $2::float8[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[], $7::bigint[])` + orReplaceTenant,
	}
)

const orReplaceTenant = ` ON CONFLICT (tenant) DO UPDATE SET tag = excluded.tag, open = excluded.open, ready = excluded.ready,
	sleeping = excluded.sleeping, running = excluded.running, ending = excluded.ending`

const tenantColumns = "tag, open, ready, sleeping, running, ending"

func (c *counts) columns() []any {
	return []any{&c.tag, &c.open, &c.n[ready], &c.n[sleeping], &c.n[running], &c.n[ending]}
}

func (c *counts) values() []any {
	return []any{c.tag, c.open, c.n[ready], c.n[sleeping], c.n[running], c.n[ending]}
}

// tenant returns the tenant's row, which is read once.
func (b *Tx) tenant(name string) (*tenant, error) {
	if t := b.tenants[name]; t != nil {
		return t, nil
	}
	t := &tenant{name: name}
	err := b.tx.Query("SELECT "+tenantColumns+" FROM queue_tenant WHERE tenant = $1", []any{name}, func(r eventlog.Row) error {
		return r.Scan(t.before.columns()...)
	})
	t.counts = t.before
	b.tenants[name] = t
	return t, err
}

// move counts a job that goes from one state to another; states stands for not
// being in the queue. A tenant that had nothing ready begins where virtual time
// is, so that turns are not saved up.
func (b *Tx) move(name string, from, to int) error {
	if err := b.load(); err != nil {
		return err
	}
	t, err := b.tenant(name)
	if err != nil {
		return err
	}
	if to == ready && t.n[ready] == 0 {
		t.tag = max(t.tag, b.virtual)
	}
	if from != states {
		t.n[from]--
	}
	if to != states {
		t.n[to]++
	}
	b.ends = b.ends || to == ending
	b.waiting += waits(to) - waits(from)
	t.reckon(b.rules.Limits(name))
	return nil
}

// Quiet reports whether no job waits, as far as the transaction has seen.
func (b *Tx) Quiet() bool { return b.loaded && b.waiting == 0 }

// waits is one for the states that Config.MaxWaiting bounds.
func waits(state int) int64 {
	if state == running || state == states {
		return 0
	}
	return 1
}

// reckon finds how many of the tenant's jobs may be handed out now.
func (t *tenant) reckon(l queue.Limits) {
	t.open = t.n[ready]
	if l.MaxRunning > 0 {
		t.open = max(0, min(t.open, int64(l.MaxRunning)-t.n[running]))
	}
	if l.Paused {
		t.open = 0
	}
}

// enough workers are more than the hosts of a database have, as a rule. Where they have
// more, the rest finds the jobs by polling.
const enough = 1024

// Flush writes back what was counted. It returns how many more workers have to be woken
// after the transaction, if claimed of the jobs that it has handed out went to workers
// that were woken for one: one for each job that may be handed out and might not have been
// before. But when there were enough such jobs already, all workers have been woken or
// are at work, and none of these rests before there is nothing left.
func (b *Tx) Flush(claimed int) (turns int, err error) {
	if err := b.push(); err != nil {
		return 0, err
	}
	before, after := int64(0), int64(claimed)
	var rows [][]any
	for _, t := range slices.SortedFunc(maps.Values(b.tenants), func(x, y *tenant) int { return cmp.Compare(x.name, y.name) }) {
		before += t.before.open + t.before.n[ending]
		after += t.open + t.n[ending]
		if t.before != t.counts {
			rows = append(rows, append([]any{t.name}, t.values()...))
		}
	}
	if _, err := b.execAll(&storeTenants, rows); err != nil {
		return 0, err
	}
	if b.loaded && b.before != (state{b.virtual, b.number, b.waiting}) {
		_, err = b.tx.Exec("UPDATE queue_state SET virtual = $1, number = $2, waiting = $3 WHERE id = 1", b.virtual, b.number, b.waiting)
	}
	return int(max(0, min(after-before, enough-before))), err
}
