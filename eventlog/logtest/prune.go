package logtest

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/starling-host/starling/eventlog"
)

// pruning removes runs in steps, and checks the rest.
func pruning(t *testing.T, log eventlog.EventLog) {
	p := log.(eventlog.Store)
	ctx := context.Background()
	for i := range 6 {
		store(t, log, Finished(fmt.Sprint("run-", i), i)...)
	}
	open := &Chain{RunID: "open"}
	store(t, log, open.Start("still at work"))

	expect := func(what string, o eventlog.PruneOptions, runs, left int) {
		t.Helper()
		report, err := p.PruneRuns(ctx, o)
		if err != nil || report.Runs != runs || report.DryRun != o.DryRun || runs > 0 && report.Events == 0 {
			t.Errorf("%s: %+v, %v", what, report, err)
		}
		all, err := log.ListRuns(ctx)
		if err != nil || len(all) != left {
			t.Errorf("%s: %d runs are left, %v", what, len(all), err)
		}
	}
	expect("a dry run", eventlog.PruneOptions{DryRun: true}, 6, 7)
	expect("nothing before all times", eventlog.PruneOptions{Before: time.Date(1026, 1, 1, 0, 0, 0, 0, time.UTC)}, 0, 7)
	expect("nothing that old", eventlog.PruneOptions{Before: time.Unix(0, 0)}, 0, 7)
	expect("nothing that failed", eventlog.PruneOptions{Status: eventlog.StatusFailed}, 0, 7)
	named := []string{"run-3", "open", "run-9"}
	expect("a dry run of those named", eventlog.PruneOptions{RunIDs: named, DryRun: true}, 1, 7)
	expect("of those named none that is at work", eventlog.PruneOptions{RunIDs: []string{"open"}, IncludeOpen: true}, 0, 7)
	expect("none of those named", eventlog.PruneOptions{RunIDs: []string{"run-9", "run-3\x00"}}, 0, 7)
	expect("those named", eventlog.PruneOptions{RunIDs: named, IncludeOpen: true}, 1, 6)
	if _, err := log.Read(ctx, "run-3"); !errors.Is(err, eventlog.ErrRunNotFound) {
		t.Errorf("a run that was named: %v", err)
	}
	store(t, log, Finished("run-3", 3)...)
	expect("two of them", eventlog.PruneOptions{Limit: 2}, 2, 5)
	expect("the rest, also what is open", eventlog.PruneOptions{IncludeOpen: true}, 4, 1)
	if _, err := log.Read(ctx, "run-5"); !errors.Is(err, eventlog.ErrRunNotFound) {
		t.Errorf("a run that is gone: %v", err)
	}
	store(t, log, open.Complete()) // the run in progress was left alone, and continues
	for _, o := range []eventlog.PruneOptions{{Status: "?"}, {Status: eventlog.StatusOpen}, {RunIDs: []string{"run-\xff"}}} {
		if _, err := p.PruneRuns(ctx, o); !errors.Is(err, eventlog.ErrInvalidPrune) {
			t.Errorf("%+v: %v", o, err)
		}
	}
}
