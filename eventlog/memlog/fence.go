package memlog

import (
	"context"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/eventlog/internal/pending"
)

// Fenced implements [eventlog.Fencer]. There are no transactions here in which a
// run could be given away, so that is what this call does: writers in earlier
// epochs, and those in none, have lost the run from now on.
func (l *Log) Fenced(runID string, epoch uint64) eventlog.EventLog {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.closed {
		l.epochs[runID] = max(l.epochs[runID], epoch)
	}
	return &fencedLog{pending.NewWriter(epochs{l}, runID, epoch), others{l}}
}

// fencedLog is the log as the writer of one run sees it, in one epoch.
type fencedLog struct {
	pending.Writer
	others
}

// others has the methods of the log that the writer does not have. Those of both are
// the writer's, because the log's are embedded more deeply.
type others struct{ *Log }

// epochs implements [pending.Epochs].
type epochs struct{ log *Log }

// Append appends under an epoch.
func (e epochs) Append(_ context.Context, runID string, epoch uint64, ev event.Event) error {
	return e.log.append(runID, epoch, ev)
}

// Sync has nothing to wait for in any epoch.
func (e epochs) Sync(ctx context.Context, runID string, _ uint64) error {
	return e.log.Sync(ctx, runID)
}
