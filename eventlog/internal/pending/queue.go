package pending

import (
	"context"
	"fmt"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/internal/await"
)

// Bounds of the queue of one writer. Append blocks beyond them.
const (
	MaxQueued      = 8192     // events
	maxQueuedBytes = 64 << 20 // payload bytes
)

// Bounds of one batch.
const (
	MaxBatch      = 1024
	maxBatchBytes = 4 << 20
)

// An event without a waiter is not worth a commit of its own. It is written with the next
// event that has a waiter, or with many others, or after a while.
const (
	manyEvents   = 64
	manyBytes    = 256 << 10
	longestDelay = 10 * time.Millisecond
)

// Item is one entry of a queue: an event with its run, or a task.
type Item[W any] struct {
	Run   *Run[W]
	Row   int64 // of the [Position] where the run was found
	Event event.Event
	After eventlog.RunSummary // of the run, with this event
	Uses  []canon.Hash        // modules and roots of files that the event names
	Task  *Task               // nil for an event
}

func (it *Item[W]) size() int {
	if it.Task != nil {
		return it.Task.Bytes
	}
	return len(it.Event.Payload)
}

// Task is work of a backend's writer between events, in the transaction that writes them.
type Task struct {
	Bytes int // of memory that it keeps busy
	// Do works inside the transaction. It may run several times, each time on the unchanged
	// database. An error stops the log.
	Do func() error
	// Done is called with nil once the whole task is durable, otherwise with the error
	// that stopped the log. The caller holds the lock of Runs.
	Done func(err error)
}

// queue holds the entries that wait for the writer. While one batch waits for the
// database, the next one gathers, so that many runs share a commit. It is guarded by
// the lock of Runs.
type queue[W any] struct {
	items   []Item[W]
	bytes   int           // of items, by size
	wanted  bool          // the writer must take what there is, until the queue is empty
	delay   *time.Timer   // after which it is wanted in any case; stopped while nothing waits for that
	delayed bool          // the timer runs
	room    chan struct{} // closed, and made anew, when the queue gets shorter
	work    chan struct{} // capacity 1: the queue is wanted, or the log ends

	length atomic.Int64 // of items, for readers without the lock
}

// Queued returns how many items wait for the writer.
func (s *Runs[W]) Queued() int { return int(s.queue.length.Load()) }

// Put waits for room and hands the item to the writer.
func (s *Runs[W]) Put(ctx context.Context, it Item[W]) error {
	s.revive()
	for {
		room, err := s.tryPut(&it)
		if room == nil {
			return err
		}
		select {
		case <-room:
		case <-ctx.Done():
			b := &s.backend
			return fmt.Errorf("%s: %d events wait for the %s: %w", b.Name, MaxQueued, b.Sink, context.Cause(ctx))
		}
	}
}

// tryPut returns a channel to wait on when the queue is full.
func (s *Runs[W]) tryPut(it *Item[W]) (room <-chan struct{}, err error) {
	s.Lock()
	defer s.Unlock()
	q := &s.queue
	if err := s.writable(); err != nil {
		return nil, err
	}
	switch r := it.Run; {
	case r != nil && r.failed != nil:
		return nil, r.failed
	case r != nil && !r.loaded.Load():
		return nil, errMoved
	case len(q.items) >= MaxQueued || q.bytes >= maxQueuedBytes:
		return q.room, nil
	case r != nil:
		r.queued, r.ended = it.Event.Seq, it.Event.Kind.Terminal()
		if r.durable == 0 {
			r.durable = r.queued - 1
		}
	}
	q.items = append(q.items, *it)
	q.bytes += it.size()
	q.length.Store(int64(len(q.items)))
	switch {
	case it.Task != nil, len(q.items) >= manyEvents, q.bytes >= manyBytes:
		s.want()
	case !q.wanted && !q.delayed:
		q.delayed = true
		q.delay.Reset(longestDelay)
	}
	return nil, nil
}

// want makes the writer take the queued items, because a caller waits for them. The caller holds
// the lock of Runs.
func (s *Runs[W]) want() {
	q := &s.queue
	if len(q.items) > 0 {
		q.wanted = true
		s.signal()
	}
}

// overdue is called by the timer.
func (s *Runs[W]) overdue() {
	s.Lock()
	defer s.Unlock()
	s.queue.delayed = false
	s.want()
}

// GatherTime is the d of [Runs.Gather] for a writer whose last batch took so long.
func GatherTime(took time.Duration) time.Duration { return min(took/2, 500*time.Microsecond) }

// gatherQuiet is how long Gather waits for the next caller to come back. A caller that
// got its answer makes and hashes its next event within that time.
const gatherQuiet = 100 * time.Microsecond

// Gather gives callers that just got an answer time to come back, so that they share one
// batch instead of the fastest taking one and the others the next. It returns once n
// items wait, or none has come for a while, or d is over (see [GatherTime]). It yields
// instead of sleeping, because an idle process wakes up to a millisecond late.
func (s *Runs[W]) Gather(n int, d time.Duration) {
	began := time.Now()
	last, have := began, 0
	for {
		was := have
		have = s.Queued()
		now := time.Now()
		if have != was {
			last = now
		}
		if have >= n || now.Sub(began) >= d || now.Sub(last) >= gatherQuiet {
			return
		}
		runtime.Gosched()
	}
}

// Take waits until the queue is wanted and returns its front, in the room of the batch
// before, which is cleared. Events of runs that have failed are left out. Nothing is
// returned once the log has stopped, or is closing and the queue is empty.
func (s *Runs[W]) Take(batch []Item[W]) []Item[W] {
	q := &s.queue
	clear(batch)
	for {
		more, ends := false, false
		batch, more, ends = s.front(batch[:0])
		switch {
		case len(batch) > 0:
			return batch
		case more:
		case ends:
			return nil
		default:
			<-q.work
		}
	}
}

// front moves the front of the queue into the batch. It reports whether there is more,
// and whether nothing more will come.
func (s *Runs[W]) front(batch []Item[W]) (taken []Item[W], more, ends bool) {
	s.Lock()
	defer s.Unlock()
	q := &s.queue
	n, size := 0, 0
	ends = s.closing || s.failed != nil
	if !q.wanted && !ends {
		return batch, false, false
	}
	for n < len(q.items) && n < MaxBatch && (n == 0 || size < maxBatchBytes) {
		it := &q.items[n]
		size += it.size()
		n++
		if it.Run == nil || it.Run.failed == nil {
			batch = append(batch, *it)
		}
	}
	if n > 0 {
		rest := copy(q.items, q.items[n:])
		clear(q.items[rest:])
		q.items = q.items[:rest]
		q.bytes -= size
		s.widen()
	}
	q.wanted = len(q.items) > 0
	return batch, q.wanted, ends
}

// widen wakes the callers that wait for room. The caller holds the lock of Runs.
func (s *Runs[W]) widen() {
	q := &s.queue
	q.length.Store(int64(len(q.items)))
	close(q.room)
	q.room = make(chan struct{})
}

// signal wakes the writer.
func (s *Runs[W]) signal() { await.Offer(s.queue.work, struct{}{}) }
