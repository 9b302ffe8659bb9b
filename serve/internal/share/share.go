package share

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"math"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/host/guest"
)

// Host is the resources that a host divides between its tenants, and the log that their
// requests read.
type Host struct {
	CPU    *guest.Scheduler
	Memory *guest.Pool
	Log    eventlog.Database
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

// The largest memory cost per byte being processed. Measured with mebibytes of small numbers,
// empty objects and arrays, records, and long strings: a document takes 12 to 37 times its
// size while it is parsed, checked and given to a tool; the payload of an event 8 to 19 times
// while it is written as JSON. Events of a replayed run stay in memory, and so does a module,
// beside what the process that read it returns and a worker receives: its data, and its sections but the
// code. A view of a run keeps a span for each event.
const (
	Document = 32
	Event    = 16
	Run      = 6
	Module   = 3
	spanSize = 512
	maxSpans = 100_000 // that a view keeps
)

// ErrBusy means that a request has waited for memory in vain.
var ErrBusy = errors.New("share: other requests of the tenant or of the host hold the memory that it needs")

// Share is the resources of a request. It is safe for concurrent use. The zero value suits
// a program with one user.
type Share struct {
	host *Host

	aside bool // see [Aside]

	mu    sync.Mutex // guards what follows
	claim guest.Claim
	slot  *guest.Slot // nil for no slot
	since time.Time   // when the slot was given
	bytes int64       // until the end
	lent  int64       // until they are given back, beside bytes
	runs  []string    // whose events are paid for
	ended bool
}

type key struct{}

// Of returns the share of a request.
func Of(ctx context.Context) *Share {
	if s, ok := ctx.Value(key{}).(*Share); ok {
		return s
	}
	return &Share{}
}

// Begin returns a context with a share of a tenant, which has to end.
func (h *Host) Begin(ctx context.Context, c guest.Claim) (context.Context, *Share) {
	s := &Share{host: h, claim: c}
	return context.WithValue(ctx, key{}, s), s
}

// Fork returns a context with another share of the same tenant, for one of several
// concurrent parts of a request.
func Fork(ctx context.Context) (_ context.Context, end func()) {
	s := Of(ctx)
	s.Rest() // or both would wait for the one slot that the tenant may have
	ctx, s = s.host.Begin(ctx, s.who())
	return ctx, s.End
}

// Aside returns a context with a share as [Fork] does, for work of a tenant that lasts longer than its
// other requests are patient. Its memory is counted apart from theirs, so they do not wait for its end,
// and it takes half of what a tenant may hold at most.
func Aside(ctx context.Context) (_ context.Context, end func()) {
	ctx, end = Fork(ctx)
	Of(ctx).aside = true
	return ctx, end
}

// Claim notes whose share it is, before the request holds anything.
func (s *Share) Claim(c guest.Claim) {
	s.Rest()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.claim = c
}

func (s *Share) who() guest.Claim {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.claim
}

// account returns who holds the memory of the request in the pool, and how much it takes at most.
func (s *Share) account() (holder string, most int64) {
	if s.aside { // no tenant has a name with a space
		return s.claim.Tenant + " aside", s.host.Memory.Share() / 2
	}
	return s.claim.Tenant, s.host.Memory.Share()
}

// End gives everything back.
func (s *Share) End() {
	s.mu.Lock()
	s.ended = true
	s.mu.Unlock()
	s.Rest()
	s.Keep(0)
}

// Step waits until the request may compute. It is called between two pieces of work as well,
// where it lets another request go first if this one has computed for a while. Its error is
// ctx's: a request ends when its client has gone.
func Step(ctx context.Context) error {
	s := Of(ctx)
	s.mu.Lock()
	going := s.host == nil || s.slot != nil && time.Since(s.since) < stretch
	s.mu.Unlock()
	if going || ctx.Err() != nil {
		return ctx.Err()
	}
	s.Rest()
	claim := s.who()
	claim.Most = max(1, min(2, runtime.GOMAXPROCS(0)/2)) // slots of one tenant, and so of the four readers of a database in a file
	slot, err := s.host.CPU.Acquire(guest.WithClaim(ctx, claim))
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.slot != nil || s.ended { // another goroutine of the request was first
		slot.Release()
		return nil
	}
	s.slot, s.since = slot, time.Now()
	return nil
}

// Rest gives the slot back, before the request waits.
func (s *Share) Rest() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.slot != nil {
		s.slot.Release()
		s.slot = nil
	}
}

