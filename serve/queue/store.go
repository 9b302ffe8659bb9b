package queue

import (
	"cmp"
	"maps"
	"reflect"
	"slices"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/serve/tenant"
)

// The tables of the job store. Points in time are nanoseconds since 1970, with zero for
// never.
//
// queue_job has a row for each job that is not done. stranded counts the processes that
// died before the run of a suspect job began, which sets begun. started is when the job was
// handed out; class and failure describe its last failure.
//
// queue_tenant has a tenant's tag, see the package comment, and counts its jobs by state;
// open counts the jobs to hand out now, so that a claim reads only tenants with work.
// queue_state has one row: the virtual time. Its columns number and waiting are of earlier
// versions. On a server, a transaction that locks this row is the only one that hands out
// jobs and writes queue_tenant. All others add rows to queue_change, with what they add to
// the counts and to the usage of a tenant, so that no two wait for each other; the next
// transaction that hands out jobs adds these up. A host of an earlier version, which does
// neither, hands out what is counted already; the next host that begins counts again.
//
// queue_host has a row for each process at work, with its lease. A host that died keeps a
// row for a day, under another owner; gone is when the death was noticed.
//
// queue_usage has a row for each tenant and day, counted from 1970, on which a run of the
// tenant ended.
const tables = `CREATE TABLE queue_job (
	run_id        TEXT PRIMARY KEY NOT NULL,
	tenant        TEXT NOT NULL,
	number        INTEGER NOT NULL,
	state         INTEGER NOT NULL,
	rank          INTEGER NOT NULL,
	max_attempts  INTEGER NOT NULL,
	attempt       INTEGER NOT NULL,
	deaths        INTEGER NOT NULL DEFAULT 0,
	stranded      INTEGER NOT NULL DEFAULT 0,
	begun         INTEGER NOT NULL DEFAULT 0,
	snoozes       INTEGER NOT NULL DEFAULT 0,
	host_failures INTEGER NOT NULL DEFAULT 0,
	epoch         INTEGER NOT NULL,
	cancelled     INTEGER NOT NULL DEFAULT 0,
	due           INTEGER NOT NULL DEFAULT 0,
	enqueued      INTEGER NOT NULL,
	started       INTEGER NOT NULL,
	owner         TEXT NOT NULL,
	class         TEXT NOT NULL DEFAULT '',
	failure       TEXT NOT NULL DEFAULT '',
	payload       BLOB NOT NULL
);
CREATE INDEX queue_job_line ON queue_job (tenant, rank, number) WHERE state = 0;
CREATE INDEX queue_job_due ON queue_job (due) WHERE state = 1;
CREATE INDEX queue_job_owner ON queue_job (owner) WHERE state = 2;
CREATE INDEX queue_job_ending ON queue_job (number) WHERE state = 3;
CREATE TABLE queue_tenant (
	tenant   TEXT PRIMARY KEY NOT NULL,
	tag      REAL NOT NULL,
	open     INTEGER NOT NULL,
	ready    INTEGER NOT NULL,
	sleeping INTEGER NOT NULL,
	running  INTEGER NOT NULL,
	ending   INTEGER NOT NULL
);
CREATE INDEX queue_tenant_turn ON queue_tenant (tag) WHERE open > 0;
CREATE TABLE queue_state (
	id      INTEGER PRIMARY KEY NOT NULL,
	virtual REAL NOT NULL,
	number  INTEGER NOT NULL,
	waiting INTEGER NOT NULL
);
INSERT INTO queue_state (id, virtual, number, waiting) VALUES (1, 0, 0, 0);
CREATE TABLE queue_host (
	owner    TEXT PRIMARY KEY NOT NULL,
	host     TEXT NOT NULL,
	label    TEXT NOT NULL DEFAULT '',
	version  TEXT NOT NULL DEFAULT '',
	until    INTEGER NOT NULL,
	began    INTEGER NOT NULL DEFAULT 0,
	seen     INTEGER NOT NULL DEFAULT 0,
	draining INTEGER NOT NULL DEFAULT 0,
	gone     INTEGER NOT NULL DEFAULT 0
);
CREATE TABLE queue_usage (
	tenant   TEXT NOT NULL,
	day      INTEGER NOT NULL,
	runs     INTEGER NOT NULL,
	fuel     INTEGER NOT NULL,
	effects  INTEGER NOT NULL,
	egress   INTEGER NOT NULL,
	recorded INTEGER NOT NULL,
	PRIMARY KEY (tenant, day)
)`

