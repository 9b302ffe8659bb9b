// Package memlog is an event log in memory, for tests and for runs that are not needed
// after the process has ended.
//
// It keeps the whole contract of [eventlog.EventLog] except durability: an
// event is as durable as it will ever be once Append returns, so Sync has
// nothing to wait for.
package memlog

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"iter"
	"maps"
	"slices"
	"sync"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/eventlog/internal/pending"
	"github.com/starling-host/starling/eventlog/internal/tail"
	"github.com/starling-host/starling/internal/lists"
)

// Log is an event log in memory. Use [New].
type Log struct {
	hub tail.Hub

	mu      sync.RWMutex // guards all below
	closed  bool
	runs    map[string]*run
	begun   int               // runs, including pruned ones
	epochs  map[string]uint64 // the last epoch of each run that was fenced
	modules map[canon.Hash][]byte
}

type run struct {
	cursor eventlog.Cursor
	events []event.Event // append-only, so a reader may keep a prefix
	order  int           // of beginning, to list runs that began in the same nanosecond
}

var _ eventlog.Store = (*Log)(nil)

// New returns an empty log.
func New() *Log {
	return &Log{runs: make(map[string]*run), epochs: make(map[string]uint64), modules: make(map[canon.Hash][]byte)}
}

// Append implements [eventlog.EventLog]. It never blocks.
func (l *Log) Append(_ context.Context, runID string, ev event.Event) error {
	return l.append(runID, 0, ev, (*eventlog.Cursor).Append)
}

// Import implements [eventlog.Store].
func (l *Log) Import(_ context.Context, ev event.Event) error {
	return l.append(ev.RunID, 0, ev, (*eventlog.Cursor).Import)
}

func (l *Log) append(runID string, epoch uint64, ev event.Event, past func(*eventlog.Cursor, string, event.Event) error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return eventlog.ErrLogClosed
	}
	if last := l.epochs[runID]; last != epoch {
		return pending.StaleEpoch(runID, epoch, last)
	}
	r := l.runs[runID]
	if r == nil {
		r = &run{order: l.begun}
	}
	if err := past(&r.cursor, runID, ev); err != nil {
		return err
	}
	if ev.Seq == 1 {
		l.begun++
	}
	r.events = append(r.events, ev)
	l.runs[runID] = r
	l.hub.Hand(ev)
	return nil
}

// Adopt adds the next event of a run as another program wrote it, under any run id. It checks
// nothing and wakes no stream.
func (l *Log) Adopt(ev event.Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	r := l.runs[ev.RunID]
	if r == nil {
		r = &run{order: l.begun}
		l.runs[ev.RunID] = r
		l.begun++
	}
	r.cursor.Skip(ev)
	r.events = append(r.events, ev)
}

// Sync implements [eventlog.EventLog].
func (l *Log) Sync(context.Context, string) error {
	l.mu.RLock()
	defer l.mu.RUnlock()
	if l.closed {
		return eventlog.ErrLogClosed
	}
	return nil
}

// Read implements [eventlog.EventLog].
func (l *Log) Read(ctx context.Context, runID string) ([]event.Event, error) {
	return tail.Collect(l.Events(ctx, runID, 0))
}

// Events implements [eventlog.EventLog].
func (l *Log) Events(ctx context.Context, runID string, after uint64) iter.Seq2[event.Event, error] {
	return tail.Events(ctx, runID, after, l.page)
}

// Stream implements [eventlog.EventLog].
func (l *Log) Stream(ctx context.Context, runID string) (<-chan event.Event, error) {
	return l.hub.Stream(ctx, runID, l.page)
}

func (l *Log) page(_ context.Context, runID string, after uint64, n int) ([]event.Event, error) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	if l.closed {
		return nil, eventlog.ErrLogClosed
	}
	r := l.runs[runID]
	if r == nil {
		return nil, nil
	}
	rest := r.events[min(after, uint64(len(r.events))):] // the run may have been pruned and begun anew
	return rest[:min(n, len(rest))], nil
}

// Close implements [eventlog.EventLog]. The content of the log is lost.
func (l *Log) Close() error {
	l.mu.Lock()
	l.closed, l.runs, l.modules = true, nil, nil
	l.mu.Unlock()
	l.hub.Close()
	return nil
}

