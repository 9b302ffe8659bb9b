package pglog

import (
	"testing"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/eventlog/logtest"
	"github.com/starling-host/starling/internal/pgtest"
)

// openAt opens the log in a database until the test ends.
func openAt(t testing.TB, dsn string, o Options) *Log {
	t.Helper()
	l, err := Open(t.Context(), dsn, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

// open opens a log in a new database.
func open(t testing.TB) (l *Log, dsn string) {
	t.Helper()
	dsn = pgtest.Database(t)
	return openAt(t, dsn, Options{AutoMigrate: true}), dsn
}

// storeAll appends events, which may belong to several runs, and waits.
func storeAll(t testing.TB, l eventlog.EventLog, evs ...event.Event) {
	t.Helper()
	for _, e := range evs {
		if err := l.Append(t.Context(), e.RunID, e); err != nil {
			t.Fatal(err)
		}
	}
	for _, e := range evs {
		if err := l.Sync(t.Context(), e.RunID); err != nil {
			t.Fatal(err)
		}
	}
}

func TestSuite(t *testing.T) {
	t.Parallel()
	logtest.Run(t, func(t testing.TB) eventlog.EventLog { return openAt(t, pgtest.Schema(t), Options{AutoMigrate: true}) })
}

// TestPair has two logs in one database, as two hosts have.
func TestPair(t *testing.T) {
	t.Parallel()
	logtest.RunPair(t, func(t testing.TB) (a, b eventlog.EventLog) {
		dsn := pgtest.Schema(t)
		return openAt(t, dsn, Options{AutoMigrate: true}), openAt(t, dsn, Options{})
	})
}

// TestShared makes the Starling runtime append to the tables that we make, and to its own
// after they were migrated.
func TestShared(t *testing.T) {
	t.Parallel()
	for name, tables := range map[string]string{"our tables": "", "its own tables": seedTables} {
		t.Run(name, func(t *testing.T) {
			logtest.RunShared(t, func(t testing.TB) logtest.Shared { return shared(t, tables) })
		})
	}
}

func shared(t testing.TB, tables string) logtest.Shared {
	dsn := pgtest.Schema(t)
	conn := connectTo(t, dsn)
	execute(t, conn, tables)
	if err := openAt(t, dsn, Options{AutoMigrate: true}).Close(); err != nil {
		t.Fatal(err)
	}
	return logtest.Shared{
		Open: func(t testing.TB, readOnly bool) eventlog.EventLog {
			l := openAt(t, dsn, Options{ReadOnly: readOnly})
			l.compared.every = 0
			return l
		},
		Insert: func(t testing.TB, e event.Event) {
			t.Helper()
			storeByHand(t, conn, e)
		},
		Exec: func(t testing.TB, sql string) {
			t.Helper()
			execute(t, conn, sql)
		},
	}
}