const changes = `CREATE TABLE queue_change (
	tenant   TEXT NOT NULL,
	ready    INTEGER NOT NULL,
	sleeping INTEGER NOT NULL,
	running  INTEGER NOT NULL,
	ending   INTEGER NOT NULL,
	day      INTEGER NOT NULL,
	runs     INTEGER NOT NULL,
	fuel     INTEGER NOT NULL,
	effects  INTEGER NOT NULL,
	egress   INTEGER NOT NULL,
	recorded INTEGER NOT NULL
);
CREATE INDEX queue_job_asleep ON queue_job (tenant, enqueued) WHERE state = 1`

// Tables are the tables of the job store.
var Tables = eventlog.TableSet{
	Name: "queue", Tables: []string{"queue_job", "queue_tenant", "queue_state", "queue_host", "queue_usage", "queue_change"},
	Steps: []string{tables, changes}, Added: 1,
}

// The states of a row. Their numbers are stored.
const (
	ready    = iota // to be handed out when the tenant is next
	sleeping        // to be ready at a point in time
	running         // handed out
	ending          // cancelled, and to be handed out so that its run ends
	states          // how many there are; as a state: not in the queue
)

// storeTx is one transaction on the job store. It reads the rows of the tenants it
// needs, counts in memory, and writes the counts back once, in flush. After an error, none of
// it may be committed.
type storeTx struct {
	tx      eventlog.Tx
	bulk    eventlog.Bulk // nil when the tables are in a file
	cfg     *Config
	now     int64
	tenants map[string]*tenantRow
	waiting int64 // jobs of all tenants that are not running, as far as this process knows

	// Changes not written yet. They are written before a statement reads the tables; but
	// claim also takes jobs from inserts, so that a job handed out at once is written
	// once.
	inserts  []*newJob
	inserted map[string]*newJob // inserts, by run
	finished []finished

	usage map[usageRow]tenant.DayUsage // of the runs whose jobs were done

	signal bool // other processes have something to do after the transaction
	again  bool // this process looks for jobs next

	// whole means that the transaction has locked queue_state. It may hand out jobs, and writes the
	// rows of queue_tenant. The fields from here on are for it alone.
	whole           bool
	virtual, before float64 // the virtual time, and as it was read
	ends            bool    // there may be jobs in the state ending
}

// tenantRow is a row of queue_tenant.
type tenantRow struct {
	name   string
	before counts
	counts
}

type counts struct {
	tag  float64
	open int64 // jobs that may be handed out now
	n    [states]int64
}

func beginStore(tx eventlog.Tx, cfg *Config, waiting int64) *storeTx {
	bulk, _ := tx.(eventlog.Bulk)
	return &storeTx{tx: tx, bulk: bulk, cfg: cfg, now: cfg.Clock.Now().UnixNano(), waiting: waiting, tenants: make(map[string]*tenantRow)}
}

// locking ends a statement that reads rows to change them. A file has one writer at a time.
func (s *storeTx) locking(how string) string {
	if s.bulk == nil {
		return ""
	}
	return " FOR UPDATE" + how
}

