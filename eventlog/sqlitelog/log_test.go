package sqlitelog

import (
	"path/filepath"
	"testing"

	"github.com/starling-host/starling/eventlog"
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
	logtest.Run(t, func(t testing.TB) eventlog.EventLog { return open(t) })
}

func TestPairs(t *testing.T) {
	logtest.RunPair(t, func(t testing.TB) (a, b eventlog.EventLog) {
		first := open(t)
		return first, openAt(t, first.path, Options{})
	})
}
