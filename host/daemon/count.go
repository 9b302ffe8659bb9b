package daemon

import (
	"errors"
	"time"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/runtime/observe"
)

// What is measured of runs here, and not by those who make them: how they begin, in the
// transaction that takes the order, and the end of those that nobody makes.

// countOpening counts the first event of a run, which is appended with the order. What
// was refused was not to be appended. took is the time until the log took the event, as
// for any other: not that of the transaction, which waits for the disk.
func (d *Daemon) countOpening(err error, took time.Duration) {
	status := "ok"
	switch {
	case err == nil:
	case errors.Is(err, eventlog.ErrUnavailable), errors.Is(err, eventlog.ErrLogStopped), errors.Is(err, eventlog.ErrLogClosed):
		status = "error"
	default:
		return
	}
	d.config.Runs.ObserveEventlogAppend(event.KindRunStarted.String(), status, took)
}

// counted ends a run that nobody makes, and counts it when its end is durable.
func (d *Daemon) counted(log eventlog.EventLog, end func(eventlog.EventLog) error) error {
	seen := ending{Metrics: d.config.Runs}
	err := end(eventlog.WithMetrics(log, &seen))
	if err == nil && seen.terminal != 0 {
		d.config.Runs.RunAbandoned(seen.begun, seen.terminal, seen.errorType)
	}
	return err
}

// ending is what is appended to end a run.
type ending struct {
	*observe.Metrics
	begun     bool // somebody has begun with it, behind which there is a seam
	terminal  event.Kind
	errorType string
}

// ObserveEventlogAppend implements [eventlog.AppendObserver].
func (e *ending) ObserveEventlogAppend(kind, status string, took time.Duration) {
	e.Metrics.ObserveEventlogAppend(kind, status, took)
	switch kind {
	case event.KindRunResumed.String():
		e.begun = true
	case event.KindRunCancelled.String():
		e.terminal = event.KindRunCancelled
	case event.KindRunFailed.String():
		e.terminal, e.errorType = event.KindRunFailed, event.ErrorInternal
	}
}
