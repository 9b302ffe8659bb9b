package sqlitelog

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/logtest"
)

// TestPruningManyRuns removes 40,000 runs at once: more than a statement can name
// one by one, which is how the seed runtime tried it.
func TestPruningManyRuns(t *testing.T) {
	runs := 40_000
	if testing.Short() {
		runs = 2_000
	}
	l := open(t)
	ctx := context.Background()
	for i := range runs {
		id := fmt.Sprint("run-", i)
		for _, ev := range logtest.Finished(id, 0) {
			if err := l.Append(ctx, id, ev); err != nil {
				t.Fatal(err)
			}
		}
	}
	kept := &logtest.Chain{RunID: "kept"}
	if err := l.Append(ctx, "kept", kept.Start("goes on")); err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{fmt.Sprint("run-", runs-1), "kept"} {
		if err := l.Sync(ctx, id); err != nil {
			t.Fatal(err)
		}
	}
	report, err := l.PruneRuns(ctx, eventlog.PruneOptions{})
	if err != nil || report.Runs != runs || report.Events != int64(4*runs) {
		t.Errorf("%+v, %v", report, err)
	}
	if err := l.Append(ctx, "kept", kept.Complete()); err != nil {
		t.Fatal(err)
	}
	if err := l.Sync(ctx, "kept"); err != nil {
		t.Fatal(err)
	}
	if _, err := eventlog.CheckRun(ctx, l, "kept", eventlog.CheckOptions{Strict: true}); err != nil {
		t.Error(err)
	}
	all, err := l.ListRuns(ctx)
	if err != nil || len(all) != 1 {
		t.Errorf("%d runs are left, %v", len(all), err)
	}
}

// TestNothingIsLeftOfRunsThatWereNamed looks for what a run held, beside other events on
// a page and on pages of its own, in the files that remain.
func TestNothingIsLeftOfRunsThatWereNamed(t *testing.T) {
	const canary = "what she has said"
	dir, ctx := t.TempDir(), t.Context()
	l, err := Open(ctx, filepath.Join(dir, "log.db"), Options{})
	if err != nil {
		t.Fatal(err)
	}
	for i, text := range []string{"", canary, "", strings.Repeat(canary, 20_000), ""} {
		c := &logtest.Chain{RunID: fmt.Sprint("run-", i)}
		if err := l.Append(ctx, c.RunID, c.Start(text)); err != nil {
			t.Fatal(err)
		}
		if err := l.Append(ctx, c.RunID, c.Complete()); err != nil {
			t.Fatal(err)
		}
		if err := l.Sync(ctx, c.RunID); err != nil {
			t.Fatal(err)
		}
	}
	if !holds(t, dir, canary) {
		t.Error("the test looks into the wrong files")
	}
	report, err := l.PruneRuns(ctx, eventlog.PruneOptions{RunIDs: []string{"run-1", "run-3"}})
	if err != nil || report.Runs != 2 {
		t.Errorf("%+v, %v", report, err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if holds(t, dir, canary) {
		t.Error("it is there after the run was removed")
	}
}

// holds reports whether a text is in a file of the folder.
func holds(t *testing.T, dir, text string) bool {
	t.Helper()
	files, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		data, err := os.ReadFile(filepath.Join(dir, f.Name()))
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Contains(data, []byte(text)) {
			return true
		}
	}
	return false
}
