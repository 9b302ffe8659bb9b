package sqlitelog

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/eventlog/logtest"
)

// openAt opens the log at path until the test ends.
func openAt(t testing.TB, path string, o Options) *Log {
	t.Helper()
	l, err := Open(t.Context(), path, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

// open opens a new log in a file whose name SQLite would misread, were it not
// escaped.
func open(t testing.TB) *Log {
	return openAt(t, filepath.Join(t.TempDir(), "log #1?mode=memory%20.db"), Options{})
}

func TestSuite(t *testing.T) {
	t.Parallel()
	logtest.Run(t, func(t testing.TB) eventlog.EventLog { return open(t) })
}

func TestPairs(t *testing.T) {
	t.Parallel()
	logtest.RunPair(t, func(t testing.TB) (a, b eventlog.EventLog) {
		first := open(t)
		return first, openAt(t, first.path, Options{})
	})
}

func TestShared(t *testing.T) {
	t.Parallel()
	logtest.RunShared(t, func(t testing.TB) logtest.Shared { return shared(t, filepath.Join(t.TempDir(), "log.db")) })
}

// shared is a file that the Starling runtime writes to as well, with its own statement.
func shared(t testing.TB, path string) logtest.Shared {
	if _, err := os.Stat(path); err != nil {
		if err := openAt(t, path, Options{}).Close(); err != nil {
			t.Fatal(err)
		}
	}
	exec := func(t testing.TB, query string, args ...any) {
		t.Helper()
		c, err := connect(t.Context(), path, "mode=rw")
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(c.exec(t.Context(), query, args...), c.Close()); err != nil {
			t.Fatal(err)
		}
	}
	return logtest.Shared{
		Open: func(t testing.TB, readOnly bool) eventlog.EventLog {
			return openAt(t, path, Options{ReadOnly: readOnly})
		},
		Insert: func(t testing.TB, e event.Event) {
			t.Helper()
			exec(t, "INSERT INTO eventlog_events(run_id, seq, prev_hash, ts, kind, payload) VALUES (?, ?, ?, ?, ?, ?)", eventValues(e)...)
		},
		Exec: func(t testing.TB, sql string) {
			t.Helper()
			exec(t, sql)
		},
	}
}