// Run implements [eventlog.EventLog].
func (l *Log) Run(_ context.Context, runID string) (eventlog.RunSummary, error) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	if l.closed {
		return eventlog.RunSummary{}, eventlog.ErrLogClosed
	}
	r := l.runs[runID]
	if r == nil {
		return eventlog.RunSummary{}, fmt.Errorf("%w: %q", eventlog.ErrRunNotFound, runID)
	}
	return r.cursor.Run(), nil
}

// ListRuns implements [eventlog.EventLog].
func (l *Log) ListRuns(context.Context) ([]eventlog.RunSummary, error) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	if l.closed {
		return nil, eventlog.ErrLogClosed
	}
	runs := slices.SortedFunc(maps.Values(l.runs), func(a, b *run) int {
		return cmp.Or(b.cursor.Run().StartedAt.Compare(a.cursor.Run().StartedAt), b.order-a.order)
	})
	return lists.Map(runs, func(r *run) eventlog.RunSummary { return r.cursor.Run() }), nil
}

// ListRunsPage implements [eventlog.EventLog].
func (l *Log) ListRunsPage(ctx context.Context, o eventlog.RunPageOptions) (eventlog.RunPage, error) {
	all, err := l.ListRuns(ctx)
	if err != nil {
		return eventlog.RunPage{}, err
	}
	return o.Select(all)
}

// PutModule implements [eventlog.ModuleStore].
func (l *Log) PutModule(_ context.Context, wasm []byte) (canon.Hash, error) {
	if len(wasm) > eventlog.MaxModuleBytes {
		return canon.Hash{}, fmt.Errorf("memlog: module has %d bytes; at most %d are allowed", len(wasm), eventlog.MaxModuleBytes)
	}
	digest := canon.Sum(wasm)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return canon.Hash{}, eventlog.ErrLogClosed
	}
	l.modules[digest] = bytes.Clone(wasm)
	return digest, nil
}

// PutContents implements [eventlog.ModuleStore]. This log removes none, so it keeps no users.
func (l *Log) PutContents(ctx context.Context, _ string, contents []eventlog.Content) error {
	for _, c := range contents {
		for _, digest := range c.Uses {
			if found, err := l.HasModule(ctx, digest); err != nil || !found {
				return cmp.Or(err, fmt.Errorf("memlog: store files: %w: %v", eventlog.ErrModuleNotFound, digest))
			}
		}
		if _, err := l.PutModule(ctx, c.Bytes); err != nil {
			return err
		}
	}
	return nil
}

// Module implements [eventlog.ModuleStore].
func (l *Log) Module(_ context.Context, digest canon.Hash) ([]byte, error) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	if l.closed {
		return nil, eventlog.ErrLogClosed
	}
	wasm, ok := l.modules[digest]
	if !ok {
		return nil, fmt.Errorf("%w: %v", eventlog.ErrModuleNotFound, digest)
	}
	return bytes.Clone(wasm), nil
}

// HasModule implements [eventlog.ModuleStore].
func (l *Log) HasModule(_ context.Context, digest canon.Hash) (bool, error) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	if l.closed {
		return false, eventlog.ErrLogClosed
	}
	_, found := l.modules[digest]
	return found, nil
}

// PruneRuns implements [eventlog.Store]. A run in memory is open
// only while its writer works on it, so runs without an end are never selected.
func (l *Log) PruneRuns(ctx context.Context, o eventlog.PruneOptions) (eventlog.PruneReport, error) {
	report := eventlog.PruneReport{DryRun: o.DryRun}
	if err := o.Valid(); err != nil {
		return report, err
	}
	all, err := l.ListRuns(ctx)
	if err != nil {
		return report, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	o.IncludeOpen = false
	for _, s := range o.Select(all) {
		report.Runs++
		report.Events += int64(s.LastSeq)
		if !o.DryRun {
			delete(l.runs, s.RunID)
			delete(l.epochs, s.RunID)
		}
	}
	return report, nil
}

// Fenced implements [eventlog.Store]. This log has no transactions that give a
// run away, so this call does it: from now on, writers in earlier epochs, or in
// none, have lost the run.
func (l *Log) Fenced(runID string, epoch uint64) eventlog.EventLog {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.closed {
		l.epochs[runID] = max(l.epochs[runID], epoch)
	}
	return pending.Fenced(l, runID, func(_ context.Context, ev event.Event) error {
		return l.append(runID, epoch, ev, (*eventlog.Cursor).Append)
	}, func(ctx context.Context) error { return l.Sync(ctx, runID) })
}
