package pglog

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/eventlog/internal/dblog"
	"github.com/starling-host/starling/internal/lists"
)

const (
	// layoutVersion is the layout that this program writes. The table table_set keeps the layout of
	// the tables as expandedSet, and as layoutSet the oldest layout whose programs can work with
	// them. A migration first raises the one alone, so that hosts of the version before and of this
	// one share the database. What hosts of the version before need is removed by a later version,
	// which raises the other. The first programs knew the row layoutSet alone, at their own layout.
	layoutVersion = 2
	layoutSet     = "eventlog"
	expandedSet   = layoutSet + dblog.Expanded

	// uncountedLayout lacks the columns bytes and counted of the table run.
	uncountedLayout = 1
)

// The tables. Tables named eventlog_ are the Starling runtime's. All columns of an event
// are fields of its envelope, which is rebuilt from them and hashed.
//
// Run ids are compared byte by byte (COLLATE "C"): an index over them outlives a new
// version of the operating system's collations. Payloads of up to a page are stored in
// their row uncompressed: the server's compression would cost more than the rest of an
// append, and gains nothing on encrypted payloads.
//
// run has a row for each run that has events, or that was given to a writer before it had
// any (last_seq is 0). Every append changes the row of its run: its lock and its columns
// last_seq and epoch decide between two writers. fillfactor leaves room for these changes
// on the same page, which no index then has to know of.
var (
	//go:embed schema/runtime.sql
	runtimeTables string
	//go:embed schema/own.sql
	ownTables string
)

// quote makes a text an SQL name or string.
func quote(text, mark string) string {
	return mark + strings.ReplaceAll(text, mark, mark+mark) + mark
}

// SchemaVersions implements [eventlog.Database]. Layout 0 is a database without our
// tables, or with only the Starling runtime's.
func (l *Log) SchemaVersions(ctx context.Context) (have, want int, err error) {
	if have, err = findLayout(ctx, l.pool); err != nil {
		return 0, 0, l.explainForeign(err)
	}
	l.layout.Store(int64(have))
	return have, layoutVersion, nil
}

// MigrateSchema implements [eventlog.Database]. The migration is one transaction; a
// second program that migrates at the same time waits and finds it done. The role needs
// the right to create tables.
func (l *Log) MigrateSchema(ctx context.Context, dryRun bool) (report eventlog.MigrationReport, err error) {
	have, want, err := l.SchemaVersions(ctx)
	report = eventlog.MigrationReport{From: have, To: want, DryRun: dryRun}
	switch {
	case err != nil:
	case have > want:
		err = eventlog.CheckSchema(have, want)
	case have == want:
		var ids []string
		if ids, err = l.unindexed(ctx); err == nil {
			err = l.index.CatchUp(ctx, &report, ids)
		}
		if err == nil {
			err = l.count(ctx, &report)
		}
	case l.opts.ReadOnly && !dryRun:
		err = eventlog.ErrReadOnly
	default:
		err = l.change(ctx, func(tx pgx.Tx) error { return migrate(ctx, tx, &report) })
		if err == nil && !dryRun && have > 0 {
			err = l.count(ctx, &report)
		}
		if err != nil {
			err = fmt.Errorf("pglog: migrate: %w", l.explainForeign(err))
		}
	}
	if err != nil || dryRun || l.opts.ReadOnly {
		return report, err
	}
	l.layout.Store(layoutVersion)
	return report, nil
}

// Grant runs the SQL of [Grants], in one transaction. The connection's role must own the tables;
// otherwise [Denied] returns true for the error.
func (l *Log) Grant(ctx context.Context, r Roles, sets ...eventlog.TableSet) error {
	if l.opts.ReadOnly {
		return eventlog.ErrReadOnly
	}
	return l.change(ctx, func(tx pgx.Tx) error {
		if err := lockTables(ctx, tx); err != nil { // otherwise the server refuses one of two concurrent grants
			return err
		}
		if err := mustOwn(ctx, tx, "eventlog_events"); err != nil {
			return fmt.Errorf("pglog: grant: %w", err)
		}
		if _, err := tx.Exec(ctx, Grants(r, sets...)); err != nil {
			return fmt.Errorf("pglog: grant: %w", err)
		}
		return nil
	})
}

// mustOwn refuses a role that does not own the tables; the error names one of them. The server only
// warns about a grant of a right that the role may not grant.
func mustOwn(ctx context.Context, q queryer, table string) error {
	const query = "SELECT pg_get_userbyid(relowner), pg_has_role(relowner, 'USAGE') FROM pg_class WHERE oid = $1::text::regclass"
	var owner string
	var owns bool
	if err := q.QueryRow(ctx, query, table).Scan(&owner, &owns); err != nil {
		return fmt.Errorf("look for the owner of the tables: %w", err)
	}
	if !owns {
		return fmt.Errorf("%w %q", errNotOwner, owner)
	}
	return nil
}

