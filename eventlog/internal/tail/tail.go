package tail

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/internal/await"
)

// ReadAhead is how many events a stream takes from the log at a time. It keeps no more than
// that page: a reader that does not read costs [MaxPageBytes] and an event.
const ReadAhead = 256

// Page reads at most n events of a run with numbers above after. It returns fewer at
// the end of the run, or when their payloads reach [MaxPageBytes] together.
type Page func(ctx context.Context, runID string, after uint64, n int) ([]event.Event, error)

// MaxPageBytes bounds the payloads of a page, except for its last event.
const MaxPageBytes = 1 << 20

// more reports whether there may be more events right behind a page of at most n, so
// that no reader asks again after the end.
func more(page []event.Event, n int) bool {
	size := 0
	for _, e := range page {
		size += len(e.Payload)
	}
	return len(page) == n || size >= MaxPageBytes
}

// Hub wakes the streams of a log. The zero value is ready.
type Hub struct {
	mu      sync.Mutex // guards closed and of
	closed  bool
	of      map[string]map[*stream]struct{} // by run
	streams sync.WaitGroup
}

// stream follows one run.
type stream struct {
	hub   *Hub
	runID string
	page  Page
	out   chan<- event.Event
	stop  context.CancelFunc
	grown chan struct{} // capacity 1: "there may be more", however often

	last  uint64 // the event that was sent last
	short bool   // the last page was not the end of the run

	// Guarded by the hub's mu.
	look   bool          // the log may have more than was handed over
	handed []event.Event // and not taken yet
	size   int           // bytes of their payloads
}

// Bounds of the events kept for a stream with a slow reader. Beyond them the stream reads
// the events from the log.
const (
	maxHanded      = 64
	maxHandedBytes = 256 << 10
)

// Stream begins a stream of runID. Its channel is closed after the terminal
// event, when ctx ends, when the hub closes or when page fails.
func (h *Hub) Stream(ctx context.Context, runID string, page Page) (<-chan event.Event, error) {
	ctx, cancel := context.WithCancel(ctx)
	out := make(chan event.Event)
	s := &stream{hub: h, runID: runID, page: page, out: out, stop: cancel, grown: make(chan struct{}, 1), look: true}
	if !h.add(s) {
		cancel()
		return nil, eventlog.ErrLogClosed
	}
	go func() {
		defer h.streams.Done()
		defer h.remove(s)
		defer close(out)
		defer cancel()
		s.follow(ctx)
	}()
	return out, nil
}

// follow is registered before it reads for the first time, so an event that is
// added while it reads has either been read or wakes it.
func (s *stream) follow(ctx context.Context) {
	for {
		evs, err := s.next(ctx)
		if err != nil {
			return
		}
		for _, e := range evs {
			select {
			case s.out <- e:
			case <-ctx.Done():
				return
			}
			if s.last = e.Seq; e.Kind.Terminal() {
				return
			}
		}
		if s.short {
			continue
		}
		select {
		case <-s.grown:
		case <-ctx.Done():
			return
		}
	}
}

// next returns the events after the last one: events handed over, if they continue from there,
// otherwise a page of the log, which has all of them.
func (s *stream) next(ctx context.Context) ([]event.Event, error) {
	s.hub.mu.Lock()
	evs, look := s.handed, s.look
	s.handed, s.size, s.look = nil, 0, false
	s.hub.mu.Unlock()
	for len(evs) > 0 && evs[0].Seq <= s.last { // which a page had, too
		evs = evs[1:]
	}
	if !look && !s.short && (len(evs) == 0 || evs[0].Seq == s.last+1) {
		return evs, nil
	}
	evs, err := s.page(ctx, s.runID, s.last, ReadAhead)
	s.short = more(evs, ReadAhead)
	return evs, err
}

// wake makes the stream read the log. The caller holds the hub's mu.
func (s *stream) wake() {
	s.handed, s.size, s.look = nil, 0, true
	s.notify()
}

// notify tells the stream to look whether there is something for it.
func (s *stream) notify() { await.Offer(s.grown, struct{}{}) }

func (h *Hub) add(s *stream) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return false
	}
	if h.of == nil {
		h.of = make(map[string]map[*stream]struct{})
	}
	if h.of[s.runID] == nil {
		h.of[s.runID] = make(map[*stream]struct{})
	}
	h.of[s.runID][s] = struct{}{}
	h.streams.Add(1)
	return true
}

func (h *Hub) remove(s *stream) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.of[s.runID], s)
	if len(h.of[s.runID]) == 0 {
		delete(h.of, s.runID)
	}
}

// Hand passes a durable event to the streams of its run, so that they need not read events written
// by this process. A stream that has to read the log anyway, or is too far behind, finds it there.
func (h *Hub) Hand(e event.Event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for s := range h.of[e.RunID] {
		n := len(s.handed)
		switch {
		case s.look:
		case n == maxHanded, s.size+len(e.Payload) > maxHandedBytes, n > 0 && e.Seq != s.handed[n-1].Seq+1:
			s.wake()
		default:
			s.handed, s.size = append(s.handed, e), s.size+len(e.Payload)
			s.notify()
		}
	}
}

// Wake tells the streams of a run that it has grown.
func (h *Hub) Wake(runID string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for s := range h.of[runID] {
		s.wake()
	}
}

