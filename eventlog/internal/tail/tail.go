package tail

import (
	"context"
	"sync"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/event"
)

// ReadAhead is how many events a stream takes from the log before its reader
// has asked for them.
const ReadAhead = 256

// Page reads at most n events of a run with numbers above after. It returns fewer when
// there are no more for now, or when their payloads have [MaxPageBytes] together.
type Page func(ctx context.Context, runID string, after uint64, n int) ([]event.Event, error)

// MaxPageBytes bounds the payloads of a page, but for its last event.
const MaxPageBytes = 4 << 20

// more reports whether there may be more events right behind a page of at most n, so
// that nobody asks who has seen the end.
func more(page []event.Event, n int) bool {
	size := 0
	for _, e := range page {
		size += len(e.Payload)
	}
	return len(page) == n || size >= MaxPageBytes
}

// Hub wakes the streams of a log. The zero value is ready.
type Hub struct {
	mu       sync.Mutex
	closed   bool
	watchers map[string]map[*watcher]struct{} // by run
	streams  sync.WaitGroup
}

// watcher belongs to one stream.
type watcher struct {
	grown chan struct{} // capacity 1: "there may be more", however often
	stop  context.CancelFunc
}

// Stream begins a stream of runID. Its channel is closed after the terminal
// event, when ctx ends, when the hub closes or when page fails.
func (h *Hub) Stream(ctx context.Context, runID string, page Page) (<-chan event.Event, error) {
	ctx, cancel := context.WithCancel(ctx)
	w := &watcher{grown: make(chan struct{}, 1), stop: cancel}
	if !h.add(runID, w) {
		cancel()
		return nil, eventlog.ErrLogClosed
	}
	out := make(chan event.Event, ReadAhead)
	go func() {
		defer h.streams.Done()
		defer h.remove(runID, w)
		defer close(out)
		defer cancel()
		follow(ctx, runID, w.grown, page, out)
	}()
	return out, nil
}

// follow is registered before it reads for the first time, so an event that is
// added while it reads has either been read or wakes it.
func follow(ctx context.Context, runID string, grown <-chan struct{}, page Page, out chan<- event.Event) {
	var last uint64
	for {
		evs, err := page(ctx, runID, last, ReadAhead)
		if err != nil {
			return
		}
		for _, e := range evs {
			select {
			case out <- e:
			case <-ctx.Done():
				return
			}
			last = e.Seq
			if e.Kind.Terminal() {
				return
			}
		}
		if more(evs, ReadAhead) {
			continue
		}
		select {
		case <-grown:
		case <-ctx.Done():
			return
		}
	}
}

func (h *Hub) add(runID string, w *watcher) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return false
	}
	if h.watchers == nil {
		h.watchers = make(map[string]map[*watcher]struct{})
	}
	if h.watchers[runID] == nil {
		h.watchers[runID] = make(map[*watcher]struct{})
	}
	h.watchers[runID][w] = struct{}{}
	h.streams.Add(1)
	return true
}

func (h *Hub) remove(runID string, w *watcher) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.watchers[runID], w)
	if len(h.watchers[runID]) == 0 {
		delete(h.watchers, runID)
	}
}

// Wake tells the streams of a run that it has grown.
func (h *Hub) Wake(runID string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	wake(h.watchers[runID])
}

// WakeAll tells all streams that their run may have grown.
func (h *Hub) WakeAll() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, ws := range h.watchers {
		wake(ws)
	}
}

func wake(ws map[*watcher]struct{}) {
	for w := range ws {
		select {
		case w.grown <- struct{}{}:
		default:
		}
	}
}

// Idle reports whether nobody streams.
func (h *Hub) Idle() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.watchers) == 0
}

// Close ends all streams and waits until none reads any more.
func (h *Hub) Close() {
	h.mu.Lock()
	h.closed = true
	for _, ws := range h.watchers {
		for w := range ws {
			w.stop()
		}
	}
	h.mu.Unlock()
	h.streams.Wait()
}
