package dblog

import (
	"context"
	"iter"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/eventlog/internal/pending"
	"github.com/starling-host/starling/eventlog/internal/tail"
)

// Log has those methods of a log that are the same in every database. A log embeds it.
type Log struct {
	x    *Backend
	self eventlog.Database
}

// NewLog returns the methods of a log that does the rest itself.
func NewLog(b *Backend, self eventlog.Database) Log { return Log{b, self} }

// Append implements [eventlog.EventLog]. It checks the event in memory and queues it;
// only the first event that this process appends to a run looks into the database, to
// find where the run stands.
func (l *Log) Append(ctx context.Context, runID string, ev event.Event) error {
	return l.x.Runs.Append(ctx, runID, 0, ev)
}

// Sync implements [eventlog.EventLog]. A run of which nothing is on its way costs no
// more than a look into a map.
func (l *Log) Sync(ctx context.Context, runID string) error { return l.x.Runs.Sync(ctx, runID, 0) }

// Read implements [eventlog.EventLog].
func (l *Log) Read(ctx context.Context, runID string) ([]event.Event, error) {
	return tail.Collect(l.Events(ctx, runID, 0))
}

// Events implements [eventlog.EventLog]. It holds nothing of the database while the
// caller works, so a caller may take its time.
func (l *Log) Events(ctx context.Context, runID string, after uint64) iter.Seq2[event.Event, error] {
	return l.x.Runs.Events(ctx, runID, after, l.x.Page)
}

// Run implements [eventlog.EventLog]. A summary that the log computes and does not keep
// has no head.
func (l *Log) Run(ctx context.Context, runID string) (eventlog.RunSummary, error) {
	return l.x.run(ctx, runID)
}

// ListRuns implements [eventlog.EventLog].
func (l *Log) ListRuns(ctx context.Context) ([]eventlog.RunSummary, error) {
	behind, err := l.x.Behind(ctx, ForAll)
	if err != nil {
		return nil, err
	}
	return l.x.all(ctx, behind)
}

// ListRunsPage implements [eventlog.EventLog].
func (l *Log) ListRunsPage(ctx context.Context, o eventlog.RunPageOptions) (eventlog.RunPage, error) {
	return l.x.page(ctx, o)
}

// Fenced implements [eventlog.Store].
func (l *Log) Fenced(runID string, epoch uint64) eventlog.EventLog {
	return pending.Fenced(l.self, l.x.Runs, runID, epoch)
}

// PutModule implements [eventlog.ModuleStore].
func (l *Log) PutModule(ctx context.Context, wasm []byte) (canon.Hash, error) {
	if err := eventlog.HoldModule(ctx, l.self, canon.Sum(wasm), int64(len(wasm))); err != nil {
		return canon.Hash{}, err
	}
	return l.self.StoreModule(ctx, wasm)
}

// HasModule implements [eventlog.ModuleStore].
func (l *Log) HasModule(ctx context.Context, digest canon.Hash) (bool, error) {
	return l.x.hasModule(ctx, digest)
}

// Module implements [eventlog.ModuleStore].
func (l *Log) Module(ctx context.Context, digest canon.Hash) ([]byte, error) {
	return l.x.module(ctx, digest)
}
