package sqlitelog

import (
	"errors"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/eventlog/logtest"
)

// uncounted returns a file of layout 1 with some runs and a module.
func uncounted(t *testing.T) (path string, wasm []byte) {
	t.Helper()
	l := open(t)
	storeAll(t, l, slices.Concat(logtest.Finished("acme/run-1", 3), logtest.Finished("acme/run-2", 9), logtest.Finished("other", 1)))
	wasm = []byte("\x00asm\x01\x00\x00\x00")
	if _, err := l.PutModule(t.Context(), wasm); err != nil {
		t.Fatal(err)
	}
	newVandal(t, l).exec("ALTER TABLE run DROP COLUMN counted; ALTER TABLE run DROP COLUMN bytes; PRAGMA user_version=1")
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	return l.path, wasm
}

// TestAFileOfLayout1 is read as it is, with its modules and its recorded bytes, and written once it
// was migrated.
func TestAFileOfLayout1(t *testing.T) {
	t.Parallel()
	path, wasm := uncounted(t)
	namespaces := map[string]bool{"": true, "acme": true}
	ro := openAt(t, path, Options{ReadOnly: true})
	runs, events := readAll(t, ro)
	logtest.Recorded(t, ro, namespaces)
	if report, err := ro.MigrateSchema(t.Context(), true); err != nil || report.From != 1 || !slices.Equal(report.Steps, []string{eventlog.StepCount}) {
		t.Errorf("dry run: %+v, %v", report, err)
	}

	l := openAt(t, path, Options{})
	next := logtest.Finished("acme/next", 2)
	for _, err := range []error{l.Append(t.Context(), "acme/next", next[0]), eventlog.Preflight(t.Context(), l)} {
		if !errors.Is(err, eventlog.ErrSchemaOutdated) || errors.Is(err, eventlog.ErrLogCorrupt) {
			t.Errorf("before it is migrated: %v", err)
		}
	}
	if report, err := l.MigrateSchema(t.Context(), false); err != nil || report.From != 1 || report.To != 2 {
		t.Fatalf("%+v, %v", report, err)
	}
	logtest.Counted(t, l)
	again, err := l.MigrateSchema(t.Context(), false)
	if err != nil || len(again.Steps) > 0 {
		t.Errorf("once more: %+v, %v", again, err)
	}
	logtest.Recorded(t, ro, namespaces) // which goes on
	gotRuns, gotEvents := readAll(t, l)
	if diff := cmp.Diff(runs, gotRuns) + cmp.Diff(events, gotEvents); diff != "" {
		t.Error(diff)
	}
	if got, err := l.Module(t.Context(), canon.Sum(wasm)); err != nil || len(got) != len(wasm) {
		t.Errorf("its module: %d bytes, %v", len(got), err)
	}
	storeAll(t, l, next)
	logtest.Counted(t, l)
	readAll(t, openAt(t, path, Options{}))
}

// TestCopiesCountBytes compares what copies of a file say they have recorded with their events.
func TestCopiesCountBytes(t *testing.T) {
	t.Parallel()
	path, _ := uncounted(t)
	current := open(t)
	storeAll(t, current, slices.Concat(logtest.Finished("acme/run-1", 3), logtest.Finished("acme/run-2", 9)))
	for _, src := range []string{path, current.path} {
		fork := filepath.Join(t.TempDir(), "fork.db")
		if err := ForkSQLite(t.Context(), src, fork, "acme/run-2", 4); err != nil {
			t.Fatal(err)
		}
		l := openAt(t, fork, Options{})
		if s, err := l.Run(t.Context(), "acme/run-2"); err != nil || s.LastSeq != 3 {
			t.Errorf("%+v, %v", s, err)
		}
		logtest.Counted(t, l)
		backup := filepath.Join(t.TempDir(), "backup.db")
		if _, err := Backup(t.Context(), fork, backup); err != nil {
			t.Fatal(err)
		}
		logtest.Counted(t, openAt(t, backup, Options{}))
	}
}
