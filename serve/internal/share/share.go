// Package share is the account of what tenants make a host do in its own process: parse
// what they send, read, search and render what is recorded.
//
// Each request has a share. Before it computes it takes one of the CPU slots that calls of
// tools compute in as well, and gives the slot back when it waits: for the database to
// commit, for a run, or for its client to read. Before the host keeps something large in
// memory for it, the request takes as many bytes of one pool as that will cost. So the order
// is bytes, slot, reader of the database. What a request holds ends with it.
//
// A context without a share, as in a program with one user, takes nothing and never waits.
package share

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/host/guest"
)

// Host is what a host divides between its tenants.
type Host struct {
	CPU    *guest.Scheduler
	Memory *guest.Pool
}

const (
	// Memory is how many bytes requests hold together. Garbage doubles it at most.
	Memory = 256 << 20
	// patience is how long a request waits for bytes.
	patience = 10 * time.Second
	// stretch is how long a request computes before another one may. A piece of work that
	// cannot be divided, such as decoding one event, may take longer.
	stretch = 5 * time.Millisecond
)

// What a byte costs at most while it is worked on. Measured with mebibytes of small numbers,
// empty objects and arrays, records, and long strings: a document takes 12 to 37 times its
// size while it is parsed, checked and given to a tool; the payload of an event 8 to 19 times
// while it is written as JSON. Events of a run that is replayed are kept, and a module is
// kept beside what the host makes of it.
const (
	Document = 32
	Event    = 16
	Run      = 6
	Module   = 3
)

// ErrBusy means that a request has waited for memory in vain.
var ErrBusy = errors.New("share: other requests of the tenant or of the host hold the memory that it needs")

// most is how many slots the requests of one tenant have at once, and so how many of the
// four readers of a database in a file.
func most() int { return max(1, min(2, runtime.GOMAXPROCS(0)/2)) }

// Share is what a request holds. It is safe for concurrent use.
type Share struct {
	host *Host

	mu    sync.Mutex // guards what follows
	claim guest.Claim
	slot  *guest.Slot // nil for none
	since time.Time   // when the slot was given
	bytes int64       // until the end
	runs  []string    // whose events are paid for
	ended bool
}

type key struct{}

// Of returns the share of a request, or nil.
func Of(ctx context.Context) *Share {
	s, _ := ctx.Value(key{}).(*Share)
	return s
}

// Begin returns a context with a share of a tenant, which has to end.
func (h *Host) Begin(ctx context.Context, c guest.Claim) (context.Context, *Share) {
	c.Most = most()
	s := &Share{host: h, claim: c}
	return context.WithValue(ctx, key{}, s), s
}

// Fork returns a context with another share of the same tenant, for one of several things
// that a request asks for.
func Fork(ctx context.Context) (_ context.Context, end func()) {
	s := Of(ctx)
	if s == nil {
		return ctx, func() {}
	}
	s.Rest() // or both would wait for the one slot that the tenant may have
	s.mu.Lock()
	claim := s.claim
	s.mu.Unlock()
	ctx, s = s.host.Begin(ctx, claim)
	return ctx, s.End
}

// Claim notes whose share it is, before the request holds anything.
func (s *Share) Claim(c guest.Claim) {
	if s == nil {
		return
	}
	s.Rest()
	s.mu.Lock()
	defer s.mu.Unlock()
	c.Most = most()
	s.claim = c
}

// End gives everything back.
func (s *Share) End() {
	if s == nil {
		return
	}
	s.Rest()
	s.Keep(0)
	s.mu.Lock()
	s.ended = true
	s.mu.Unlock()
}

// Step waits until the request may compute. It is called between two pieces of work as well,
// where it lets another request go first if this one has computed for a while. Its error is
// that of ctx: nothing goes on whose client has gone.
func Step(ctx context.Context) error {
	s := Of(ctx)
	if s == nil || ctx.Err() != nil {
		return ctx.Err()
	}
	s.mu.Lock()
	claim := s.claim
	if s.slot != nil && time.Since(s.since) < stretch {
		s.mu.Unlock()
		return nil
	}
	s.mu.Unlock()
	s.Rest()
	slot, err := s.host.CPU.Acquire(guest.WithClaim(ctx, claim))
	if err != nil {
		return err
	}
	s.mu.Lock()
	if s.slot == nil && !s.ended {
		s.slot, slot = slot, nil
		s.since = time.Now()
	}
	s.mu.Unlock()
	if slot != nil { // another goroutine of the request has one
		slot.Release()
	}
	return nil
}

// Rest gives the slot back, before the request waits.
func (s *Share) Rest() {
	if s == nil {
		return
	}
	s.mu.Lock()
	slot := s.slot
	s.slot = nil
	s.mu.Unlock()
	if slot != nil {
		slot.Release()
	}
}

// Take takes bytes until they are given back. It waits for them as long as a client is
// patient, without a slot, and returns [ErrBusy] then.
func Take(ctx context.Context, bytes int64) (give func(), err error) {
	s := Of(ctx)
	if s == nil {
		return func() {}, ctx.Err()
	}
	if bytes > guest.SmallBytes {
		s.Rest()
	}
	s.mu.Lock()
	id := s.claim.Tenant
	s.mu.Unlock()
	patient, cancel := context.WithTimeoutCause(ctx, patience, ErrBusy)
	defer cancel()
	taken, err := s.host.Memory.Take(patient, id, bytes)
	if err != nil {
		return nil, err
	}
	return sync.OnceFunc(func() { s.host.Memory.Give(id, taken) }), nil
}