// takeState reads queue_state. On a server it locks the row, and adds up what other transactions have
// left in queue_change. If another one has the row, it leaves whole false.
func (s *storeTx) takeState() error {
	sql := "SELECT '', virtual, (SELECT count(*) FROM (SELECT 1 FROM queue_job WHERE state = 3 LIMIT 1) e), 0, 0, 0, 0, -1, 0, 0, 0, 0, 0 FROM queue_state WHERE id = 1"
	if s.bulk != nil {
		sql = `WITH state AS (SELECT virtual FROM queue_state WHERE id = 1 FOR UPDATE SKIP LOCKED),
	gone AS (DELETE FROM queue_change WHERE EXISTS (SELECT 1 FROM state) RETURNING *)
	SELECT '', virtual, CASE WHEN EXISTS (SELECT 1 FROM queue_job WHERE state = 3) THEN 1 ELSE 0 END, 0, 0, 0, 0, -1, 0, 0, 0, 0, 0 FROM state
	UNION ALL SELECT tenant, 0, 0, ready, sleeping, running, ending, day, runs, fuel, effects, egress, recorded FROM gone`
	}
	changed := make(map[string]counts)
	err := s.tx.Query(sql, nil, func(r eventlog.Row) error {
		var name string
		var virtual float64
		var ends bool
		var n [states]int64
		var day int64
		var u tenant.DayUsage
		if err := r.Scan(&name, &virtual, &ends, &n[ready], &n[sleeping], &n[running], &n[ending], &day, &u.Runs, &u.Fuel, &u.Effects, &u.EgressBytes, &u.RecordedBytes); err != nil {
			return err
		}
		if day < 0 { // the row of queue_state
			s.whole, s.virtual, s.before, s.ends = true, virtual, virtual, ends
			return nil
		}
		c := changed[name]
		for state, n := range n {
			c.n[state] += n
		}
		changed[name] = c
		s.use(usageRow{name, day}, u)
		return nil
	})
	if err == nil {
		err = s.expect(slices.Sorted(maps.Keys(changed))...)
	}
	if err != nil {
		return err
	}
	for name, c := range changed {
		s.tenants[name].add(c.n, s)
	}
	return nil
}

const tenantColumns = "tag, open, ready, sleeping, running, ending"

// scanTenant takes a row of queue_tenant, unless the transaction has it already.
func (s *storeTx) scanTenant(r eventlog.Row) error {
	t := new(tenantRow)
	c := &t.before
	err := r.Scan(&t.name, &c.tag, &c.open, &c.n[ready], &c.n[sleeping], &c.n[running], &c.n[ending])
	t.counts = t.before
	if s.tenants[t.name] == nil {
		s.tenants[t.name] = t
	}
	return err
}

var selectTenants = statement{
	one:  "SELECT tenant, " + tenantColumns + " FROM queue_tenant WHERE tenant = $1",
	many: "SELECT tenant, " + tenantColumns + " FROM queue_tenant WHERE tenant = ANY ($1)",
}

// allCounts are the counts of all tenants, in rows to be added up: what is in queue_tenant, and what was left
// in queue_change.
const allCounts = `(SELECT tenant, ready, sleeping, running, ending FROM queue_tenant
	UNION ALL SELECT tenant, ready, sleeping, running, ending FROM queue_change) c`

// selectCounts is selectTenants with what others have left in queue_change.
var selectCounts = statement{many: `SELECT tenant, max(tag), max(open), sum(ready), sum(sleeping), sum(running), sum(ending) FROM (
	SELECT tenant, ` + tenantColumns + ` FROM queue_tenant WHERE tenant = ANY ($1)
	UNION ALL SELECT tenant, 0, 0, ready, sleeping, running, ending FROM queue_change WHERE tenant = ANY ($1)) t GROUP BY tenant`}

// expect reads the rows of the tenants that will be met, all at once.
func (s *storeTx) expect(names ...string) error {
	var rows [][]any
	for _, name := range names {
		if s.tenants[name] == nil {
			rows = append(rows, []any{name})
		}
	}
	from := &selectTenants
	if !s.whole {
		from = &selectCounts
	}
	err := s.queryAll(from, rows, s.scanTenant)
	for _, name := range names {
		if s.tenants[name] == nil {
			s.tenants[name] = &tenantRow{name: name}
		}
	}
	return err
}

// tenant returns a tenant's row, which is read once.
func (s *storeTx) tenant(name string) (*tenantRow, error) {
	err := s.expect(name)
	return s.tenants[name], err
}

