package turns

import (
	"context"
	"slices"
	"sync"
	"time"
)

// Line hands out a number of turns. It is safe for concurrent use. Use [New].
type Line struct {
	now func() time.Time

	mu       sync.Mutex         // guards what follows, and the fields of tenants and turns
	free     int                // turns that nobody has
	virtual  float64            // seconds: the tag of the turn that was given last
	expected float64            // seconds that a turn takes, as far as is known
	tenants  map[string]*tenant // as many as there are, about 150 bytes each
	waiting  map[*tenant]bool   // those of which calls wait
	arrivals uint64
}

// tenant is who has turns, waits for some, or once did.
type tenant struct {
	tag     float64 // the point in virtual time at which its next turn begins
	weight  float64
	waiting []*waiter // the first is next
}

// waiter is a call that waits.
type waiter struct {
	arrival uint64
	turn    *Turn
	ready   chan struct{} // closed when it has the turn
}

// New returns a line of n turns, at least one.
func New(n int) *Line {
	return &Line{now: time.Now, free: max(n, 1), tenants: map[string]*tenant{}, waiting: map[*tenant]bool{}}
}

// Turn is what a tenant may do until End.
type Turn struct {
	line    *Line
	tenant  *tenant
	charged float64 // seconds that the tenant has paid in advance
	since   time.Time
	ended   bool
}

// Take waits for a turn of the tenant that ctx names (see [For]). The error is that
// of ctx, when it ends first.
func (l *Line) Take(ctx context.Context) (*Turn, error) {
	w := l.join(of(ctx))
	select {
	case <-w.ready:
		return w.turn, nil
	default:
	}
	select {
	case <-w.ready:
		return w.turn, nil
	case <-ctx.Done():
		l.leave(w)
		return nil, ctx.Err()
	}
}

// join puts a call at the end of its tenant's line. A tenant of which nobody waits
// begins where virtual time is, or where its own turns have taken it.
func (l *Line) join(c Claim) *waiter {
	l.mu.Lock()
	defer l.mu.Unlock()
	t := l.tenants[c.Tenant]
	if t == nil {
		t = &tenant{}
		l.tenants[c.Tenant] = t
	}
	t.weight = c.weight()
	if len(t.waiting) == 0 {
		t.tag = max(t.tag, l.virtual)
	}
	l.arrivals++
	w := &waiter{arrival: l.arrivals, turn: &Turn{line: l, tenant: t}, ready: make(chan struct{})}
	t.waiting = append(t.waiting, w)
	l.waiting[t] = true
	l.give()
	return w
}

// leave takes a call out of the line. If it has just been given its turn, another
// one gets that.
func (l *Line) leave(w *waiter) {
	l.mu.Lock()
	t := w.turn.tenant
	i := slices.Index(t.waiting, w)
	if i >= 0 {
		l.remove(t, i)
	}
	l.mu.Unlock()
	if i < 0 {
		w.turn.End()
	}
}

// remove takes a call of a tenant out of the line. The caller holds mu.
func (l *Line) remove(t *tenant, i int) {
	t.waiting = slices.Delete(t.waiting, i, i+1)
	if len(t.waiting) == 0 {
		delete(l.waiting, t)
	}
}

// give hands out the turns that are free. Each is paid for in advance, so that what
// a tenant has at the same time counts; what it took is known when it ends. The
// caller holds mu.
func (l *Line) give() {
	for l.free > 0 {
		t := l.next()
		if t == nil {
			return
		}
		w := t.waiting[0]
		l.remove(t, 0)
		l.free--
		l.virtual = max(l.virtual, t.tag)
		w.turn.charged, w.turn.since = l.expected/t.weight, l.now()
		t.tag += w.turn.charged
		close(w.ready)
	}
}

// next returns the tenant whose turn it is: the one with the lowest tag, of equal
// ones the one who waits longest. The caller holds mu.
func (l *Line) next() (first *tenant) {
	for t := range l.waiting {
		if first == nil || t.tag < first.tag || t.tag == first.tag && t.waiting[0].arrival < first.waiting[0].arrival {
			first = t
		}
	}
	return first
}

// smoothing is how many turns it takes, about, until what is expected of one has
// followed what they take.
const smoothing = 16

// End gives the turn to the next one, and has the tenant pay for the time that it
// took. To end it again does nothing.
func (t *Turn) End() {
	l := t.line
	l.mu.Lock()
	defer l.mu.Unlock()
	if t.ended {
		return
	}
	t.ended = true
	took := l.now().Sub(t.since).Seconds()
	t.tenant.tag += took/t.tenant.weight - t.charged
	l.expected += (took - l.expected) / smoothing
	l.free++
	l.give()
}
