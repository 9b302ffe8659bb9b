package sqlitelog

import (
	"context"
	"errors"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/internal/pending"
)

// run is a run that this process writes.
type run = pending.Run[row]

// item is one entry of the queue: an event, or a [task].
type item = pending.Item[row]

// row is what the writer keeps of a run.
type row struct {
	no    int64               // its number in the table run, zero before there is one
	first uint64              // number of the run's first event that is not in its row yet
	after eventlog.RunSummary // what the current transaction makes of it
}

// find looks into the file where a run stands.
func (l *Log) find(ctx context.Context, runID string) (at pending.Place, err error) {
	err = l.readers.with(ctx, func(rd *reader) error {
		at.Epoch, err = rd.epoch(ctx, runID)
		return err
	})
	if err != nil {
		return at, err
	}
	no, s, _, err := l.look(ctx, runID)
	switch {
	case errors.Is(err, eventlog.ErrRunNotFound):
		return at, nil
	case err == nil:
		at.Row, at.Cursor = no, eventlog.NewCursor(s)
	}
	return at, err
}
