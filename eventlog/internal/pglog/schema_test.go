package pglog

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/eventlog/logtest"
	"github.com/starling-host/starling/internal/pgtest"
)

func TestOpenChangesNothingUnlessTold(t *testing.T) {
	t.Parallel()
	dsn := pgtest.Database(t)
	for _, o := range []Options{{}, {ReadOnly: true}, {ReadOnly: true, AutoMigrate: true}} {
		l := openAt(t, dsn, o)
		c := logtest.Chain{RunID: "run-1"}
		_, listErr := l.ListRuns(t.Context())
		_, readErr := l.Read(t.Context(), "run-1")
		want := eventlog.ErrSchemaOutdated
		for what, err := range map[string]error{"Preflight": eventlog.Preflight(t.Context(), l), "ListRuns": listErr, "Read": readErr} {
			if !errors.Is(err, want) {
				t.Errorf("%+v: %s: %v", o, what, err)
			}
		}
		if o.ReadOnly {
			want = eventlog.ErrReadOnly
		}
		if err := l.Append(t.Context(), "run-1", c.Start("g")); !errors.Is(err, want) {
			t.Errorf("%+v: Append: %v", o, err)
		}
	}
	var tables int
	if err := connectTo(t, dsn).QueryRow(t.Context(), "SELECT count(*) FROM pg_tables WHERE schemaname = 'public'").Scan(&tables); err != nil || tables > 0 {
		t.Errorf("%d tables, %v", tables, err)
	}
	l := openAt(t, dsn, Options{})
	report, err := l.MigrateSchema(t.Context(), false)
	if err != nil || report.From != 0 || report.To != layoutVersion || len(report.Steps) != 1 {
		t.Errorf("%+v, %v", report, err)
	}
	storeAll(t, l, logtest.Finished("run-1", 1)...)
}

func TestManyHostsMigrateAtOnce(t *testing.T) {
	t.Parallel()
	dsn := pgtest.Database(t)
	var all sync.WaitGroup
	for i := range 4 {
		all.Go(func() {
			l, err := Open(t.Context(), dsn, Options{AutoMigrate: true})
			if err != nil {
				t.Error(err)
				return
			}
			defer l.Close()
			storeAll(t, l, logtest.Finished(fmt.Sprint("run-", i), 1)...)
		})
	}
	all.Wait()
}

func TestAReadOnlyLogWritesNothing(t *testing.T) {
	t.Parallel()
	l, dsn := open(t)
	evs := logtest.Finished("run-1", 3)
	storeAll(t, l, evs...)
	ro := openAt(t, dsn, Options{ReadOnly: true})
	_, pruneErr := ro.PruneRuns(t.Context(), eventlog.PruneOptions{})
	_, putErr := ro.PutModule(t.Context(), []byte("m"))
	for what, err := range map[string]error{
		"Append":       ro.Append(t.Context(), "run-1", evs[0]),
		"PruneRuns":    pruneErr,
		"PutModule":    putErr,
		"Transact":     ro.Transact(t.Context(), func(eventlog.Tx) error { return nil }),
		"CreateTables": ro.CreateTables(t.Context(), counter),
	} {
		if !errors.Is(err, eventlog.ErrReadOnly) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if _, err := eventlog.CheckRun(t.Context(), ro, "run-1", eventlog.CheckOptions{Strict: true}); err != nil {
		t.Error(err)
	}
	if _, err := ro.pool.Exec(t.Context(), "DELETE FROM run"); code(err) != readOnlyTransaction {
		t.Errorf("the connection itself: %v", err)
	}
}

func TestServersThatWouldNotDo(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		version  int
		encoding string
		want     string
	}{
		{110000, "UTF8", ""},
		{180001, "UTF8", ""},
		{100023, "UTF8", "PostgreSQL 10; 11 or later"},
		{150002, "SQL_ASCII", "encoded in SQL_ASCII"},
	} {
		err := checkServer(tc.version, tc.encoding)
		if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%+v: %v", tc, err)
		}
	}
}