// Take takes bytes until they are given back. It waits for them as long as a client is
// patient, without a slot, and returns [ErrBusy] then.
func Take(ctx context.Context, bytes int64) (give func(), err error) {
	s := Of(ctx)
	if s.host == nil {
		return func() {}, ctx.Err()
	}
	if bytes > guest.SmallBytes {
		s.Rest()
	}
	s.mu.Lock()
	holder, most := s.account()
	s.mu.Unlock()
	patient, cancel := context.WithTimeoutCause(ctx, patience, ErrBusy)
	defer cancel()
	taken, err := s.host.Memory.Take(patient, holder, min(bytes, most))
	if err != nil {
		return func() {}, err
	}
	s.lend(taken)
	return func() { s.lend(-taken); s.host.Memory.Give(holder, taken) }, nil
}

func (s *Share) lend(bytes int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lent += bytes
}

// Cover makes the request hold at least so many bytes until its end, for an answer that its client may
// be slow to read. It does not wait, because the answer is in memory by then: without room for it the
// error is [ErrBusy], and the caller drops the answer. A request that reserved enough before it made
// the answer takes nothing here.
func (s *Share) Cover(bytes int64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.host == nil || s.ended || bytes <= guest.SmallBytes {
		return nil
	}
	holder, most := s.account()
	more := min(bytes, most) - s.bytes - s.lent // nobody holds more than most
	if more <= 0 {
		return nil
	}
	taken, err := s.host.Memory.Take(impatient, holder, max(more, guest.SmallBytes+1))
	s.bytes += taken
	return err
}

// impatient has ended, so that nothing waits with it.
var impatient = func() context.Context {
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(ErrBusy)
	return ctx
}()

// WriteStatic writes content that all requests share, in pieces that need no memory of the request.
func WriteStatic(w io.Writer, content []byte) {
	for piece := range slices.Chunk(content, guest.SmallBytes) {
		if _, err := w.Write(piece); err != nil {
			return // the client has gone
		}
	}
}

// Hold takes bytes until the end of the request, or until it keeps less.
func Hold(ctx context.Context, bytes int64) error {
	s := Of(ctx)
	give, err := Take(ctx, bytes)
	if err != nil || s.host == nil {
		return err
	}
	s.mu.Lock()
	_, most := s.account()
	bytes = min(bytes, most)
	ended := s.ended // of a call that continues without its client
	if !ended {
		s.bytes, s.lent = s.bytes+bytes, s.lent-bytes
	}
	s.mu.Unlock()
	if ended {
		give()
	}
	return nil
}

// HoldEvent takes the memory for reading one event of a run and keeping it with its text until the end
// of the request. A reader of the returned context takes nothing more. Without it, the event would be
// kept after its reader gave back what it took.
func HoldEvent(ctx context.Context, runID string, seq uint64) (context.Context, error) {
	s := Of(ctx)
	if s.host == nil || s.paid(runID) {
		return ctx, nil
	}
	sum, largest, _, err := s.host.size(ctx, runID, max(seq, 1)-1, measured)
	if err == nil {
		err = Hold(ctx, reading(sum, largest))
	}
	return context.WithValue(ctx, paidKey{}, true), err
}

// paidKey is the context key of a read that is paid for.
type paidKey struct{}

// Keep gives back all but a number of the bytes that the request holds, before it waits. Runs that it
// reads later are paid for again.
func (s *Share) Keep(bytes int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.runs = nil
	if back := s.bytes - bytes; back > 0 {
		holder, _ := s.account()
		s.bytes = bytes
		s.host.Memory.Give(holder, back)
	}
}

