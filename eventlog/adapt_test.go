package eventlog_test

import (
	"context"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/eventlog/logtest"
	"github.com/starling-host/starling/eventlog/store"
)

// basicLog has the methods that a log of the Starling runtime has, and no other.
type basicLog struct{ inner eventlog.Store }

func (l basicLog) Append(ctx context.Context, id string, ev event.Event) error {
	if err := l.inner.Append(ctx, id, ev); err != nil {
		return err
	}
	return l.inner.Sync(ctx, id)
}

func (l basicLog) Read(ctx context.Context, id string) ([]event.Event, error) {
	return l.inner.Read(ctx, id)
}

func (l basicLog) Stream(ctx context.Context, id string) (<-chan event.Event, error) {
	return l.inner.Stream(ctx, id)
}

func (l basicLog) Close() error { return l.inner.Close() }

type listing struct{ basicLog }

func (l listing) ListRuns(ctx context.Context) ([]eventlog.RunSummary, error) {
	return l.inner.ListRuns(ctx)
}

type paging struct{ basicLog }

func (l paging) ListRunsPage(ctx context.Context, o eventlog.RunPageOptions) (eventlog.RunPage, error) {
	return l.inner.ListRunsPage(ctx, o)
}

func (l paging) PruneRuns(ctx context.Context, o eventlog.PruneOptions) (eventlog.PruneReport, error) {
	return l.inner.PruneRuns(ctx, o)
}

func TestAdaptedLogReadsAndLists(t *testing.T) {
	for name, basic := range map[string]eventlog.Basic{
		"one that lists runs":  listing{basicLog{store.Memory()}},
		"one that lists pages": paging{basicLog{store.Memory()}},
	} {
		t.Run(name, func(t *testing.T) {
			log := eventlog.Adapt(basic)
			defer log.Close()
			for _, id := range []string{"run-1", "run-2", "run-3"} {
				run := logtest.Chain{RunID: id}
				for _, ev := range []event.Event{run.Start("goal"), run.Effect(3), run.Complete()} {
					if err := errors.Join(log.Append(t.Context(), id, ev), log.Sync(t.Context(), id)); err != nil {
						t.Fatal(err)
					}
				}
				if _, err := eventlog.CheckRun(t.Context(), log, id, eventlog.CheckOptions{Strict: true}); err != nil {
					t.Error(err)
				}
			}
			var seqs []uint64
			for ev, err := range log.Events(t.Context(), "run-2", 1) {
				if seqs = append(seqs, ev.Seq); err != nil {
					t.Fatal(err)
				}
			}
			all, err := log.ListRuns(t.Context())
			if err != nil || len(all) != 3 {
				t.Fatal(all, err)
			}
			page, err := log.ListRunsPage(t.Context(), eventlog.RunPageOptions{Limit: 1, Offset: 1, Query: "RUN"})
			if err != nil || page.TotalMatching != 3 || len(page.Runs) != 1 || page.Runs[0].RunID != all[1].RunID {
				t.Error(page, err)
			}
			summary, err := log.Run(t.Context(), "run-2")
			if d := cmp.Diff([]uint64{2, 3}, seqs); d != "" || err != nil || summary.LastSeq != 3 || summary.Head != (canon.Hash{}) {
				t.Error(d, summary, err)
			}
		})
	}
}

func TestAdaptedLogPrunes(t *testing.T) {
	inner, run := store.Memory(), logtest.Chain{RunID: "run"}
	for _, ev := range []event.Event{run.Start("goal"), run.Complete()} {
		if err := inner.Append(t.Context(), "run", ev); err != nil {
			t.Fatal(err)
		}
	}
	report, err := eventlog.PruneInSteps(t.Context(), eventlog.Adapt(paging{basicLog{inner}}), eventlog.PruneOptions{})
	if d := cmp.Diff(eventlog.PruneReport{Runs: 1, Events: 2}, report); d != "" || err != nil {
		t.Error(err, d)
	}
}

func TestAdaptedLogSaysWhatItCannotDo(t *testing.T) {
	log := eventlog.Adapt(basicLog{store.Memory()})
	_, list := log.ListRuns(t.Context())
	_, page := log.ListRunsPage(t.Context(), eventlog.RunPageOptions{})
	_, prune := log.PruneRuns(t.Context(), eventlog.PruneOptions{})
	for _, err := range []error{list, page, prune} {
		if !errors.Is(err, errors.ErrUnsupported) {
			t.Error(err)
		}
	}
	if _, err := log.Run(t.Context(), "absent"); !errors.Is(err, eventlog.ErrRunNotFound) {
		t.Error(err)
	}
}