// seedTables are the known parts of the Starling runtime's tables.
const seedTables = `CREATE TABLE eventlog_events (run_id TEXT NOT NULL, seq BIGINT NOT NULL, prev_hash BYTEA, ts BIGINT NOT NULL,
	kind INTEGER NOT NULL, payload BYTEA NOT NULL, PRIMARY KEY (run_id, seq));
	CREATE TABLE eventlog_schema_migrations (version INTEGER PRIMARY KEY, applied_at BIGINT NOT NULL);
	INSERT INTO eventlog_schema_migrations VALUES (1, 0), (2, 0)`

func TestTablesOfTheSeedRuntimeAreMigrated(t *testing.T) {
	t.Parallel()
	dsn := pgtest.Database(t)
	conn := connectTo(t, dsn)
	execute(t, conn, seedTables)
	want := make(map[string][]event.Event)
	for i := range 3 {
		id := fmt.Sprintf("Run/%d", i)
		want[id] = logtest.Finished(id, 300*i)
		for _, e := range want[id] {
			storeByHand(t, conn, e)
		}
	}
	l := openAt(t, dsn, Options{})
	c := logtest.Chain{RunID: "new"}
	start := c.Start("g")
	if err := l.Append(t.Context(), "new", start); !errors.Is(err, eventlog.ErrSchemaOutdated) {
		t.Errorf("Append before Migrate: %v", err)
	}
	planned, err := l.MigrateSchema(t.Context(), true)
	if err != nil || planned.Runs != 3 || planned.Events != 912 || len(planned.Steps) != 2 {
		t.Errorf("dry run: %+v, %v", planned, err)
	}
	if err := eventlog.Preflight(t.Context(), l); !errors.Is(err, eventlog.ErrSchemaOutdated) {
		t.Errorf("the dry run changed something: %v", err)
	}
	done, err := l.MigrateSchema(t.Context(), false)
	planned.DryRun = false
	if diff := cmp.Diff(planned, done); err != nil || diff != "" {
		t.Errorf("%v\n%s", err, diff)
	}
	for id, evs := range want {
		if _, err := eventlog.CheckRun(t.Context(), l, id, eventlog.CheckOptions{Strict: true}); err != nil {
			t.Error(err)
		}
		if got, err := l.Read(t.Context(), id); err != nil || cmp.Diff(evs, got) != "" {
			t.Errorf("run %s is another one: %v", id, err)
		}
	}
	if page, err := l.ListRunsPage(t.Context(), eventlog.RunPageOptions{Namespace: "Run", RequireToolCalls: true}); err != nil || page.TotalMatching != 3 {
		t.Errorf("%+v, %v", page, err)
	}
	storeAll(t, l, start, c.Complete())
}

// TestTablesOfSomebodyElse: another program has taken names that the log, or a table set,
// needs.
func TestTablesOfSomebodyElse(t *testing.T) {
	t.Parallel()
	for _, taken := range []string{"run", "table_set", "queue_of_the_test"} {
		dsn := pgtest.Database(t)
		execute(t, connectTo(t, dsn), "CREATE TABLE "+taken+" (mine int)")
		l, err := Open(t.Context(), dsn, Options{AutoMigrate: true})
		if err == nil {
			step := "CREATE TABLE queue_of_the_test (ours int)"
			err = errors.Join(l.CreateTables(t.Context(), eventlog.TableSet{Name: "test", Steps: []string{step}}), l.Close())
		}
		if err == nil {
			t.Errorf("%s: it was taken for ours", taken)
			continue
		}
		for _, word := range []string{"another program has a table", "search_path"} {
			if !strings.Contains(err.Error(), word) {
				t.Errorf("%s: the error does not say %q: %v", taken, word, err)
			}
		}
		t.Log(err)
	}
}

// TestLogsOfOneDatabaseAreKeptApartBySchemas opens two logs beside each other.
func TestLogsOfOneDatabaseAreKeptApartBySchemas(t *testing.T) {
	t.Parallel()
	dsn := pgtest.Database(t)
	conn := connectTo(t, dsn)
	for _, schema := range []string{"one", "two"} {
		execute(t, conn, "CREATE SCHEMA "+schema)
		l := openAt(t, dsn+"&search_path="+schema, Options{AutoMigrate: true})
		storeAll(t, l, logtest.Finished("in-"+schema, 1)...)
		if runs, err := l.ListRuns(t.Context()); err != nil || len(runs) != 1 || runs[0].RunID != "in-"+schema {
			t.Errorf("%+v, %v", runs, err)
		}
	}
}