// migrationLock is the key of the lock that programs hold while they change tables
// ("STLH").
const migrationLock = 0x53544C48

// lockTables waits until no other program changes tables.
func lockTables(ctx context.Context, tx pgx.Tx) error {
	_, err := tx.Exec(ctx, "SELECT pg_advisory_xact_lock($1)", migrationLock)
	return err
}

func migrate(ctx context.Context, tx pgx.Tx, report *eventlog.MigrationReport) error {
	if !report.DryRun {
		if err := lockTables(ctx, tx); err != nil {
			return err
		}
	}
	have, err := findLayout(ctx, tx)
	if err != nil || have == layoutVersion {
		return err // another process was faster
	}
	if have == uncountedLayout {
		return addCounts(ctx, tx, report)
	}
	seed, err := hasTable(ctx, tx, "eventlog_events")
	if err != nil {
		return err
	}
	create := runtimeTables + ownTables
	report.Steps = []string{"create the tables"}
	if seed {
		create = ownTables
		report.Steps = []string{"add the table run, computed from the events", "add the tables module and table_set"}
		const extent = "SELECT count(DISTINCT run_id), count(*) FROM eventlog_events"
		if err := tx.QueryRow(ctx, extent).Scan(&report.Runs, &report.Events); err != nil {
			return err
		}
	}
	if report.DryRun {
		return nil
	}
	if _, err := tx.Exec(ctx, create); err != nil {
		return err
	}
	if seed {
		return fillRuns(ctx, tx)
	}
	return nil
}

// addCounts adds what layout 2 has. Hosts of layout 1 go on: they need not know the columns. It waits
// for a reader of the table run for some seconds at most, because hosts would wait behind it.
func addCounts(ctx context.Context, tx pgx.Tx, report *eventlog.MigrationReport) error {
	report.Steps = []string{"add the columns bytes and counted to the table run"}
	if report.DryRun {
		report.Steps = append(report.Steps, eventlog.StepCount)
		return nil
	}
	_, err := tx.Exec(ctx, `SET LOCAL lock_timeout = '5s';
		ALTER TABLE run ADD COLUMN bytes BIGINT NOT NULL DEFAULT 0, ADD COLUMN counted BIGINT NOT NULL DEFAULT 0;
		INSERT INTO table_set (name, steps) VALUES ('`+expandedSet+`', 2)`)
	return err
}

// countSQL counts the recorded bytes of the runs behind $1, a thousand rows at a time. It waits for no
// host, and passes over a run that is being written.
var countSQL = `WITH next AS (
	SELECT run_id, last_seq, counted FROM run WHERE run_id > $1 ORDER BY run_id LIMIT 1000
), free AS (
	SELECT run_id FROM run WHERE run_id IN (SELECT run_id FROM next WHERE counted <> last_seq) FOR UPDATE SKIP LOCKED
), recounted AS (` + dialect.Recount + ` FROM free WHERE run.run_id = free.run_id)
SELECT coalesce(max(run_id), '') FROM next`

// count counts the recorded bytes of the runs that a host of an earlier version has written.
func (l *Log) count(ctx context.Context, report *eventlog.MigrationReport) error {
	err := l.pool.QueryRow(ctx, "SELECT count(*) FROM run WHERE counted <> last_seq").Scan(&report.Uncounted)
	if err != nil || report.Uncounted == 0 {
		return orUnavailable(err)
	}
	if len(report.Miscounted) == 0 {
		report.Steps = append(report.Steps, eventlog.StepCount)
	}
	last, first := "", true
	for (first || last != "") && !report.DryRun && err == nil {
		err = l.pool.QueryRow(ctx, countSQL, last).Scan(&last)
		first = false
	}
	return orUnavailable(err)
}

// fillRuns computes the table run from the events, valid or not: validation is left to a check.
func fillRuns(ctx context.Context, tx pgx.Tx) error {
	if _, err := tx.Exec(ctx, "LOCK TABLE eventlog_events IN SHARE ROW EXCLUSIVE MODE"); err != nil {
		return err
	}
	ids, err := dblog.IDs(querier{ctx, tx}, "SELECT DISTINCT run_id FROM eventlog_events")
	if err != nil {
		return err
	}
	read := func(ctx context.Context, runID string, after uint64, n int) ([]event.Event, error) {
		return page(ctx, tx, runID, after, n)
	}
	return dialect.Reindex(ctx, querier{ctx, tx}, read, ids...)
}

// Roles are the names of database roles, by their rights. A role without a name is
// left out.
type Roles struct {
	// Writer is the role of a host: it appends events and reads. It can neither change
	// nor remove an event. On the tables of the host itself it may do everything.
	Writer string
	// Retention is the role of a program that prunes: it reads and removes.
	Retention string
	// Reader is the role of an inspector, which reads everything, also the host's
	// tables: the wrapped keys there open the runs of tenants.
	Reader string
}

// Need is the rights that a role needs on tables.
type Need struct {
	Rights string // such as "SELECT, INSERT"
	Tables []string
}