// move counts a job that goes from one state to another; the value states means not in the
// queue.
func (s *storeTx) move(name string, from, to int) error {
	t, err := s.tenant(name)
	if err != nil {
		return err
	}
	var n [states]int64
	if from != states {
		n[from]--
	}
	if to != states {
		n[to]++
	}
	t.add(n, s)
	s.ends = s.ends || to == ending
	s.waiting += n[ready] + n[sleeping] + n[ending]
	return nil
}

// add adds to the counts. A tenant that had nothing ready begins where virtual time is, so that idle time
// is not saved up.
func (t *tenantRow) add(n [states]int64, s *storeTx) {
	if t.n[ready] <= 0 && n[ready] > 0 {
		t.tag = max(t.tag, s.virtual)
	}
	for state := range n {
		t.n[state] += n[state]
	}
	t.countOpen(s.cfg.Limits(t.name))
}

// countOpen counts the tenant's jobs that may be handed out now.
func (t *tenantRow) countOpen(l Limits) {
	t.open = t.n[ready]
	if l.MaxRunning > 0 {
		t.open = max(0, min(t.open, int64(l.MaxRunning)-t.n[running]))
	}
	if l.Paused {
		t.open = 0
	}
}

// refresh counts again what may be handed out, since limits may have changed, and
// removes the rows of tenants that have no jobs and are not ahead of virtual time, and old
// usage.
func (s *storeTx) refresh() error {
	if today := dayOf(s.now); s.cfg.swept.Swap(today) != today { // in each process once a day
		if _, err := s.tx.Exec("DELETE FROM queue_usage WHERE day <= $1", today-UsageDays); err != nil {
			return err
		}
	}
	names, err := eventlog.QueryAll(s.tx, "SELECT tenant FROM queue_tenant WHERE ready > 0", nil, eventlog.Columns(func(name *string) []any { return []any{name} }))
	if err == nil {
		err = s.expect(names...)
	}
	if err != nil {
		return err
	}
	for _, name := range names {
		s.tenants[name].countOpen(s.cfg.Limits(name))
	}
	if len(s.tenants) > len(names) {
		return nil // counts of this transaction may not be written yet
	}
	_, err = s.tx.Exec("DELETE FROM queue_tenant WHERE ready = 0 AND sleeping = 0 AND running = 0 AND ending = 0 AND tag <= $1", s.virtual)
	return err
}

var addChanges = statement{many: `INSERT INTO queue_change SELECT * FROM unnest($1::text[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[],
	$6::bigint[], $7::bigint[], $8::bigint[], $9::bigint[], $10::bigint[], $11::bigint[])`}

// recount counts all jobs, should the counts be wrong. What is in queue_change will be added.
func (s *storeTx) recount() error {
	if err := s.push(); err != nil {
		return err
	}
	const sql = `SELECT tenant, 0, 0, 0, 0 FROM queue_tenant
	UNION ALL SELECT tenant, count(*) FILTER (WHERE state = 0), count(*) FILTER (WHERE state = 1), count(*) FILTER (WHERE state = 2),
		count(*) FILTER (WHERE state = 3) FROM queue_job GROUP BY tenant
	UNION ALL SELECT tenant, -ready, -sleeping, -running, -ending FROM queue_change`
	counted := make(map[string][states]int64)
	err := s.tx.Query(sql, nil, func(r eventlog.Row) error {
		var name string
		var n [states]int64
		err := r.Scan(&name, &n[ready], &n[sleeping], &n[running], &n[ending])
		for state, was := range counted[name] {
			n[state] += was
		}
		counted[name] = n
		return err
	})
	if err == nil {
		err = s.expect(slices.Sorted(maps.Keys(counted))...)
	}
	if err != nil {
		return err
	}
	for name, n := range counted {
		for state, was := range s.tenants[name].n {
			n[state] -= was
		}
		s.tenants[name].add(n, s)
	}
	return nil
}

var storeTenants = statement{
	one: "INSERT INTO queue_tenant (tenant, " + tenantColumns + ") VALUES ($1, $2, $3, $4, $5, $6, $7)" + orReplaceTenant,
	many: "INSERT INTO queue_tenant (tenant, " + tenantColumns + `) SELECT *
	FROM unnest($1::text[], $2::float8[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[], $7::bigint[])` + orReplaceTenant,
}

