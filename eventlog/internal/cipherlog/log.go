package cipherlog

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"sync"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/eventlog/internal/tail"
)

// Log is an event log that encrypts. Use [New].
type Log struct {
	inner     eventlog.EventLog
	key       Key
	namespace string

	mu   sync.Mutex      // guards runs
	runs map[string]*run // that were appended to and have not ended
}

// run is a run that this log appends to. Its mutex is held while an event goes to
// the log below, so that the two chains keep the same order.
type run struct {
	mu     sync.Mutex
	loaded bool
	at     state
}

// New returns a log that encrypts the events it appends to inner with key. If inner is
// an [eventlog.ModuleStore], so is the log; modules are not encrypted. With a namespace
// the log has only the runs whose ids begin with the namespace and a slash, and no other
// run can be appended to. Close closes inner; if inner is still in use, just drop the
// log.
func New(inner eventlog.EventLog, key Key, namespace string) (eventlog.EventLog, error) {
	if !key.Valid() {
		return nil, errNoKey
	}
	l := &Log{inner: inner, key: key, namespace: namespace, runs: make(map[string]*run)}
	if modules, ok := inner.(eventlog.ModuleStore); ok {
		return withModules{l, modules}, nil
	}
	return l, nil
}

// withModules is a Log whose inner log keeps modules.
type withModules struct {
	*Log
	eventlog.ModuleStore
}

// Append implements [eventlog.EventLog]. The limit of a payload is
// [eventlog.MaxPayloadBytes] less some 250 bytes that the encryption adds.
func (l *Log) Append(ctx context.Context, runID string, ev event.Event) error {
	if !eventlog.InNamespace(runID, l.namespace) {
		return fmt.Errorf("%w: run %q is not in namespace %q", eventlog.ErrInvalidAppend, runID, l.namespace)
	}
	r := l.run(runID)
	r.mu.Lock()
	defer r.mu.Unlock()
	encrypted, next, err := l.next(ctx, r, runID, ev)
	if err == nil {
		err = l.append(ctx, runID, ev, encrypted)
	}
	if err != nil || ev.Kind.Terminal() {
		r.loaded = false // another process may have continued the run
		l.forget(runID)
		return err
	}
	r.loaded, r.at = true, next
	return nil
}

// append appends an event as it is encrypted. The log below cannot read what the event names. So a first
// event is appended together with its modules, and the root of files that a later one names becomes the
// run's before: the run is there by then, and its rows are removed with it.
func (l *Log) append(ctx context.Context, runID string, ev, encrypted event.Event) error {
	modules, roots, err := ev.Needs()
	db, ok := l.inner.(eventlog.Transactor)
	if w, wraps := l.inner.(interface{ Unwrap() eventlog.EventLog }); wraps && !ok && len(roots) > 0 { // of one writer
		db, ok = w.Unwrap().(eventlog.Transactor)
	}
	if ok && err == nil && len(modules)+len(roots) > 0 {
		if ev.Seq > 1 {
			err = l.inner.Sync(ctx, runID)
		}
		if err != nil {
			return err
		}
		err := db.Transact(ctx, func(tx eventlog.Tx) error {
			if err := eventlog.UseModules(tx, runID, append(modules, roots...)...); err != nil || ev.Seq > 1 {
				return err
			}
			return tx.Append(runID, encrypted)
		})
		if err != nil || ev.Seq == 1 {
			return err
		}
	}
	return l.inner.Append(ctx, runID, encrypted)
}

// next encrypts ev. An event that does not continue the remembered run may continue
// the stored one.
func (l *Log) next(ctx context.Context, r *run, runID string, ev event.Event) (event.Event, state, error) {
	at, err := r.at, error(nil)
	if !r.loaded {
		at, err = l.key.fresh(runID)
	}
	if err != nil {
		return event.Event{}, state{}, err
	}
	encrypted, next, err := at.next(runID, ev)
	if err == nil {
		return encrypted, next, nil
	}
	at, loadErr := l.load(ctx, runID)
	if loadErr != nil {
		return event.Event{}, state{}, loadErr
	}
	if encrypted, next, err = at.next(runID, ev); err != nil {
		// A writer that has lost the run must get that error first. The event that the log below is asked
		// about has no number, so no log takes it.
		if below := l.inner.Append(ctx, runID, event.Event{RunID: runID}); errors.Is(below, eventlog.ErrFenced) {
			err = below
		}
	}
	return encrypted, next, err
}

func (l *Log) run(runID string) *run {
	l.mu.Lock()
	defer l.mu.Unlock()
	r := l.runs[runID]
	if r == nil {
		r = &run{}
		l.runs[runID] = r
	}
	return r
}

func (l *Log) forget(runID string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.runs, runID)
}

// Sync implements [eventlog.EventLog].
func (l *Log) Sync(ctx context.Context, runID string) error {
	err := l.inner.Sync(ctx, runID)
	if err != nil {
		l.forget(runID) // the cached state may not be durable
	}
	return err
}

// Read implements [eventlog.EventLog].
func (l *Log) Read(ctx context.Context, runID string) ([]event.Event, error) {
	return tail.Collect(l.Events(ctx, runID, 0))
}

