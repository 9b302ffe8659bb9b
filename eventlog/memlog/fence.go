package memlog

import (
	"context"
	"fmt"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/event"
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
	return &fencedLog{Log: l, runID: runID, epoch: epoch}
}

// fencedLog is the log as the writer of one run sees it, in one epoch.
type fencedLog struct {
	*Log
	runID string
	epoch uint64
}

// Append implements [eventlog.EventLog].
func (f *fencedLog) Append(_ context.Context, runID string, ev event.Event) error {
	if runID != f.runID {
		return fmt.Errorf("%w: the writer was given run %q, not %q", eventlog.ErrInvalidAppend, f.runID, runID)
	}
	return f.append(runID, f.epoch, ev)
}

// Close implements [eventlog.EventLog]. The log stays open.
func (f *fencedLog) Close() error { return nil }
