package sqlitelog

import (
	"context"
	"fmt"
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
