package sqlitelog

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/logtest"
	"github.com/starling-host/starling/internal/treetest"
)

// TestPruningManyRuns removes 4,000 runs at once, and with STARLING_NIGHTLY 40,000: too
// many to name one by one in a statement, as the Starling runtime did.
func TestPruningManyRuns(t *testing.T) {
	t.Parallel()
	runs := treetest.Count(4_000, 4_000, 40_000)
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

// TestNothingIsLeftOfRunsThatWereNamed searches the remaining files for the content of
// removed runs: beside other events on a page, on pages of its own, and where removals of
// others have moved it from.
func TestNothingIsLeftOfRunsThatWereNamed(t *testing.T) {
	t.Parallel()
	for _, size := range []int{5, 45, 300, 3_000, 30_000} {
		t.Run(fmt.Sprint(size), func(t *testing.T) { nothingIsLeft(t, size) })
	}
}

func nothingIsLeft(t *testing.T, size int) {
	const runs, others = 300, 100
	dir, ctx := t.TempDir(), t.Context()
	l, err := Open(ctx, filepath.Join(dir, "log.db"), Options{})
	if err != nil {
		t.Fatal(err)
	}
	canary := func(i int) string { return fmt.Sprintf("what %03d has said", i) }
	name := func(i int) string { return fmt.Sprintf("run-%05d", i*7919%100_000) } // in no order
	for i := range runs {
		c := &logtest.Chain{RunID: name(i)}
		if err := errors.Join(l.Append(ctx, c.RunID, c.Start(canary(i)+strings.Repeat("x", size))), l.Append(ctx, c.RunID, c.Complete())); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.Sync(ctx, name(runs-1)); err != nil {
		t.Fatal(err)
	}
	remove := func(want int, o eventlog.PruneOptions) {
		t.Helper()
		if report, err := l.PruneRuns(ctx, o); err != nil || report.Runs != want {
			t.Fatalf("%+v, %v", report, err)
		}
	}
	for range others / 10 {
		remove(10, eventlog.PruneOptions{Limit: 10})
	}
	for i := runs - 1; i >= others; i -= 3 {
		remove(1, eventlog.PruneOptions{RunIDs: []string{name(i)}})
	}
	if _, err := Compact(ctx, l); err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	held := contents(t, dir)
	if !strings.Contains(held, canary(runs-2)) {
		t.Error("the test looks into the wrong files")
	}
	for i := runs - 1; i >= others; i -= 3 {
		if strings.Contains(held, canary(i)) {
			t.Errorf("run %d is legible", i)
		}
	}
}

// contents returns all that the files of a folder hold.
func contents(t *testing.T, dir string) string {
	t.Helper()
	files, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var all strings.Builder
	for _, f := range files {
		data, err := os.ReadFile(filepath.Join(dir, f.Name()))
		if err != nil {
			t.Fatal(err)
		}
		all.Write(data)
	}
	return all.String()
}
