package pending

import (
	"context"
	"fmt"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/event"
)

// StaleEpoch is the error of a writer whose epoch is not the last one.
func StaleEpoch(runID string, epoch, last uint64) error {
	return fmt.Errorf("%w: run %q is in epoch %d, the writer's is %d", eventlog.ErrFenced, runID, last, epoch)
}

// Continued is the error of a run that somebody else has continued.
func Continued(runID string) error {
	return fmt.Errorf("%w: run %q: concurrent append: another process continued the run", eventlog.ErrInvalidAppend, runID)
}

// Epochs is a log that is written in epochs, as [Runs] is.
type Epochs interface {
	Append(ctx context.Context, runID string, epoch uint64, ev event.Event) error
	Sync(ctx context.Context, runID string, epoch uint64) error
}

// Writer is what differs between a log and its view for the writer who was given one
// run in one epoch (see [eventlog.Fencer]).
type Writer struct {
	log   Epochs
	runID string
	epoch uint64
}

// NewWriter returns the writer of a run.
func NewWriter(log Epochs, runID string, epoch uint64) Writer { return Writer{log, runID, epoch} }

// Append implements [eventlog.EventLog]. It takes events of the writer's run alone.
func (w Writer) Append(ctx context.Context, runID string, ev event.Event) error {
	if runID != w.runID {
		return fmt.Errorf("%w: the writer was given run %q, not %q", eventlog.ErrInvalidAppend, w.runID, runID)
	}
	return w.log.Append(ctx, runID, w.epoch, ev)
}

// Sync implements [eventlog.EventLog].
func (w Writer) Sync(ctx context.Context, runID string) error {
	if runID != w.runID {
		return w.log.Sync(ctx, runID, 0)
	}
	return w.log.Sync(ctx, runID, w.epoch)
}

// Close implements [eventlog.EventLog]. The log stays open.
func (w Writer) Close() error { return nil }
