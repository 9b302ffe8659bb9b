package sqlitelog

import (
	"compress/bzip2"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/eventlog/logtest"
)

// starlingFile returns a copy of the database that the Starling runtime wrote.
func starlingFile(t testing.TB) string {
	t.Helper()
	f, err := os.Open("../../../cmd/starling-host/testdata/recorded/2026-11/seed.db.bz2")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	data, err := io.ReadAll(bzip2.NewReader(f))
	path := filepath.Join(t.TempDir(), "ref.db")
	if err := errors.Join(err, os.WriteFile(path, data, 0o600)); err != nil {
		t.Fatal(err)
	}
	return path
}

// readAll returns all runs of a log, after a strict check of each.
func readAll(t testing.TB, l *Log) (runs []eventlog.RunSummary, events map[string][]event.Event) {
	t.Helper()
	runs, err := l.ListRuns(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	events = make(map[string][]event.Event)
	for _, r := range runs {
		if _, err := eventlog.CheckRun(t.Context(), l, r.RunID, eventlog.CheckOptions{Strict: true}); err != nil {
			t.Error(err)
		}
		if events[r.RunID], err = l.Read(t.Context(), r.RunID); err != nil {
			t.Error(err)
		}
	}
	return runs, events
}

func TestFileOfTheSeedRuntimeIsReadWithoutMigration(t *testing.T) {
	t.Parallel()
	path := starlingFile(t)
	before, _ := os.ReadFile(path)
	l := openAt(t, path, Options{ReadOnly: true})
	runs, events := readAll(t, l)
	if len(runs) != 8 {
		t.Errorf("%d runs, want 8", len(runs))
	}
	if !slices.IsSortedFunc(runs, func(a, b eventlog.RunSummary) int { return b.StartedAt.Compare(a.StartedAt) }) {
		t.Error("the newest run is not the first")
	}
	page, err := l.ListRunsPage(t.Context(), eventlog.RunPageOptions{Query: "SUPPORT/", RequireToolCalls: true})
	if err != nil || page.TotalMatching != 1 || page.Runs[0].ToolCallCount != 2 {
		t.Errorf("%+v, %v", page, err)
	}
	id := runs[0].RunID
	if err := l.Append(t.Context(), id, events[id][0]); !errors.Is(err, eventlog.ErrReadOnly) {
		t.Errorf("Append: %v", err)
	}
	if _, err := l.MigrateSchema(t.Context(), false); !errors.Is(err, eventlog.ErrReadOnly) {
		t.Errorf("Migrate: %v", err)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	if after, _ := os.ReadFile(path); string(after) != string(before) {
		t.Error("reading changed the file")
	}
}

func TestFileOfTheSeedRuntimeIsMigrated(t *testing.T) {
	t.Parallel()
	path := starlingFile(t)
	l := openAt(t, path, Options{})
	oldRuns, oldEvents := readAll(t, l)
	c := logtest.Chain{RunID: "new"}
	start := c.Start("g")
	if err := l.Append(t.Context(), "new", start); !errors.Is(err, eventlog.ErrSchemaOutdated) {
		t.Errorf("Append before Migrate: %v", err)
	}
	if err := eventlog.Preflight(t.Context(), l); !errors.Is(err, eventlog.ErrSchemaOutdated) {
		t.Errorf("Preflight before Migrate: %v", err)
	}

	before, _ := os.ReadFile(path)
	planned, err := l.MigrateSchema(t.Context(), true)
	if err != nil || !planned.DryRun || planned.Runs != 8 || planned.Events != 76 || planned.From != 0 || planned.To != layoutVersion {
		t.Errorf("dry run: %+v, %v", planned, err)
	}
	if after, _ := os.ReadFile(path); string(after) != string(before) {
		t.Error("the dry run changed the file")
	}
	done, err := l.MigrateSchema(t.Context(), false)
	if diff := cmp.Diff(planned, done, cmpopts.IgnoreFields(eventlog.MigrationReport{}, "DryRun")); err != nil || diff != "" {
		t.Errorf("%v\n%s", err, diff)
	}
	if again, err := l.MigrateSchema(t.Context(), false); err != nil || again.From != layoutVersion || len(again.Steps) != 0 {
		t.Errorf("second Migrate: %+v, %v", again, err)
	}
	if err := eventlog.Preflight(t.Context(), l); err != nil {
		t.Error(err)
	}

	runs, events := readAll(t, l)
	if diff := cmp.Diff(oldRuns, runs, cmpopts.IgnoreFields(eventlog.RunSummary{}, "Head")); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(oldEvents, events); diff != "" {
		t.Error(diff)
	}
	for _, e := range []event.Event{start, c.Complete()} {
		if err := l.Append(t.Context(), "new", e); err != nil {
			t.Error(err)
		}
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	if runs, _ := readAll(t, openAt(t, path, Options{})); len(runs) != 9 {
		t.Errorf("%d runs after opening again", len(runs))
	}
}

// Before its table was called eventlog_events, the Starling runtime had one called events. A table of
// that name may be another program's, too.
func TestFilesThatAreNotLogs(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		tables []string
		want   string
	}{
		"as it once was":   {[]string{strings.Replace(seedEventsTable, "eventlog_events", "events", 1)}, "the file has no table eventlog_events"},
		"of somebody else": {[]string{"CREATE TABLE events (id INTEGER, run_id TEXT)"}, "the file has no table eventlog_events"},
		"of nobody":        {nil, "the database is empty"},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "other.db")
			if err := touch(path); err != nil {
				t.Fatal(err)
			}
			c, err := connect(t.Context(), path, "mode=rw")
			if err == nil {
				err = errors.Join(c.execAll(t.Context(), tc.tables), c.Close())
			}
			if err != nil {
				t.Fatal(err)
			}
			for _, readOnly := range []bool{true, false} {
				if tc.tables == nil && !readOnly {
					continue // it becomes a log
				}
				l, err := Open(t.Context(), path, Options{ReadOnly: readOnly})
				if !errors.Is(err, ErrNotLog) || !strings.Contains(err.Error(), tc.want) {
					t.Errorf("%v", err)
					l.Close()
				}
			}
		})
	}
}

// The Starling runtime reads, and looks up its version, with these statements.
func TestToolsOfTheSeedRuntimeReadOurFiles(t *testing.T) {
	t.Parallel()
	l := open(t)
	evs := logtest.Finished("run-1", 3)
	storeAll(t, l, evs)
	c, err := connect(t.Context(), l.path, "mode=ro")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	version, err := c.integer(t.Context(), "SELECT COALESCE(MAX(version), 0) FROM eventlog_schema_migrations")
	if err != nil || version != 2 {
		t.Errorf("version %d, %v", version, err)
	}
	last, err := c.integer(t.Context(), `SELECT seq FROM (SELECT run_id, seq, prev_hash, ts, kind, payload
		FROM eventlog_events WHERE run_id = 'run-1' ORDER BY seq DESC LIMIT 1)`)
	if err != nil || last != int64(len(evs)) {
		t.Errorf("last event %d, %v", last, err)
	}
}

// storeAll appends events, which may belong to several runs, and waits.
func storeAll(t testing.TB, l *Log, evs []event.Event) {
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