// Hold takes bytes until the end of the request, or until it keeps less.
func Hold(ctx context.Context, bytes int64) error {
	s := Of(ctx)
	if s == nil {
		return nil
	}
	if _, err := Take(ctx, bytes); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.bytes += min(bytes, s.host.Memory.Share())
	return nil
}

// Keep gives back all that the request holds but so many bytes, before it waits.
func (s *Share) Keep(bytes int64) {
	if s == nil {
		return
	}
	s.mu.Lock()
	back, id := max(s.bytes-bytes, 0), s.claim.Tenant
	s.bytes -= back
	s.mu.Unlock()
	s.host.Memory.Give(id, back)
}

// Log is a log whose reads are charged to the share of the request.
type Log struct{ eventlog.Database }

// sizeQuery adds up the next events of a run. A database finds the length of a payload
// without reading it.
const sizeQuery = `SELECT coalesce(sum(n), 0), coalesce(max(n), 0)
	FROM (SELECT length(payload) AS n FROM eventlog_events WHERE run_id = $1 AND seq > $2 ORDER BY seq LIMIT $3) AS next`

const (
	// measured is for how many events an iteration takes memory at a time.
	measured = 1024
	// pageBytes is what a page of events has, but for its last one.
	pageBytes = 1 << 20
	// Kept bounds the payloads of a run that are kept while others of it are read.
	Kept = 8 << 20
)

// size returns what the payloads of the next events of a run have, and the largest.
func (l Log) size(ctx context.Context, runID string, after uint64, events int64) (sum, largest int64, err error) {
	if err := Step(ctx); err != nil {
		return 0, 0, err
	}
	err = l.View(ctx, func(q eventlog.Querier) error {
		args := []any{runID, int64(min(after, math.MaxInt64)), events}
		return q.Query(sizeQuery, args, func(r eventlog.Row) error { return r.Scan(&sum, &largest) })
	})
	if err != nil {
		return 0, 0, fmt.Errorf("share: measure a run: %w", err)
	}
	return sum, largest, nil
}

// reading is what it takes to read events one after the other.
func reading(sum, largest int64) int64 { return 2*min(sum, pageBytes+largest) + Event*largest }

// Hold takes what it costs to read runs and to keep some of their events, or all of them,
// until the end of the request. The readers take nothing more, so that no request waits for others while it
// holds what they wait for.
func (l Log) Hold(ctx context.Context, whole bool, runIDs ...string) error {
	s := Of(ctx)
	if s == nil {
		return nil
	}
	var all int64
	for _, id := range runIDs {
		sum, largest, err := l.size(ctx, id, 0, math.MaxInt64)
		if err != nil {
			return err
		}
		if whole {
			all += Run*sum + Event*largest
		} else {
			all += reading(sum, largest) + min(sum, Kept)
		}
	}
	if err := Hold(ctx, all); err != nil {
		return err
	}
	s.mu.Lock()
	s.runs = append(s.runs, runIDs...)
	s.mu.Unlock()
	return Step(ctx)
}

// Events implements [eventlog.EventLog].
func (l Log) Events(ctx context.Context, runID string, after uint64) iter.Seq2[event.Event, error] {
	s := Of(ctx)
	if s == nil {
		return l.Database.Events(ctx, runID, after)
	}
	return func(yield func(event.Event, error) bool) {
		give := func() {}
		defer func() { give() }()
		s.mu.Lock()
		paid := slices.Contains(s.runs, runID)
		s.mu.Unlock()
		pay := func(after uint64) error {
			sum, largest, err := l.size(ctx, runID, after, measured)
			if err != nil {
				return err
			}
			give()
			if give, err = Take(ctx, reading(sum, largest)); err != nil {
				give = func() {}
				return err
			}
			return Step(ctx)
		}
		var err error
		if !paid {
			err = pay(after)
		}
		if err != nil {
			yield(event.Event{}, err)
			return
		}
		n := 0
		for ev, err := range l.Database.Events(ctx, runID, after) {
			if !yield(ev, err) || err != nil {
				return
			}
			if n++; n%measured == 0 && !paid {
				err = pay(ev.Seq)
			} else {
				err = Step(ctx)
			}
			if err != nil {
				yield(event.Event{}, err)
				return
			}
		}
	}
}

// Run implements [eventlog.EventLog].
func (l Log) Run(ctx context.Context, runID string) (eventlog.RunSummary, error) {
	if err := Step(ctx); err != nil {
		return eventlog.RunSummary{}, err
	}
	return l.Database.Run(ctx, runID)
}

// ListRunsPage implements [eventlog.EventLog].
func (l Log) ListRunsPage(ctx context.Context, o eventlog.RunPageOptions) (eventlog.RunPage, error) {
	if err := Step(ctx); err != nil {
		return eventlog.RunPage{}, err
	}
	return l.Database.ListRunsPage(ctx, o)
}