// Needs are the needs of each role of [Roles].
type Needs struct{ Writer, Retention, Reader []Need }

// NeedsOf returns exactly the rights that each role needs. The sets are the host's own tables.
func NeedsOf(sets ...eventlog.TableSet) Needs {
	var host []string
	marks := Need{"SELECT, INSERT, UPDATE, DELETE", []string{"commit_mark"}}
	retention := []Need{{"DELETE", []string{"eventlog_events", "run", "module", "module_use"}}, marks}
	for _, set := range sets {
		host = append(host, set.Tables...)
		for _, table := range slices.Sorted(maps.Keys(set.Retention)) {
			retention = append(retention, Need{set.Retention[table], []string{table}})
		}
	}
	look := Need{"SELECT", []string{"eventlog_events", "eventlog_schema_migrations", "run", "module", "module_use", "table_set"}}
	return Needs{
		Writer: []Need{
			look,
			{"INSERT", []string{"eventlog_events", "run", "module"}},
			{"UPDATE", []string{"run"}},
			{"INSERT, UPDATE, DELETE", []string{"module_use"}},
			marks,
			{"SELECT, INSERT, UPDATE, DELETE", host},
		},
		Retention: append([]Need{look}, retention...),
		Reader:    []Need{look, {"SELECT", host}},
	}
}

// Grants returns the SQL that gives each role its rights, for the owner of the tables to
// run. The sets are the host's own tables.
func Grants(r Roles, sets ...eventlog.TableSet) string {
	var b strings.Builder
	grant := func(role string, needs []Need) {
		for _, n := range needs {
			if role == "" || len(n.Tables) == 0 {
				continue
			}
			names := lists.Map(n.Tables, func(table string) string { return quote(table, `"`) })
			fmt.Fprintf(&b, "GRANT %s ON %s TO %s;\n", n.Rights, strings.Join(names, ", "), quote(role, `"`))
		}
	}
	needs := NeedsOf(sets...)
	grant(r.Writer, needs.Writer)
	grant(r.Retention, needs.Retention)
	grant(r.Reader, needs.Reader)
	return b.String()
}

// Lacking returns the name of the connection's role, and the needs whose rights it lacks,
// such as "INSERT on run". The tables exist.
func (l *Log) Lacking(ctx context.Context, needs ...Need) (role string, lacking []string, err error) {
	const query = `SELECT current_user, coalesce(array_agg(r || ' on ' || t ORDER BY n) FILTER (WHERE NOT has_table_privilege(quote_ident(t), r)), '{}')
		FROM unnest($1::text[], $2::text[]) WITH ORDINALITY AS need (r, t, n)`
	var rights, tables []string
	for _, n := range needs {
		for _, table := range n.Tables {
			for _, right := range strings.Split(n.Rights, ", ") {
				rights, tables = append(rights, right), append(tables, table)
			}
		}
	}
	if err := l.pool.QueryRow(ctx, query, rights, tables).Scan(&role, &lacking); err != nil {
		return "", nil, fmt.Errorf("pglog: look for the rights of the role: %w", err)
	}
	return role, lacking, nil
}

// rewriting are the settings of the connection that rewrites a table: it locks the
// table, and must not make every session wait behind one long reader.
var rewriting = map[string]string{"lock_timeout": "5s", "statement_timeout": "60s"}

// Rewrite makes the server write a table into a new file without the bytes of deleted rows, which
// otherwise stay in its pages, even after VACUUM. The table cannot be used in the meantime, so
// Rewrite is for small tables. These copies remain: rows that an open transaction may still read,
// which kept counts; the server's WAL; and backups.
//
// The connection's role must own the table; otherwise [Denied] returns true for the error.
func (l *Log) Rewrite(ctx context.Context, table string) (kept int, err error) {
	if l.opts.ReadOnly {
		return 0, eventlog.ErrReadOnly
	}
	if err := mustOwn(ctx, l.pool, table); err != nil { // the server only warns
		return 0, fmt.Errorf("pglog: rewrite: %w", err)
	}
	kept = -1
	conn, err := l.connectHearing(ctx, rewriting, func(_ *pgconn.PgConn, n *pgconn.Notice) {
		// The only number in the first line of VERBOSE's details, in any language:
		// "2 dead row versions cannot be removed yet."
		if number := regexp.MustCompile(`[0-9]+`).FindString(n.Detail); n.SeverityUnlocalized == "INFO" && number != "" {
			kept, _ = strconv.Atoi(number)
		}
	})
	if err != nil {
		return 0, err
	}
	defer closeConn(conn)
	if _, err := conn.Exec(ctx, "VACUUM (FULL, VERBOSE) "+pgx.Identifier{table}.Sanitize()); err != nil {
		return 0, fmt.Errorf("pglog: rewrite: %w", err)
	}
	if kept < 0 {
		return 0, errors.New("pglog: rewrite: the server does not say what it has kept")
	}
	return kept, nil
}
