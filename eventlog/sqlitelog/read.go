package sqlitelog

import (
	"context"
	"iter"
	"time"

	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/eventlog/internal/tail"
)

// Read implements [eventlog.EventLog].
func (l *Log) Read(ctx context.Context, runID string) ([]event.Event, error) {
	return tail.Collect(l.Events(ctx, runID, 0))
}

// Events implements [eventlog.EventSource]. No statement is open while the
// caller works, so a caller may take its time.
func (l *Log) Events(ctx context.Context, runID string, after uint64) iter.Seq2[event.Event, error] {
	return l.runs.Events(ctx, runID, after, l.page)
}

func (l *Log) page(ctx context.Context, runID string, after uint64, n int) (evs []event.Event, err error) {
	err = l.readers.with(ctx, func(r *reader) error {
		evs, err = r.page(ctx, runID, after, n)
		return err
	})
	return evs, err
}

// Stream implements [eventlog.EventLog]. Events of another process are noticed
// within twice pollEvery.
func (l *Log) Stream(ctx context.Context, runID string) (<-chan event.Event, error) {
	l.poll.start(l)
	return l.hub.Stream(ctx, runID, l.page)
}

func unixNano(ns int64) time.Time { return time.Unix(0, ns).UTC() }