// Reserve takes the memory for reading runs and keeping some or all of their events until
// the end of the request. The readers take nothing more, so no request holds memory while it
// waits for memory that others hold.
func Reserve(ctx context.Context, whole bool, runIDs ...string) error {
	s := Of(ctx)
	if s.host == nil {
		return nil
	}
	var all int64
	for _, id := range runIDs {
		if s.paid(id) {
			continue
		}
		sum, largest, events, err := s.host.size(ctx, id, 0, math.MaxInt64)
		switch {
		case err != nil:
			return err
		case whole:
			all += Run*sum + Event*largest
		default:
			all += reading(sum, largest) + min(sum, Kept) + spanSize*min(events, maxSpans)
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

// paid reports whether the memory for the events of a run was taken for the whole request.
func (s *Share) paid(runID string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Contains(s.runs, runID)
}

// sizeQuery adds up the next events of a run. A database finds the length of a payload
// without reading it.
const sizeQuery = `SELECT coalesce(sum(n), 0), coalesce(max(n), 0), count(*)
	FROM (SELECT length(payload) AS n FROM eventlog_events WHERE run_id = $1 AND seq > $2 ORDER BY seq LIMIT $3) AS next`

const (
	// measured is for how many events an iteration takes memory before it begins.
	measured = 1024
	// pageBytes is the size of a page of events, except for its last one.
	pageBytes = 1 << 20
	// Kept bounds the payloads of a run that are kept while others are read.
	Kept = 8 << 20
)

// reading returns the memory for reading events one after the other.
func reading(sum, largest int64) int64 { return 2*min(sum, pageBytes+largest) + Event*largest }

// size returns the sum of the payloads of a run's next events, the largest, and how many there are.
func (h *Host) size(ctx context.Context, runID string, after uint64, most int64) (sum, largest, events int64, err error) {
	if err := Step(ctx); err != nil {
		return 0, 0, 0, err
	}
	err = h.Log.View(ctx, func(q eventlog.Querier) error {
		args := []any{runID, int64(min(after, math.MaxInt64)), most}
		return q.Query(sizeQuery, args, func(r eventlog.Row) error { return r.Scan(&sum, &largest, &events) })
	})
	if err != nil {
		err = fmt.Errorf("share: measure a run: %w", err)
	}
	return sum, largest, events, err
}

// Log is a log whose reads are charged to the share of the request.
type Log struct{ eventlog.Database }

// Events implements [eventlog.EventLog].
func (l Log) Events(ctx context.Context, runID string, after uint64) iter.Seq2[event.Event, error] {
	s := Of(ctx)
	if s.host == nil {
		return l.Database.Events(ctx, runID, after)
	}
	return func(yield func(event.Event, error) bool) {
		paid := s.paid(runID) || ctx.Value(paidKey{}) != nil
		give := func() {}
		defer func() { give() }()
		pay := func(sum, largest int64) error {
			give()
			var err error
			if give, err = Take(ctx, reading(sum, largest)); err != nil {
				return err
			}
			return Step(ctx)
		}
		var sum, largest int64
		err := Step(ctx)
		if err == nil && !paid {
			if sum, largest, _, err = s.host.size(ctx, runID, after, measured); err == nil {
				err = pay(sum, largest)
			}
		}
		if err != nil {
			yield(event.Event{}, err)
			return
		}
		for ev, failed := range l.Database.Events(ctx, runID, after) {
			if err == nil && !paid && int64(len(ev.Payload)) > largest { // after the measured ones
				largest = int64(len(ev.Payload))
				err = pay(pageBytes, largest)
			}
			if err == nil {
				err = failed
			}
			if !yield(ev, err) || err != nil {
				return
			}
			err = Step(ctx)
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

// Modules is a store whose modules are charged, until Give, to the requests that read them.
type Modules struct {
	eventlog.ModuleReader

	mu    sync.Mutex // guards gives
	gives []func()
}

// Module implements [eventlog.ModuleReader].
func (m *Modules) Module(ctx context.Context, digest canon.Hash) ([]byte, error) {
	wasm, err := m.ModuleReader.Module(ctx, digest)
	if err != nil {
		return nil, err
	}
	give, err := Take(ctx, int64(Module*len(wasm)))
	if err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.gives = append(m.gives, give)
	return wasm, nil
}

// Give gives everything back.
func (m *Modules) Give() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, give := range m.gives {
		give()
	}
	m.gives = nil
}