// Events implements [eventlog.EventLog].
func (l *Log) Events(ctx context.Context, runID string, after uint64) iter.Seq2[event.Event, error] {
	return func(yield func(event.Event, error) bool) {
		c, err := l.cipher(runID)
		if err != nil {
			yield(event.Event{}, err)
			return
		}
		for e, err := range l.inner.Events(ctx, runID, after) {
			if err == nil {
				e, _, err = c.open(e)
			}
			if !yield(e, err) || err != nil {
				return
			}
		}
	}
}

// Open returns an event of the log below as it was before it was encrypted.
func (l *Log) Open(_ context.Context, stored event.Event) (event.Event, error) {
	c, err := l.cipher(stored.RunID)
	if err != nil {
		return event.Event{}, err
	}
	plain, _, err := c.open(stored)
	return plain, err
}

// cipher returns the cipher of a run that the log may know.
func (l *Log) cipher(runID string) (runCipher, error) {
	if !eventlog.InNamespace(runID, l.namespace) {
		return runCipher{}, fmt.Errorf("%w: %q", eventlog.ErrRunNotFound, runID)
	}
	return l.key.cipher(runID)
}

// Stream implements [eventlog.EventLog]. It ends at an event that does not open.
func (l *Log) Stream(ctx context.Context, runID string) (<-chan event.Event, error) {
	c, err := l.cipher(runID)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	encrypted, err := l.inner.Stream(ctx, runID)
	if err != nil {
		cancel()
		return nil, err
	}
	out := make(chan event.Event)
	go func() {
		defer close(out)
		defer cancel()
		for e := range encrypted {
			plain, _, err := c.open(e)
			if err != nil {
				return
			}
			select {
			case out <- plain:
			case <-ctx.Done():
				return
			}
		}
	}()
	return out, nil
}

// Run implements [eventlog.EventLog]. The head and the totals are the plain
// chain's, from the last event.
func (l *Log) Run(ctx context.Context, runID string) (eventlog.RunSummary, error) {
	if !eventlog.InNamespace(runID, l.namespace) {
		return eventlog.RunSummary{}, fmt.Errorf("%w: %q", eventlog.ErrRunNotFound, runID)
	}
	stored, err := l.inner.Run(ctx, runID)
	if err != nil {
		return eventlog.RunSummary{}, err
	}
	return l.summary(ctx, stored)
}

func (l *Log) summary(ctx context.Context, stored eventlog.RunSummary) (eventlog.RunSummary, error) {
	c, err := l.key.cipher(stored.RunID)
	if err != nil {
		return eventlog.RunSummary{}, err
	}
	for last, err := range l.inner.Events(ctx, stored.RunID, stored.LastSeq-1) {
		if err != nil {
			return eventlog.RunSummary{}, err
		}
		return c.summary(stored, last)
	}
	return eventlog.RunSummary{}, &eventlog.CorruptError{RunID: stored.RunID, Seq: stored.LastSeq, Invariant: "D1",
		Reason: "the log keeps the head of an event that is not there"}
}

// ListRuns implements [eventlog.EventLog].
func (l *Log) ListRuns(ctx context.Context) ([]eventlog.RunSummary, error) {
	all, err := l.inner.ListRuns(ctx)
	if err != nil {
		return nil, err
	}
	all = slices.DeleteFunc(all, func(s eventlog.RunSummary) bool { return !eventlog.InNamespace(s.RunID, l.namespace) })
	return all, l.summaries(ctx, all)
}

// ListRunsPage implements [eventlog.EventLog]. A namespace outside of the log's is an error, and not an
// empty page, because the caller has the wrong log.
func (l *Log) ListRunsPage(ctx context.Context, o eventlog.RunPageOptions) (eventlog.RunPage, error) {
	switch {
	case o.Namespace == "":
		o.Namespace = l.namespace
	case !eventlog.InNamespace(o.Namespace+"/", l.namespace):
		return eventlog.RunPage{}, fmt.Errorf("cipherlog: namespace %q is not within %q", o.Namespace, l.namespace)
	}
	page, err := l.inner.ListRunsPage(ctx, o)
	if err != nil {
		return page, err
	}
	return page, l.summaries(ctx, page.Runs)
}

// summaries decrypts stored summaries. A summary that cannot be decrypted keeps its visible fields
// and has no head, so that a damaged run does not hide the others.
func (l *Log) summaries(ctx context.Context, runs []eventlog.RunSummary) error {
	for i, stored := range runs {
		plain, err := l.summary(ctx, stored)
		switch {
		case err == nil:
			runs[i] = plain
		case errors.Is(err, eventlog.ErrLogCorrupt), errors.Is(err, eventlog.ErrRunNotFound), errors.Is(err, ErrKey):
			runs[i].Head = canon.Hash{}
		default:
			return err
		}
	}
	return nil
}

// Close implements [eventlog.EventLog]: it closes the log below.
func (l *Log) Close() error { return l.inner.Close() }

// Unwrap returns the log below, which has the events as stored.
func (l *Log) Unwrap() eventlog.EventLog { return l.inner }
