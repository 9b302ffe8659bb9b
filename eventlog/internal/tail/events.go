package tail

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"math"
	"slices"
	"time"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/eventlog/event"
)

// pageEvents is how many events one page of the log has.
const pageEvents = 512

// maxSeq is the largest number that a database keeps. A caller may ask for events after a larger
// number, which do not exist; as a signed integer it would come before all numbers.
const maxSeq = math.MaxInt64

// Events yields the events of a run with numbers above after, a page at a time. Between
// pages it holds nothing of the log, so its caller may take its time. A run without
// events is [eventlog.ErrRunNotFound], unless it is read on from an event.
func Events(ctx context.Context, runID string, after uint64, page Page) iter.Seq2[event.Event, error] {
	return func(yield func(event.Event, error) bool) {
		for at := min(after, maxSeq); ; {
			evs, err := page(ctx, runID, at, pageEvents)
			if err == nil && len(evs) == 0 && at == 0 {
				err = fmt.Errorf("%w: %q", eventlog.ErrRunNotFound, runID)
			}
			if err != nil {
				yield(event.Event{}, err)
				return
			}
			for _, e := range evs {
				if !yield(e, nil) {
					return
				}
			}
			if !more(evs, pageEvents) {
				return
			}
			at = evs[len(evs)-1].Seq
		}
	}
}

// Collect returns all events of a sequence, or its first error.
func Collect(events iter.Seq2[event.Event, error]) ([]event.Event, error) {
	var all []event.Event
	for e, err := range events {
		if err != nil {
			return nil, err
		}
		all = append(all, e)
	}
	return all, nil
}

// Summary computes the summary of a run from its events, for a backend whose stored summary, kept,
// lacks events: another program has appended them, or the tables were restored one by one. kept is
// zero if the backend has none.
//
// The result is kept itself if the events up to kept.LastSeq do not add up to it, or if the events
// do not continue each other. That difference is the evidence that the run was changed, and the
// caller must not replace it. Without a stored summary, the result covers the events that can be
// read.
func Summary(runID string, events iter.Seq2[event.Event, error], kept eventlog.RunSummary) (eventlog.RunSummary, error) {
	var at eventlog.Cursor
	fits, linked := false, true
	for e, err := range events {
		if errors.Is(err, eventlog.ErrLogCorrupt) {
			linked = false
			break
		}
		if err != nil {
			return eventlog.RunSummary{}, err
		}
		last := at.Run()
		linked = linked && e.Seq == last.LastSeq+1 && (last.LastSeq == 0 || bytes.Equal(e.PrevHash, last.Head[:]))
		at.Skip(e)
		fits = fits || at.Run() == kept
	}
	if kept.LastSeq > 0 && !(fits && linked) {
		return kept, nil
	}
	s := at.Run()
	if s.LastSeq == 0 {
		s.RunID, s.StartedAt = runID, time.Unix(0, 0).UTC()
	}
	return s, nil
}

// Merge returns a listing, the newest first, in which the runs in behind have the summaries
// that look finds. A computed summary that is not kept has no head: it would be evidence
// of nothing.
func Merge(runs []eventlog.RunSummary, behind []string, look func(runID string) (s eventlog.RunSummary, kept bool, err error)) ([]eventlog.RunSummary, error) {
	if len(behind) == 0 {
		return runs, nil
	}
	behind = slices.Clone(behind)
	slices.Sort(behind)
	behind = slices.Compact(behind)
	runs = slices.DeleteFunc(runs, func(s eventlog.RunSummary) bool {
		_, found := slices.BinarySearch(behind, s.RunID)
		return found
	})
	for _, id := range slices.Backward(behind) {
		s, indexed, err := look(id)
		switch {
		case errors.Is(err, eventlog.ErrRunNotFound):
			continue // it was removed meanwhile
		case errors.Is(err, eventlog.ErrLogCorrupt):
			s = eventlog.RunSummary{RunID: id} // one damaged row does not hide the other runs
		case err != nil:
			return nil, err
		}
		if !indexed {
			s.Head = canon.Hash{}
		}
		runs = append(runs, s)
	}
	slices.SortStableFunc(runs, func(a, b eventlog.RunSummary) int { return b.StartedAt.Compare(a.StartedAt) })
	return runs, nil
}
