package scheduler

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"
)

// Claim names the tenant that a slot is for.
type Claim struct {
	Tenant string
	Weight float64 // its share beside other tenants'; zero or less is one

	// Most bounds the slots that the tenant holds by claims with such a bound, which have
	// a queue of their own. Zero is the bound of the scheduler.
	Most int

	// Crowd bounds the callers of the tenant that hold a slot or wait for one. One more
	// gets [ErrCrowd]. Zero means no bound.
	Crowd int
}

// ErrCrowd means that as many callers of a tenant hold slots or wait as may.
var ErrCrowd = errors.New("scheduler: as many callers of the tenant hold slots or wait as may")

type claimKey struct{}

// For returns a context whose slots are charged to a claim. Without a claim they belong
// to the tenant "".
func For(ctx context.Context, c Claim) context.Context { return context.WithValue(ctx, claimKey{}, c) }

// Scheduler assigns slots. It is safe for concurrent use. Use [New].
type Scheduler struct {
	now  func() time.Time
	each int // slots that one tenant may hold at once
	all  int // slots that there are

	mu       sync.Mutex         // guards what follows, and the fields of tenants and slots
	free     int                // slots that are not held
	virtual  float64            // seconds: the tag of the last assigned slot
	expected float64            // seconds that a slot is held, smoothed
	tenants  map[string]*tenant // with callers now, or within idleTime
	sweep    int                // how many tenants there are when the idle ones are forgotten next
	waiting  map[*tenant]bool   // tenants with waiting callers
	arrivals uint64
	load     Load // see [Scheduler.Load], without Tenants
}

// Load is how tenants share a scheduler.
type Load struct {
	Tenants int           // whose callers wait now
	Waited  time.Duration // of all callers that got a slot
	Demoted uint64        // calls, see [Scheduler.Demoted]
}

// tenant holds slots, waits for some, or once did.
type tenant struct {
	tag    float64 // the point in virtual time at which its next slot begins
	weight float64
	queues [2]queue  // claims without a bound, and claims with one
	last   time.Time // when its last caller came or released its slot
}

// idleTime is after what time without callers a tenant is forgotten, with what it owes.
const idleTime = 10 * time.Minute

// queue has the callers of a tenant, and its slots, of one kind.
type queue struct {
	most, held int
	waiting    []*waiter // the first is next
}

// callers returns how many hold a slot, and how many wait for one.
func (t *tenant) callers() (held, waiting int) {
	for i := range t.queues {
		held, waiting = held+t.queues[i].held, waiting+len(t.queues[i].waiting)
	}
	return held, waiting
}

// waiter is a caller that waits.
type waiter struct {
	arrival uint64
	since   time.Time
	slot    *Slot
	ready   chan struct{} // closed when it has the slot
}

// New returns a scheduler of n slots, at least one. If each is positive, a tenant holds
// at most that many of them at once.
func New(n int, each ...int) *Scheduler {
	n = max(n, 1)
	return &Scheduler{now: time.Now, free: n, all: n, each: slices.Min(append(each, n)), tenants: map[string]*tenant{}, waiting: map[*tenant]bool{}}
}

// Slot lets its holder compute until Release.
type Slot struct {
	scheduler *Scheduler
	tenant    *tenant
	queue     *queue  // of the tenant
	charged   float64 // seconds that the tenant has paid in advance
	since     time.Time
	released  bool
}

// Acquire waits for a slot of the tenant that ctx names (see [For]). Its error is
// [ErrCrowd], or that of ctx, when it ends first.
func (s *Scheduler) Acquire(ctx context.Context) (*Slot, error) {
	claim, _ := ctx.Value(claimKey{}).(Claim)
	w := s.join(claim)
	if w == nil {
		return nil, ErrCrowd
	}
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

// Idle reports whether no slot is held.
func (s *Scheduler) Idle() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.free == s.all
}

// join queues a caller behind those of its tenant. A tenant without waiting callers
// starts at the current virtual time, or where its own slots have taken it. It returns nil
// if there is a crowd.
func (s *Scheduler) join(c Claim) *waiter {
	s.mu.Lock()
	defer s.mu.Unlock()
	t, now := s.tenants[c.Tenant], s.now()
	if t == nil {
		if len(s.tenants) >= s.sweep {
			maps.DeleteFunc(s.tenants, func(_ string, t *tenant) bool {
				held, waiting := t.callers()
				return held+waiting == 0 && now.Sub(t.last) > idleTime
			})
			s.sweep = 2*len(s.tenants) + 64
		}
		t = &tenant{}
		s.tenants[c.Tenant] = t
	}
	t.last = now
	if t.weight = c.Weight; t.weight <= 0 {
		t.weight = 1
	}
	if held, waiting := t.callers(); c.Crowd > 0 && held+waiting >= c.Crowd {
		return nil
	}
	if !s.waiting[t] {
		t.tag = max(t.tag, s.virtual)
	}
	q := &t.queues[0]
	if q.most = s.each; c.Most > 0 {
		q = &t.queues[1]
		q.most = min(c.Most, s.each)
	}
	s.arrivals++
	w := &waiter{arrival: s.arrivals, since: now, slot: &Slot{scheduler: s, tenant: t, queue: q}, ready: make(chan struct{})}
	q.waiting = append(q.waiting, w)
	s.waiting[t] = true
	s.give()
	return w
}

// leave removes a caller that gave up. If it was just given a slot, the next one gets it.
func (s *Scheduler) leave(w *waiter) {
	s.mu.Lock()
	i := slices.Index(w.slot.queue.waiting, w)
	if i >= 0 {
		s.remove(w.slot, i)
	}
	s.mu.Unlock()
	if i < 0 {
		w.slot.Release()
	}
}

