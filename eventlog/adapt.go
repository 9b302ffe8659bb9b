package eventlog

import (
	"context"
	"errors"
	"fmt"
	"iter"

	"github.com/starling-host/starling/eventlog/event"
)

// Basic is the minimal log: the interface that logs of the Starling runtime implement.
// [Adapt] makes an [EventLog] of one. A Basic log may also be a [RunLister], a
// [RunPageLister] or a [RunPruner].
type Basic interface {
	// Append checks that ev continues the run, and returns once it is durable.
	Append(ctx context.Context, runID string, ev event.Event) error
	// Read returns the events of a run in order. A run without events is [ErrRunNotFound],
	// or no event.
	Read(ctx context.Context, runID string) ([]event.Event, error)
	// Stream delivers the events of a run, including future ones, see [EventLog].
	Stream(ctx context.Context, runID string) (<-chan event.Event, error)
	// Close releases the log.
	Close() error
}

// RunLister lists all runs, the newest first.
type RunLister interface {
	ListRuns(ctx context.Context) ([]RunSummary, error)
}

// RunPageLister lists a page of the runs that match, the newest first.
type RunPageLister interface {
	ListRunsPage(ctx context.Context, o RunPageOptions) (RunPage, error)
}

// RunPruner removes matching runs, either all of them or none, see [Store].
type RunPruner interface {
	PruneRuns(ctx context.Context, o PruneOptions) (PruneReport, error)
}

// Adapt makes an [EventLog] of a log that only has the methods of [Basic]. Pages come from
// ListRuns if the log has no ListRunsPage, and all runs from its pages if it has no
// ListRuns. Methods that the log cannot provide return [errors.ErrUnsupported].
//
// A log that keeps events in memory until Sync, or that can read a run in pieces, should
// implement EventLog itself.
func Adapt(log Basic) interface {
	EventLog
	RunPruner
} {
	return adapted{log}
}

type adapted struct{ Basic }

// Sync implements [EventLog]. An event is durable when Append has returned.
func (adapted) Sync(context.Context, string) error { return nil }

// Read implements [EventLog].
func (a adapted) Read(ctx context.Context, runID string) ([]event.Event, error) {
	events, err := a.Basic.Read(ctx, runID)
	if err == nil && len(events) == 0 {
		err = ErrRunNotFound
	}
	return events, err
}

// Events implements [EventLog]. The whole run is in memory meanwhile.
func (a adapted) Events(ctx context.Context, runID string, after uint64) iter.Seq2[event.Event, error] {
	return func(yield func(event.Event, error) bool) {
		events, err := a.Read(ctx, runID)
		for _, ev := range events {
			if ev.Seq > after && !yield(ev, nil) {
				return
			}
		}
		if err != nil {
			yield(event.Event{}, err)
		}
	}
}

// Run implements [EventLog]. The summary is computed from the events, so it has no head to
// compare them with.
func (a adapted) Run(ctx context.Context, runID string) (RunSummary, error) {
	var c Cursor
	for ev, err := range a.Events(ctx, runID, 0) {
		if err != nil {
			return RunSummary{}, err
		}
		c.Count(ev)
	}
	return c.Run(), nil
}

// ListRuns implements [EventLog].
func (a adapted) ListRuns(ctx context.Context) (all []RunSummary, err error) {
	if lister, ok := a.Basic.(RunLister); ok {
		return lister.ListRuns(ctx)
	}
	pages, ok := a.Basic.(RunPageLister)
	if !ok {
		return nil, a.unsupported("list its runs")
	}
	for {
		page, err := pages.ListRunsPage(ctx, RunPageOptions{Limit: MaxPageLimit, Offset: len(all)})
		if all = append(all, page.Runs...); err != nil || len(page.Runs) == 0 {
			return all, err
		}
	}
}

// ListRunsPage implements [EventLog].
func (a adapted) ListRunsPage(ctx context.Context, o RunPageOptions) (RunPage, error) {
	if pages, ok := a.Basic.(RunPageLister); ok {
		return pages.ListRunsPage(ctx, o)
	}
	all, err := a.ListRuns(ctx)
	if err != nil {
		return RunPage{}, err
	}
	return o.Select(all)
}

// PruneRuns implements [RunPruner].
func (a adapted) PruneRuns(ctx context.Context, o PruneOptions) (PruneReport, error) {
	if pruner, ok := a.Basic.(RunPruner); ok {
		return pruner.PruneRuns(ctx, o)
	}
	return PruneReport{}, a.unsupported("remove runs")
}

func (a adapted) unsupported(what string) error {
	return fmt.Errorf("eventlog: a log of type %T cannot %s: %w", a.Basic, what, errors.ErrUnsupported)
}
