package pglog

import (
	"slices"
	"sync"
	"testing"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/logtest"
	"github.com/starling-host/starling/internal/pgtest"
)

// TestRoles gives three roles the rights of [Grants], and tries what each may and may
// not do. None of them owns the tables.
func TestRoles(t *testing.T) {
	t.Parallel()
	dsn := pgtest.Start(t, "fsync=off").Database(t) // roles belong to a server
	owner := openAt(t, dsn, Options{AutoMigrate: true})
	if err := owner.CreateTables(t.Context(), counter); err != nil {
		t.Fatal(err)
	}
	storeAll(t, owner, logtest.Finished("old", 1)...)
	roles := Roles{Writer: `the "writer"`, Retention: "retention", Reader: "reader"}
	conn := connectTo(t, dsn)
	for _, role := range []string{roles.Writer, roles.Retention, roles.Reader} {
		execute(t, conn, "CREATE ROLE "+quote(role, `"`)+" LOGIN")
	}
	var granting sync.WaitGroup
	for range 8 { // as when several hosts are updated together
		granting.Go(func() {
			if err := owner.Grant(t.Context(), roles, counter); err != nil {
				t.Error(err)
			}
		})
	}
	granting.Wait()
	if err := openAt(t, pgtest.As(dsn, roles.Reader), Options{}).Grant(t.Context(), roles); !Denied(err) {
		t.Errorf("a role that owns nothing grants: %v", err)
	}

	t.Run("what each lacks", func(t *testing.T) { lacks(t, dsn, roles) })
	t.Run("the writer", func(t *testing.T) { asWriter(t, pgtest.As(dsn, roles.Writer)) })
	t.Run("the reader", func(t *testing.T) { asReader(t, pgtest.As(dsn, roles.Reader)) })
	t.Run("retention", func(t *testing.T) { asRetention(t, pgtest.As(dsn, roles.Retention)) })
}

// lacks asks for the missing rights of each role, also after the writer has lost one.
func lacks(t *testing.T, dsn string, roles Roles) {
	needs := NeedsOf(counter)
	check := func(role string, needs []Need, want ...string) {
		t.Helper()
		who, lacking, err := openAt(t, pgtest.As(dsn, role), Options{ReadOnly: true}).Lacking(t.Context(), needs...)
		if err != nil || who != role || !slices.Equal(lacking, want) {
			t.Errorf("%s: %v, %v", who, lacking, err)
		}
	}
	check(roles.Writer, needs.Writer)
	check(roles.Retention, needs.Retention)
	check(roles.Reader, needs.Reader)
	check(roles.Writer, needs.Retention, "DELETE on eventlog_events", "DELETE on run", "DELETE on module")
	check(roles.Retention, needs.Reader, "SELECT on counter")
	conn := connectTo(t, dsn)
	execute(t, conn, `REVOKE INSERT ON run FROM "the ""writer"""`)
	check(roles.Writer, needs.Writer, "INSERT on run")
	execute(t, conn, Grants(roles, counter))
}

// denied requires the server to refuse the statements to a role.
func denied(t *testing.T, dsn string, statements ...string) {
	t.Helper()
	conn := connectTo(t, dsn)
	for _, sql := range statements {
		if _, err := conn.Exec(t.Context(), sql); code(err) != insufficientPrivilege {
			t.Errorf("%s: %v", sql, err)
		}
	}
}

const (
	changeEvents = "UPDATE eventlog_events SET ts = 0"
	removeEvents = "DELETE FROM eventlog_events"
	emptyEvents  = "TRUNCATE eventlog_events"
	insertEvents = "INSERT INTO eventlog_events VALUES ('x', 1, NULL, 0, 1, '')"
	removeRuns   = "DELETE FROM run"
	changeRuns   = "UPDATE run SET last_seq = 1"
	changeSets   = "UPDATE table_set SET steps = 9"
	changeHost   = "UPDATE counter SET n = 9"
)

// asWriter does all that a host does.
func asWriter(t *testing.T, dsn string) {
	l := openAt(t, dsn, Options{AutoMigrate: true}) // there is nothing to migrate
	if err := l.CreateTables(t.Context(), counter); err != nil {
		t.Error(err)
	}
	storeAll(t, l, logtest.Finished("run-1", 3)...)
	c := logtest.Chain{RunID: "run-2"}
	var epoch uint64
	err := l.Transact(t.Context(), func(tx eventlog.Tx) (err error) {
		if _, err := tx.Exec("UPDATE counter SET n = n + 1"); err != nil {
			return err
		}
		epoch, err = tx.Fence("run-2")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	storeAll(t, l.Fenced("run-2", epoch), c.Start("g"), c.Complete())
	digest, err := l.PutModule(t.Context(), []byte("module"))
	if err != nil {
		t.Error(err)
	}
	if _, err := l.Module(t.Context(), digest); err != nil {
		t.Error(err)
	}
	ch, err := l.Stream(t.Context(), "run-1")
	if err != nil {
		t.Fatal(err)
	}
	for range ch { // until its end
	}
	if _, err := l.PruneRuns(t.Context(), eventlog.PruneOptions{}); code(err) != insufficientPrivilege {
		t.Errorf("pruning: %v", err)
	}
	denied(t, dsn, changeEvents, removeEvents, emptyEvents, removeRuns, changeSets, "DELETE FROM module", "UPDATE module SET wasm = ''",
		"ALTER TABLE eventlog_events ADD COLUMN x INT", "DROP TABLE eventlog_events")
}

func asReader(t *testing.T, dsn string) {
	l := openAt(t, dsn, Options{ReadOnly: true})
	runs, err := l.ListRuns(t.Context())
	if err != nil || len(runs) == 0 {
		t.Errorf("%v, %v", runs, err)
	}
	for _, r := range runs {
		if _, err := eventlog.CheckRun(t.Context(), l, r.RunID, eventlog.CheckOptions{Strict: true}); err != nil {
			t.Error(err)
		}
	}
	execute(t, connectTo(t, dsn), "SELECT n FROM counter")
	denied(t, dsn, changeEvents, removeEvents, emptyEvents, insertEvents, removeRuns, changeRuns, changeSets, changeHost)
}

func asRetention(t *testing.T, dsn string) {
	l := openAt(t, dsn, Options{})
	for _, dry := range []bool{true, false} {
		report, err := l.PruneRuns(t.Context(), eventlog.PruneOptions{DryRun: dry})
		if err != nil || report.Runs != 3 {
			t.Errorf("%+v, %v", report, err)
		}
	}
	c := logtest.Chain{RunID: "run-3"}
	if err := l.Append(t.Context(), "run-3", c.Start("g")); err != nil {
		t.Fatal(err)
	}
	if err := l.Sync(t.Context(), "run-3"); code(err) != insufficientPrivilege {
		t.Errorf("appending: %v", err)
	}
	denied(t, dsn, changeEvents, emptyEvents, insertEvents, changeRuns, changeSets, changeHost)
}