// remove takes the caller that waits for a slot out of its queue. The caller of remove
// holds mu.
func (s *Scheduler) remove(slot *Slot, i int) {
	slot.queue.waiting = slices.Delete(slot.queue.waiting, i, i+1)
	if _, waiting := slot.tenant.callers(); waiting == 0 {
		delete(s.waiting, slot.tenant)
	}
}

// give assigns the free slots, each to the tenant with the lowest tag, and among equals
// to the longest waiting one. The caller holds mu.
func (s *Scheduler) give() {
	for s.free > 0 {
		w := s.next()
		if w == nil {
			return
		}
		t := w.slot.tenant
		s.remove(w.slot, 0)
		s.free--
		w.slot.queue.held++
		s.virtual = max(s.virtual, t.tag)
		w.slot.charged, w.slot.since = s.expected/t.weight, s.now()
		s.load.Waited += w.slot.since.Sub(w.since)
		t.tag += w.slot.charged
		close(w.ready)
	}
}

// next returns the caller that gets the next slot, or nil. The caller of next holds mu.
func (s *Scheduler) next() (first *waiter) {
	for t := range s.waiting {
		for i := range t.queues {
			q := &t.queues[i]
			if len(q.waiting) == 0 || q.held >= q.most {
				continue
			}
			w := q.waiting[0]
			if first == nil || t.tag < first.slot.tenant.tag || t.tag == first.slot.tenant.tag && w.arrival < first.arrival {
				first = w
			}
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
	t.tenant.last = s.now()
	took := t.tenant.last.Sub(t.since).Seconds()
	t.tenant.tag += took/t.tenant.weight - t.charged
	t.queue.held--
	s.expected += (took - s.expected) / smoothing
	s.free++
	s.give()
}

// Demoted counts a caller whose call was demoted.
func (s *Scheduler) Demoted() {
	s.mu.Lock()
	s.load.Demoted++
	s.mu.Unlock()
}

// Load returns how tenants share the scheduler.
func (s *Scheduler) Load() Load {
	s.mu.Lock()
	defer s.mu.Unlock()
	load := s.load
	load.Tenants = len(s.waiting)
	return load
}

// Use returns how many slots a tenant holds, and how many of its callers wait.
func (s *Scheduler) Use(id string) (held, waiting int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t := s.tenants[id]; t != nil {
		return t.callers()
	}
	return 0, 0
}

// Pool divides bytes of memory between tenants. A tenant may hold a third of the free bytes:
// a quarter of the pool if it is alone, and less the more others hold. So something is left
// for the next tenant, however many take their maximum: dynamic thresholds (Choudhury and
// Hahne, 1998). A tenant that holds nothing may take all free bytes. It is safe for
// concurrent use. Use [NewPool].
type Pool struct {
	size int64

	mu      sync.Mutex // guards what follows
	used    int64
	of      map[string]int64 // by tenant, without tenants that hold nothing
	waiting []*taker         // in the order of their arrival
}

// taker waits for bytes.
type taker struct {
	tenant string
	bytes  int64
	ready  chan struct{} // closed when it has them
}

// SmallBytes is taken without waiting, even from an exhausted pool: the number of small
// requests is bounded elsewhere, and most other work consists of them.
const SmallBytes = 64 << 10

// NewPool returns a pool of so many bytes.
func NewPool(size int64) *Pool { return &Pool{size: size, of: map[string]int64{}} }

// Share returns the most that one tenant can hold.
func (p *Pool) Share() int64 { return p.size / 4 }

// Take waits for bytes for a tenant, which [Pool.Give] gives back. Its error is ctx's. A
// request beyond a tenant's maximum takes the maximum. It returns the number taken.
func (p *Pool) Take(ctx context.Context, tenant string, bytes int64) (int64, error) {
	bytes = min(bytes, p.Share())
	w := &taker{tenant, bytes, make(chan struct{})}
	p.mu.Lock()
	if bytes <= SmallBytes {
		p.add(tenant, bytes)
		p.mu.Unlock()
		return bytes, nil
	}
	p.waiting = append(p.waiting, w)
	p.grant()
	p.mu.Unlock()
	select {
	case <-w.ready:
		return bytes, nil
	case <-ctx.Done():
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	i := slices.Index(p.waiting, w)
	if i < 0 { // it was granted at this moment
		return bytes, nil
	}
	p.waiting = slices.Delete(p.waiting, i, i+1)
	p.grant()
	return 0, context.Cause(ctx)
}

// Give gives bytes of a tenant back.
func (p *Pool) Give(tenant string, bytes int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.add(tenant, -bytes)
	p.grant()
}

// Held returns how many bytes a tenant holds.
func (p *Pool) Held(tenant string) int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.of[tenant]
}

// add changes how many bytes a tenant holds. The caller holds mu.
func (p *Pool) add(tenant string, bytes int64) {
	p.used += bytes
	if p.of[tenant] += bytes; p.of[tenant] == 0 {
		delete(p.of, tenant)
	}
}

// grant gives out the available bytes: to each tenant in the order of its callers. The
// caller holds mu.
func (p *Pool) grant() {
	var behind []string // tenants whose next caller has to wait
	p.waiting = slices.DeleteFunc(p.waiting, func(w *taker) bool {
		held, free := p.of[w.tenant], p.size-p.used
		if slices.Contains(behind, w.tenant) || w.bytes > free || held > SmallBytes && held+w.bytes > free/3 {
			behind = append(behind, w.tenant)
			return false
		}
		p.add(w.tenant, w.bytes)
		close(w.ready)
		return true
	})
}
