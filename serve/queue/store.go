package queue

import (
	"cmp"
	"fmt"
	"maps"
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
// queue_state has one row: the virtual time, the number of the last job, and how many jobs
// are not running.
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

// Tables are the tables of the job store.
var Tables = eventlog.TableSet{
	Name: "queue", Tables: []string{"queue_job", "queue_tenant", "queue_state", "queue_host", "queue_usage"},
	Steps: []string{tables},
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
// needs, counts in memory, and writes them back once, in flush. After an error, none of
// it may be committed.
type storeTx struct {
	tx      eventlog.Tx
	bulk    eventlog.Bulk // nil when the tables are in a file
	cfg     *Config
	now     int64
	tenants map[string]*tenantRow

	// Changes not written yet. They are written before a statement reads the tables; but
	// claim also takes jobs from inserts, so that a job handed out at once is written
	// once.
	inserts  []*newJob
	inserted map[string]*newJob // inserts, by run
	finished []finished

	usage map[string]tenant.DayUsage // of the runs whose jobs were done, by tenant

	signal bool // other processes have something to do after the transaction

	loaded        bool // the fields from here on belong to queue_state
	state, before stateRow
	ends          bool // there may be jobs in the state ending
}

// stateRow is the row of queue_state.
type stateRow struct {
	virtual         float64
	number, waiting int64
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

func beginStore(tx eventlog.Tx, cfg *Config) *storeTx {
	bulk, _ := tx.(eventlog.Bulk)
	return &storeTx{tx: tx, bulk: bulk, cfg: cfg, now: cfg.Clock.Now().UnixNano(), tenants: make(map[string]*tenantRow)}
}

// load reads queue_state, once.
func (s *storeTx) load() error {
	if s.loaded {
		return nil
	}
	s.loaded = true
	const sql = "SELECT virtual, number, waiting, (SELECT count(*) FROM (SELECT 1 FROM queue_job WHERE state = 3 LIMIT 1) e) FROM queue_state WHERE id = 1"
	var ends bool
	_, err := eventlog.QueryOne(s.tx, sql, nil, &s.state.virtual, &s.state.number, &s.state.waiting, &ends)
	s.ends = s.ends || ends
	s.before = s.state
	return err
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

// expect reads the rows of the tenants that will be met, all at once.
func (s *storeTx) expect(names ...string) error {
	var rows [][]any
	for _, name := range names {
		if s.tenants[name] == nil {
			rows = append(rows, []any{name})
		}
	}
	err := s.queryAll(&selectTenants, rows, s.scanTenant)
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
// queue. A tenant that had nothing ready begins where virtual time is, so that idle time
// is not saved up.
func (s *storeTx) move(name string, from, to int) error {
	if err := s.load(); err != nil {
		return err
	}
	t, err := s.tenant(name)
	if err != nil {
		return err
	}
	if to == ready && t.n[ready] == 0 {
		t.tag = max(t.tag, s.state.virtual)
	}
	if from != states {
		t.n[from]--
	}
	if to != states {
		t.n[to]++
	}
	s.ends = s.ends || to == ending
	waits := func(state int) int64 { // one for the states that Config.MaxWaiting bounds
		if state == running || state == states {
			return 0
		}
		return 1
	}
	s.state.waiting += waits(to) - waits(from)
	t.countOpen(s.cfg.Limits(name))
	return nil
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
	if err := s.load(); err != nil {
		return err
	}
	if err := s.sweepUsage(); err != nil {
		return err
	}
	names, err := eventlog.QueryAll(s.tx, "SELECT tenant FROM queue_tenant WHERE ready > 0", nil, func(r eventlog.Row) (name string, err error) {
		err = r.Scan(&name)
		return name, err
	})
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
	_, err = s.tx.Exec("DELETE FROM queue_tenant WHERE ready = 0 AND sleeping = 0 AND running = 0 AND ending = 0 AND tag <= $1", s.state.virtual)
	return err
}

var storeTenants = statement{
	one: "INSERT INTO queue_tenant (tenant, " + tenantColumns + ") VALUES ($1, $2, $3, $4, $5, $6, $7)" + orReplaceTenant,
	many: "INSERT INTO queue_tenant (tenant, " + tenantColumns + `) SELECT *
	FROM unnest($1::text[], $2::float8[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[], $7::bigint[])` + orReplaceTenant,
}

const orReplaceTenant = ` ON CONFLICT (tenant) DO UPDATE SET tag = excluded.tag, open = excluded.open, ready = excluded.ready,
	sleeping = excluded.sleeping, running = excluded.running, ending = excluded.ending`

// flush writes back the counts. If a tenant without jobs to hand out now has some, it signals other
// processes, because those that found nothing are idle. While a tenant has jobs, each process looks
// again when one of its workers is free.
func (s *storeTx) flush() error {
	if err := s.push(); err != nil {
		return err
	}
	var rows [][]any
	for _, t := range slices.SortedFunc(maps.Values(s.tenants), func(x, y *tenantRow) int { return cmp.Compare(x.name, y.name) }) {
		s.signal = s.signal || t.before.open == 0 && t.open > 0 || t.before.n[ending] == 0 && t.n[ending] > 0
		if c := t.counts; t.before != c {
			rows = append(rows, []any{t.name, c.tag, c.open, c.n[ready], c.n[sleeping], c.n[running], c.n[ending]})
		}
	}
	if _, err := s.execAll(&storeTenants, rows); err != nil {
		return err
	}
	if err := s.flushUsage(); err != nil {
		return err
	}
	if !s.loaded || s.before == s.state {
		return nil
	}
	_, err := s.tx.Exec("UPDATE queue_state SET virtual = $1, number = $2, waiting = $3 WHERE id = 1", s.state.virtual, s.state.number, s.state.waiting)
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
			switch value.(type) {
			case string:
				columns[i] = column[string](some, i)
			case int64:
				columns[i] = column[int64](some, i)
			case float64:
				columns[i] = column[float64](some, i)
			case []byte:
				columns[i] = column[[]byte](some, i)
			default:
				panic(fmt.Sprintf("queue: column %d has a %T", i+1, value))
			}
		}
		if err := run(st.many, columns); err != nil {
			return err
		}
	}
	return nil
}

func column[T any](rows [][]any, i int) []T {
	values := make([]T, len(rows))
	for n, row := range rows {
		values[n] = row[i].(T)
	}
	return values
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