const orReplaceTenant = ` ON CONFLICT (tenant) DO UPDATE SET tag = excluded.tag, open = excluded.open, ready = excluded.ready,
	sleeping = excluded.sleeping, running = excluded.running, ending = excluded.ending`

// flush writes back the counts. If a tenant without jobs to hand out now has some, it signals other
// processes, because those that found nothing are idle, unless this one looks next. While a
// tenant has jobs, each process looks again when one of its workers is free.
func (s *storeTx) flush() error {
	if err := s.push(); err != nil {
		return err
	}
	var rows [][]any
	for _, t := range slices.SortedFunc(maps.Values(s.tenants), func(x, y *tenantRow) int { return cmp.Compare(x.name, y.name) }) {
		s.signal = s.signal || !s.again && (t.before.open == 0 && t.open > 0 || t.before.n[ending] == 0 && t.n[ending] > 0)
		if c, b := t.counts, t.before; c != b && s.whole {
			rows = append(rows, []any{t.name, c.tag, c.open, c.n[ready], c.n[sleeping], c.n[running], c.n[ending]})
		} else if c.n != b.n {
			rows = append(rows, []any{t.name, c.n[ready] - b.n[ready], c.n[sleeping] - b.n[sleeping], c.n[running] - b.n[running], c.n[ending] - b.n[ending],
				int64(0), int64(0), int64(0), int64(0), int64(0), int64(0)})
		}
	}
	if !s.whole {
		for k, u := range s.usage {
			rows = append(rows, []any{k.tenant, int64(0), int64(0), int64(0), int64(0), k.day, u.Runs, u.Fuel, u.Effects, u.EgressBytes, u.RecordedBytes})
		}
		_, err := s.execAll(&addChanges, rows)
		return err
	}
	if _, err := s.execAll(&storeTenants, rows); err != nil {
		return err
	}
	rows = nil
	for k, u := range s.usage {
		rows = append(rows, []any{k.tenant, k.day, u.Runs, u.Fuel, u.Effects, u.EgressBytes, u.RecordedBytes})
	}
	if _, err := s.execAll(&addUsage, rows); err != nil || s.virtual == s.before {
		return err
	}
	_, err := s.tx.Exec("UPDATE queue_state SET virtual = $1 WHERE id = 1", s.virtual)
	return err
}

// statement changes many rows. On a server each statement costs a round trip, most of
// the cost of a small one. So one statement changes many rows: its parameters are
// arrays, one for each column. In a file there is one statement for each row: SQLite
// copies every page that a longer one changes, in case it fails halfway.
type statement struct {
	one  string // for one row, in a file
	many string // for any number of rows, on a server
}

// maxRows bounds the rows of one statement, and so its memory: a job may carry a
// megabyte.
const maxRows = 256

// each calls run with statements for all rows.
func (s *storeTx) each(st *statement, rows [][]any, run func(sql string, args []any) error) error {
	if s.bulk == nil {
		for _, row := range rows {
			if err := run(st.one, row); err != nil {
				return err
			}
		}
		return nil
	}
	for some := range slices.Chunk(rows, maxRows) {
		columns := make([]any, len(some[0]))
		for i, value := range some[0] {
			column := reflect.MakeSlice(reflect.SliceOf(reflect.TypeOf(value)), len(some), len(some))
			for n, row := range some {
				column.Index(n).Set(reflect.ValueOf(row[i]))
			}
			columns[i] = column.Interface()
		}
		if err := run(st.many, columns); err != nil {
			return err
		}
	}
	return nil
}

// execAll runs the statements for all rows and returns how many they changed.
func (s *storeTx) execAll(st *statement, rows [][]any) (changed int64, err error) {
	err = s.each(st, rows, func(sql string, args []any) error {
		n, err := s.tx.Exec(sql, args...)
		changed += n
		return err
	})
	return changed, err
}

// queryAll runs the statements for all rows.
func (s *storeTx) queryAll(st *statement, rows [][]any, row func(eventlog.Row) error) error {
	return s.each(st, rows, func(sql string, args []any) error { return s.tx.Query(sql, args, row) })
}
