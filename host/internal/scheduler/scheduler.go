// Package scheduler divides the processors of one host between tenants.
//
// A [Scheduler] has a number of slots. A caller that holds one computes; the others wait.
// The next free slot goes to the tenant that has used the least. This is start-time fair
// queueing (Goyal, Vin and Cheng, 1996) with time for cost. Each tenant has a tag, the
// point in virtual time at which its next slot begins. A slot moves the tag on by the
// seconds that it was held, divided by the tenant's weight. These are known only at its
// release, so the tenant pays the average in advance and the rest then: one that holds
// many slots at once has paid for them. A tenant that comes back starts at the current
// virtual time and has saved nothing up. One that has used more than its share keeps its
// debt, even if it leaves for a moment.
//
// So a tenant within its share waits for one release at most, however much work other
// tenants have queued. A slot is never taken away: it is meant to be short. A caller
// that starts to wait, or is demoted, releases its slot and acquires another one later.
package scheduler

import (
	"context"
	"slices"
	"sync"
	"time"
)

// Claim names the tenant that a slot is for.
type Claim struct {
	Tenant string
	Weight float64 // its share beside other tenants'; zero or less is one
}

type claimKey struct{}

// For returns a context whose slots are charged to a claim. Without a claim they belong
// to the tenant "".
func For(ctx context.Context, c Claim) context.Context { return context.WithValue(ctx, claimKey{}, c) }

// Scheduler hands out slots. It is safe for concurrent use. Use [New].
type Scheduler struct {
	now  func() time.Time
	each int // slots that one tenant may hold at once

	mu       sync.Mutex         // guards what follows, and the fields of tenants and slots
	free     int                // slots that are not held
	virtual  float64            // seconds: the tag of the slot that was given last
	expected float64            // seconds that a slot is held, smoothed
	tenants  map[string]*tenant // all that ever came, about 150 bytes each
	waiting  map[*tenant]bool   // those with callers that wait
	arrivals uint64
}

// tenant holds slots, waits for some, or once did.
type tenant struct {
	tag     float64 // the point in virtual time at which its next slot begins
	weight  float64
	held    int
	waiting []*waiter // the first is next
}

// waiter is a caller that waits.
type waiter struct {
	arrival uint64
	slot    *Slot
	ready   chan struct{} // closed when it has the slot
}

// New returns a scheduler of n slots, at least one. If each is given, a tenant holds at
// most that many of them at once.
func New(n int, each ...int) *Scheduler {
	n = max(n, 1)
	return &Scheduler{now: time.Now, free: n, each: slices.Min(append(each, n)), tenants: map[string]*tenant{}, waiting: map[*tenant]bool{}}
}

// Slot lets its holder compute until Release.
type Slot struct {
	scheduler *Scheduler
	tenant    *tenant
	charged   float64 // seconds that the tenant has paid in advance
	since     time.Time
	released  bool
}

// Acquire waits for a slot of the tenant that ctx names (see [For]). Its error is that of
// ctx, when it ends first.
func (s *Scheduler) Acquire(ctx context.Context) (*Slot, error) {
	claim, _ := ctx.Value(claimKey{}).(Claim)
	w := s.join(claim)
	select {
	case <-w.ready:
		return w.slot, nil
	default:
	}
	select {
	case <-w.ready:
		return w.slot, nil
	case <-ctx.Done():
		s.leave(w)
		return nil, ctx.Err()
	}
}

// join queues a caller behind those of its tenant. A tenant without waiting callers
// starts at the current virtual time, or where its own slots have taken it.
func (s *Scheduler) join(c Claim) *waiter {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.tenants[c.Tenant]
	if t == nil {
		t = &tenant{}
		s.tenants[c.Tenant] = t
	}
	if t.weight = c.Weight; t.weight <= 0 {
		t.weight = 1
	}
	if len(t.waiting) == 0 {
		t.tag = max(t.tag, s.virtual)
	}
	s.arrivals++
	w := &waiter{arrival: s.arrivals, slot: &Slot{scheduler: s, tenant: t}, ready: make(chan struct{})}
	t.waiting = append(t.waiting, w)
	s.waiting[t] = true
	s.give()
	return w
}

// leave removes a caller that gave up. If it was just given a slot, the next one gets it.
func (s *Scheduler) leave(w *waiter) {
	s.mu.Lock()
	i := slices.Index(w.slot.tenant.waiting, w)
	if i >= 0 {
		s.remove(w.slot.tenant, i)
	}
	s.mu.Unlock()
	if i < 0 {
		w.slot.Release()
	}
}

// remove takes a caller of a tenant out of the queue. The caller of remove holds mu.
func (s *Scheduler) remove(t *tenant, i int) {
	t.waiting = slices.Delete(t.waiting, i, i+1)
	if len(t.waiting) == 0 {
		delete(s.waiting, t)
	}
}

// give hands out the free slots, each to the tenant with the lowest tag, and of equal ones
// to the one that waits longest. The caller holds mu.
func (s *Scheduler) give() {
	for s.free > 0 {
		t := s.next()
		if t == nil {
			return
		}
		w := t.waiting[0]
		s.remove(t, 0)
		s.free--
		t.held++
		s.virtual = max(s.virtual, t.tag)
		w.slot.charged, w.slot.since = s.expected/t.weight, s.now()
		t.tag += w.slot.charged
		close(w.ready)
	}
}

// next returns the tenant that gets the next slot, or nil. The caller holds mu.
func (s *Scheduler) next() (first *tenant) {
	for t := range s.waiting {
		if t.held < s.each && (first == nil || t.tag < first.tag || t.tag == first.tag && t.waiting[0].arrival < first.waiting[0].arrival) {
			first = t
		}
	}
	return first
}

// smoothing is after about how many slots the expected duration has followed the real one.
const smoothing = 16

// Release gives the slot to the next caller, and charges the tenant for the time that it
// was held. Releasing it again does nothing.
func (t *Slot) Release() {
	s := t.scheduler
	s.mu.Lock()
	defer s.mu.Unlock()
	if t.released {
		return
	}
	t.released = true
	took := s.now().Sub(t.since).Seconds()
	t.tenant.tag += took/t.tenant.weight - t.charged
	t.tenant.held--
	s.expected += (took - s.expected) / smoothing
	s.free++
	s.give()
}