// WakeAll tells all streams that their run may have grown.
func (h *Hub) WakeAll() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, all := range h.of {
		for s := range all {
			s.wake()
		}
	}
}

// Idle reports whether there are no streams.
func (h *Hub) Idle() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.of) == 0
}

// Close ends all streams and waits until none reads any more.
func (h *Hub) Close() {
	h.mu.Lock()
	h.closed = true
	for _, all := range h.of {
		for s := range all {
			s.stop()
		}
	}
	h.mu.Unlock()
	h.streams.Wait()
}

// Watcher is a goroutine that looks for what other processes append. It starts when it is first needed.
type Watcher struct {
	once    sync.Once
	cancel  context.CancelFunc
	watches sync.WaitGroup
}

// Start starts the goroutine, unless it was started or closed before. It watches until ctx ends.
func (w *Watcher) Start(watch func(ctx context.Context)) {
	w.once.Do(func() {
		var ctx context.Context
		ctx, w.cancel = context.WithCancel(context.Background())
		w.watches.Go(func() { watch(ctx) })
	})
}

// Close ends the goroutine, and keeps it from starting.
func (w *Watcher) Close() {
	w.once.Do(func() { w.cancel = func() {} })
	w.cancel()
	w.watches.Wait()
}

// pageEvents is how many events one page of the log has.
const pageEvents = 512

// maxSeq is the largest number that a database keeps. A caller may ask for events after a larger
// number, which do not exist; as a signed integer it would come before all numbers.
const maxSeq = math.MaxInt64

// Events yields the events of a run with numbers above after, a page at a time. Between
// pages it holds nothing of the log, so its caller may take its time. A run without
// events is [eventlog.ErrRunNotFound], unless it is read on from an event.
func Events(ctx context.Context, runID string, after uint64, page Page) iter.Seq2[event.Event, error] {
	return func(yield func(event.Event, error) bool) {
		for at := min(after, maxSeq); ; {
			evs, err := page(ctx, runID, at, pageEvents)
			if err == nil && len(evs) == 0 && at == 0 {
				err = fmt.Errorf("%w: %q", eventlog.ErrRunNotFound, runID)
			}
			if err != nil {
				yield(event.Event{}, err)
				return
			}
			for _, e := range evs {
				if !yield(e, nil) {
					return
				}
			}
			if !more(evs, pageEvents) {
				return
			}
			at = evs[len(evs)-1].Seq
		}
	}
}

// Collect returns all events of a sequence, or its first error.
func Collect(events iter.Seq2[event.Event, error]) ([]event.Event, error) {
	var all []event.Event
	for e, err := range events {
		if err != nil {
			return nil, err
		}
		all = append(all, e)
	}
	return all, nil
}

// Summary computes the summary of a run from its events, for a backend whose stored summary, kept,
// lacks events: another program has appended them, or the tables were restored one by one. kept is
// zero if the backend has none.
//
// The result is kept itself if the events up to kept.LastSeq do not add up to it, or if the events
// do not continue each other. That difference is the evidence that the run was changed, and the
// caller must not replace it. Without a stored summary, the result covers the events that can be
// read.
func Summary(runID string, events iter.Seq2[event.Event, error], kept eventlog.RunSummary) (eventlog.RunSummary, error) {
	var at eventlog.Cursor
	fits, linked := false, true
	for e, err := range events {
		if errors.Is(err, eventlog.ErrLogCorrupt) {
			linked = false
			break
		}
		if err != nil {
			return eventlog.RunSummary{}, err
		}
		last := at.Run()
		linked = linked && e.Seq == last.LastSeq+1 && (last.LastSeq == 0 || bytes.Equal(e.PrevHash, last.Head[:]))
		at.Skip(e)
		fits = fits || at.Run() == kept
	}
	if kept.LastSeq > 0 && !(fits && linked) {
		return kept, nil
	}
	s := at.Run()
	if s.LastSeq == 0 {
		s.RunID, s.StartedAt = runID, time.Unix(0, 0).UTC()
	}
	return s, nil
}

// Merge returns a listing, the newest first, in which the runs in behind have the summaries
// that look finds. A computed summary that is not kept has no head: it would be evidence
// of nothing.
func Merge(runs []eventlog.RunSummary, behind []string, look func(runID string) (s eventlog.RunSummary, kept bool, err error)) ([]eventlog.RunSummary, error) {
	if len(behind) == 0 {
		return runs, nil
	}
	behind = slices.Compact(slices.Sorted(slices.Values(behind)))
	runs = slices.DeleteFunc(runs, func(s eventlog.RunSummary) bool {
		_, found := slices.BinarySearch(behind, s.RunID)
		return found
	})
	for _, id := range slices.Backward(behind) {
		s, indexed, err := look(id)
		switch {
		case errors.Is(err, eventlog.ErrRunNotFound):
			continue // it was removed meanwhile
		case errors.Is(err, eventlog.ErrLogCorrupt):
			s = eventlog.RunSummary{RunID: id} // one damaged row does not hide the other runs
		case err != nil:
			return nil, err
		}
		if !indexed {
			s.Head = canon.Hash{}
		}
		runs = append(runs, s)
	}
	slices.SortStableFunc(runs, func(a, b eventlog.RunSummary) int { return b.StartedAt.Compare(a.StartedAt) })
	return runs, nil
}
