package eventlog

import (
	"context"
	"time"

	"github.com/starling-host/starling/eventlog/event"
)

// AppendObserver is told how long an append took. Implementations must be safe
// for concurrent use and fast. Status is "ok" or "error".
type AppendObserver interface {
	ObserveEventlogAppend(kind, status string, d time.Duration)
}

// WithMetrics returns a log that reports every Append to the observer and is
// otherwise the given one. It is for callers who append themselves: package step
// reports its own appends, and through such a log they would count twice. With
// a nil observer it returns log.
//
// A log with all optional interfaces of this package keeps them, also one that has
// all but [SchemaKeeper] and [Transactor]. Of another log only Unwrap reaches them.
func WithMetrics(log EventLog, observer AppendObserver) EventLog {
	if observer == nil {
		return log
	}
	m := &measured{log, observer}
	full, ok := log.(optional)
	if !ok {
		return m
	}
	if db, ok := log.(stored); ok {
		return struct {
			measuredWhole
			stored
		}{measuredWhole{m, full}, db}
	}
	return measuredWhole{m, full}
}

// optional is what every backend of this repository can do beside EventLog.
type optional interface {
	EventSource
	RunLister
	RunPageLister
	RunFinder
	RunPruner
	ModuleStore
	Fencer
}

// stored is what those can do beside that lie in a database.
type stored interface {
	SchemaKeeper
	ModuleKeeper
	Transactor
}

type measuredWhole struct {
	*measured
	optional
}

// Fenced implements [Fencer]. What it returns is measured as well.
func (m measuredWhole) Fenced(runID string, epoch uint64) EventLog {
	return WithMetrics(m.optional.Fenced(runID, epoch), m.observer)
}

type measured struct {
	EventLog
	observer AppendObserver
}

// Append implements [EventLog].
func (m *measured) Append(ctx context.Context, runID string, ev event.Event) error {
	began := time.Now()
	err := m.EventLog.Append(ctx, runID, ev)
	status := "ok"
	if err != nil {
		status = "error"
	}
	m.observer.ObserveEventlogAppend(ev.Kind.String(), status, time.Since(began))
	return err
}

// Unwrap returns the log that is measured.
func (m *measured) Unwrap() EventLog { return m.EventLog }
