package tail

import (
	"context"
	"fmt"
	"iter"
	"math"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/event"
)

// pageEvents is how many events are read from the log at a time.
const pageEvents = 512

// maxSeq is the largest number that a database keeps. A caller may name a larger one,
// behind which there is nothing, and as a signed integer it would stand before them all.
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

// Collect returns what a sequence yields, or its first error.
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
