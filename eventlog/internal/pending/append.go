package pending

import (
	"context"
	"errors"
	"iter"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/eventlog/internal/tail"
)

// errMoved means that a transaction has continued the run since it was loaded.
var errMoved = errors.New("pending: the run has moved")

// Append checks in memory that the event continues the run, under the epoch, and queues
// it. Only the first event that this process appends to a run in an epoch looks into
// the database. Epoch zero is that of whoever was given nothing.
func (s *Runs[W]) Append(ctx context.Context, runID string, epoch uint64, ev event.Event) error {
	r, err := s.hold(runID, epoch)
	if err != nil {
		return err
	}
	defer s.release(r)
	r.appending.Lock()
	defer r.appending.Unlock()
	for err = errMoved; err == errMoved; {
		err = s.appendTo(ctx, r, ev)
	}
	return err
}

// appendTo makes one attempt. The caller holds r.appending.
func (s *Runs[W]) appendTo(ctx context.Context, r *Run[W], ev event.Event) error {
	known := r.loaded.Load()
	if err := s.load(ctx, r); err != nil {
		return err
	}
	next := r.cursor
	if err := next.Append(r.ID, ev); err != nil {
		if known && s.idle(r) { // another program may have continued the run since it was loaded
			r.loaded.Store(false)
			return errMoved
		}
		return err
	}
	it := Item[W]{Run: r, Row: r.row, Event: ev, After: next.Run()}
	if err := s.queueOf(r).Put(ctx, it); err != nil {
		return err
	}
	r.cursor = next
	return nil
}

// queueOf returns the queue for the run's next event: that of the events that are on
// their way, and where none is, whichever the backend wants. The caller holds
// r.appending.
func (s *Runs[W]) queueOf(r *Run[W]) *Queue[W] {
	s.Lock()
	defer s.Unlock()
	if r.queue == nil || r.queued == r.durable {
		r.queue = s.backend.Queue(r.ID)
	}
	return r.queue
}

// idle reports whether nothing of the run is on its way.
func (s *Runs[W]) idle(r *Run[W]) bool {
	s.Lock()
	defer s.Unlock()
	return r.queued == r.durable
}

// load finds where the run stands, unless that is known, and whether the epoch is still
// the last one. The caller holds r.appending.
func (s *Runs[W]) load(ctx context.Context, r *Run[W]) error {
	if r.loaded.Swap(true) {
		return nil
	}
	at, err := s.backend.Find(ctx, r.ID)
	if err == nil && at.Epoch != r.Epoch {
		err = StaleEpoch(r.ID, r.Epoch, at.Epoch)
	}
	if err != nil {
		r.loaded.Store(false)
		return err
	}
	r.cursor, r.row = at.Cursor, at.Row
	return nil
}

// Sync waits until all that was appended to the run in that epoch is durable. A run of
// which nothing is on its way costs no more than a look into a map.
func (s *Runs[W]) Sync(ctx context.Context, runID string, epoch uint64) error {
	done, err := s.barrier(runID, epoch)
	if done == nil {
		return err
	}
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Settle waits until what this process has appended to the run can be read. A log that
// has stopped still shows what is durable.
func (s *Runs[W]) Settle(ctx context.Context, runID string) error {
	done, err := s.barrier(runID, now)
	if errors.Is(err, eventlog.ErrLogClosed) {
		return err
	}
	if done == nil {
		return nil
	}
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Events yields the events of a run with numbers above after, as [tail.Events] does,
// once what this process has appended to it can be read.
func (s *Runs[W]) Events(ctx context.Context, runID string, after uint64, page tail.Page) iter.Seq2[event.Event, error] {
	return func(yield func(event.Event, error) bool) {
		if err := s.Settle(ctx, runID); err != nil {
			yield(event.Event{}, err)
			return
		}
		tail.Events(ctx, runID, after, page)(yield)
	}
}

// barrier returns a channel that tells when all that is queued of the run in that epoch
// is durable; nil if it is so already.
func (s *Runs[W]) barrier(runID string, epoch uint64) (<-chan error, error) {
	s.Lock()
	defer s.Unlock()
	r := s.writerOf(runID, epoch)
	switch {
	case s.failed != nil:
		return nil, s.failed
	case r != nil && r.failed != nil:
		return nil, r.failed
	case r != nil && r.durable != r.queued:
		r.queue.want()
		return r.wait(), nil
	case s.closing:
		return nil, eventlog.ErrLogClosed
	}
	return nil, nil
}
