package pglog

import (
	"errors"
	"slices"
	"testing"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/logtest"
)

// TestTablesOfLayout1 are read as they are, with their recorded bytes, and written once they were
// migrated. A host of that version goes on beside this one: it moves rows and counts nothing.
func TestTablesOfLayout1(t *testing.T) {
	t.Parallel()
	l, dsn := open(t)
	c := logtest.Chain{RunID: "acme/open"}
	storeAll(t, l, slices.Concat(logtest.Finished("acme/run-1", 3), logtest.Finished("other", 1))...)
	storeAll(t, l, c.Start("g"), c.Effect(10))
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	conn := connectTo(t, dsn)
	execute(t, conn, "ALTER TABLE run DROP COLUMN bytes, DROP COLUMN counted; DELETE FROM table_set WHERE name = 'eventlog_expanded'")

	namespaces := map[string]bool{"": true, "acme": true}
	ro := openAt(t, dsn, Options{ReadOnly: true})
	if got, err := ro.Read(t.Context(), "acme/open"); err != nil || len(got) != 2 {
		t.Errorf("%d events, %v", len(got), err)
	}
	logtest.Recorded(t, ro, namespaces)
	l = openAt(t, dsn, Options{})
	next := c.Effect(20)
	for _, err := range []error{l.Append(t.Context(), "acme/open", next), eventlog.Preflight(t.Context(), l)} {
		if !errors.Is(err, eventlog.ErrSchemaOutdated) || errors.Is(err, eventlog.ErrLogCorrupt) {
			t.Errorf("before they are migrated: %v", err)
		}
	}
	for _, dryRun := range []bool{true, false} {
		report, err := l.MigrateSchema(t.Context(), dryRun)
		if err != nil || report.From != 1 || report.To != 2 || len(report.Steps) != 2 {
			t.Fatalf("dry run %v: %+v, %v", dryRun, report, err)
		}
	}
	logtest.Counted(t, l)
	storeAll(t, l, next)
	logtest.Counted(t, l)

	theirs := c.Effect(30)
	storeByHand(t, conn, theirs)
	head := theirs.Hash()
	execute(t, conn, "UPDATE run SET last_seq = $2, head = $3, duration_ms = ($4 - started) / 1000000 WHERE run_id = $1", theirs.RunID, theirs.Seq, head[:], theirs.Timestamp)
	logtest.Recorded(t, l, namespaces)
	storeAll(t, l, c.Effect(40), c.Complete())
	logtest.Recorded(t, l, namespaces)
	for _, dryRun := range []bool{true, false} {
		report, err := l.MigrateSchema(t.Context(), dryRun)
		if err != nil || report.Uncounted != 1 || !slices.Equal(report.Steps, []string{eventlog.StepCount}) {
			t.Errorf("dry run %v: %+v, %v", dryRun, report, err)
		}
	}
	logtest.Counted(t, l)
	if report, err := l.MigrateSchema(t.Context(), false); err != nil || len(report.Steps) > 0 {
		t.Errorf("once more: %+v, %v", report, err)
	}
	readAll := func(l *Log) {
		for _, id := range []string{"acme/run-1", "acme/open", "other"} {
			if _, err := eventlog.CheckRun(t.Context(), l, id, eventlog.CheckOptions{Strict: true}); err != nil {
				t.Error(err)
			}
		}
	}
	readAll(l)

	// Tables that a later version has added to are this version's as well.
	execute(t, conn, "UPDATE table_set SET steps = steps + 1 WHERE name = 'eventlog_expanded'")
	later := openAt(t, dsn, Options{})
	storeAll(t, later, logtest.Finished("acme/later", 2)...)
	storeAll(t, l, logtest.Finished("acme/too", 2)...)
	if report, err := later.MigrateSchema(t.Context(), false); err != nil || len(report.Steps) > 0 {
		t.Errorf("added to: %+v, %v", report, err)
	}
	logtest.Counted(t, later)
	readAll(later)
}
