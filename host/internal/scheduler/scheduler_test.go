package scheduler

import (
	"context"
	"errors"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// clock is a scheduler's clock, which stands still unless the test moves it.
type clock struct{ time.Time }

func (c *clock) pass(d time.Duration) { c.Time = c.Add(d) }

// newScheduler returns a scheduler of n slots and its clock.
func newScheduler(n int) (*Scheduler, *clock) {
	s, c := New(n), &clock{time.Unix(0, 0)}
	s.now = func() time.Time { return c.Time }
	return s, c
}

// has reports whether a caller has its slot.
func (w *waiter) has() bool {
	select {
	case <-w.ready:
		return true
	default:
		return false
	}
}

// TestLeastUsedTenantIsNext: a tenant that comes later than all calls of a flood waits for
// one release, and then for its own share.
func TestLeastUsedTenantIsNext(t *testing.T) {
	s, clock := newScheduler(1)
	var flood []*waiter
	for range 10 {
		flood = append(flood, s.join(Claim{Tenant: "flood"}))
	}
	if !flood[0].has() || flood[1].has() {
		t.Fatal("one slot was not given to one caller")
	}
	clock.pass(time.Second)
	first := s.join(Claim{Tenant: "good"})
	second := s.join(Claim{Tenant: "good"})
	flood[0].slot.Release()
	if !first.has() {
		t.Fatal("a tenant that has used nothing waits behind one that has")
	}
	s.Demoted()
	if got, want := s.Load(), (Load{Tenants: 2, Waited: 0, Demoted: 1}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	clock.pass(2 * time.Second)
	first.slot.Release()
	if second.has() || !flood[1].has() {
		t.Error("the tenant that has used more is first")
	}
	if got := s.Load().Waited; got != 3*time.Second {
		t.Errorf("the callers that have slots waited %v, want 3s", got)
	}
}

// TestTimeIsDividedByWeight: tenants that always have calls waiting get time in the
// relation of their weights, however long they hold slots and however many wait.
func TestTimeIsDividedByWeight(t *testing.T) {
	for _, n := range []int{1, 3} {
		s, clock := newScheduler(n)
		claims := []Claim{{Tenant: "short", Weight: 1}, {Tenant: "long", Weight: 1}, {Tenant: "heavy", Weight: 3}}
		length := []time.Duration{time.Millisecond, 20 * time.Millisecond, 5 * time.Millisecond}
		got := make([]time.Duration, len(claims))
		type running struct {
			*waiter
			who   int
			until time.Time
		}
		var waiting, busy []running
		for i, c := range claims {
			for range 10 * (i + 1) {
				waiting = append(waiting, running{s.join(c), i, time.Time{}})
			}
		}
		for clock.Before(time.Unix(60, 0)) {
			var rest []running
			for _, r := range waiting {
				if r.has() {
					r.until = clock.Add(length[r.who])
					busy = append(busy, r)
				} else {
					rest = append(rest, r)
				}
			}
			waiting = rest
			first := 0
			for i := range busy {
				if busy[i].until.Before(busy[first].until) {
					first = i
				}
			}
			done := busy[first]
			busy = append(busy[:first:first], busy[first+1:]...)
			clock.Time = done.until
			got[done.who] += length[done.who]
			waiting = append(waiting, running{s.join(claims[done.who]), done.who, time.Time{}})
			done.slot.Release()
		}
		all := float64(n) * 60
		for i, want := range []float64{0.2, 0.2, 0.6} {
			if have := got[i].Seconds() / all; have < want-0.01 || have > want+0.01 {
				t.Errorf("%d slots: %s has %.3f of the time, want %.1f", n, claims[i].Tenant, have, want)
			}
		}
	}
}

// TestSchedulerKeepsDebtsNotCredit: a tenant that was away for long alternates with the
// others, and a tenant that leaves for a moment keeps its debt.
func TestSchedulerKeepsDebtsNotCredit(t *testing.T) {
	s, clock := newScheduler(1)
	use := func(who string, d time.Duration) {
		w := s.join(Claim{Tenant: who})
		if !w.has() {
			t.Fatalf("%s waits for a slot that is free", who)
		}
		clock.pass(d)
		w.slot.Release()
	}
	use("away", time.Second)
	for range 100 {
		use("busy", time.Second)
	}
	holder := s.join(Claim{Tenant: "busy"})
	away := []*waiter{s.join(Claim{Tenant: "away"}), s.join(Claim{Tenant: "away"})}
	busy := s.join(Claim{Tenant: "busy"})
	clock.pass(time.Second / 2)
	holder.slot.Release()
	clock.pass(time.Second)
	away[0].slot.Release()
	if !busy.has() {
		t.Error("a tenant that was away has saved time up")
	}
	clock.pass(10 * time.Second)
	busy.slot.Release()
	back := s.join(Claim{Tenant: "busy"})
	late := s.join(Claim{Tenant: "late"})
	clock.pass(time.Second)
	away[1].slot.Release()
	if !late.has() || back.has() {
		t.Error("a tenant that owes time is before one that has just come")
	}
}

// TestGivingUpLosesNoSlot: a caller that gives up loses no slot, even if it gets one at
// that moment, and a slot released twice counts once.
func TestGivingUpLosesNoSlot(t *testing.T) {
	s, _ := newScheduler(1)
	first := s.join(Claim{Tenant: "a"})
	given, waits := s.join(Claim{Tenant: "b"}), s.join(Claim{Tenant: "b"})
	ctx, cancel := context.WithCancel(For(t.Context(), Claim{Tenant: "c"}))
	cancel()
	if _, err := s.Acquire(ctx); !errors.Is(err, context.Canceled) {
		t.Fatalf("after giving up: %v", err)
	}
	first.slot.Release()
	first.slot.Release()
	if !given.has() || waits.has() {
		t.Fatal("a slot that was released twice is two")
	}
	s.leave(given) // too late: it has the slot
	if !waits.has() {
		t.Fatal("the slot of a caller that gave up is lost")
	}
	waits.slot.Release()
	if s.free != 1 {
		t.Errorf("%d slots are free, want 1", s.free)
	}
}

// TestSchedulerConcurrentCalls: never more slots are held than there are, and in the end all are free,
// whatever callers do.
func TestSchedulerConcurrentCalls(t *testing.T) {
	const n = 3
	s := New(n)
	var at atomic.Int64
	var all sync.WaitGroup
	for who := range 8 {
		for range 4 {
			all.Go(func() {
				for i := range 500 {
					ctx, cancel := context.WithCancel(For(t.Context(), Claim{Tenant: strconv.Itoa(who), Weight: float64(who)}))
					if rand.N(4) == 0 {
						go cancel()
					}
					slot, err := s.Acquire(ctx)
					if err == nil {
						if at.Add(1) > n {
							t.Errorf("more than %d slots at once, in round %d", n, i)
						}
						at.Add(-1)
						slot.Release()
					}
					cancel()
				}
			})
		}
	}
	all.Wait()
	if s.free != n || s.next() != nil || len(s.waiting) != 0 {
		t.Errorf("%d slots are free, want %d; %d tenants wait", s.free, n, len(s.waiting))
	}
}

// TestOneTenantHoldsItsSlotsAtMost: with a bound for each tenant, a free slot goes to the
// next tenant below its bound.
func TestOneTenantHoldsItsSlotsAtMost(t *testing.T) {
	s := New(3, 1)
	first, second := s.join(Claim{Tenant: "storm"}), s.join(Claim{Tenant: "storm"})
	good := s.join(Claim{Tenant: "good"})
	if !first.has() || second.has() || !good.has() {
		t.Fatal("a tenant holds two slots, or another one waits for it")
	}
	good.slot.Release()
	if second.has() {
		t.Error("another tenant's slot went to one that has all it may")
	}
	first.slot.Release()
	if !second.has() {
		t.Error("a tenant that has released its slot does not get the next one")
	}
}

// TestBoundedClaimsOfATenantHaveAQueueOfTheirOwn: work within Most delays neither
// the tenant's other calls nor other tenants' calls, and a crowd is refused.
func TestBoundedClaimsOfATenantHaveAQueueOfTheirOwn(t *testing.T) {
	s := New(4)
	read, call := Claim{Tenant: "storm", Most: 2}, Claim{Tenant: "storm"}
	var reads []*waiter
	for range 10 {
		reads = append(reads, s.join(read))
	}
	first, second, third := s.join(call), s.join(call), s.join(call)
	if !reads[1].has() || reads[2].has() {
		t.Fatal("two of four slots are for reads")
	}
	if !first.has() || !second.has() || third.has() {
		t.Fatal("the calls of a tenant wait for its reads")
	}
	if held, waiting := s.Use("storm"); held != 4 || waiting != 9 {
		t.Errorf("%d held and %d waiting, want 4 and 9", held, waiting)
	}
	first.slot.Release()
	if reads[2].has() || !third.has() {
		t.Error("a read has the slot of a call")
	}
	reads[0].slot.Release()
	if !reads[2].has() {
		t.Error("the next read does not get the slot of the one before")
	}
	if s.join(Claim{Tenant: "storm", Crowd: 11}) != nil {
		t.Error("a caller is let in to a crowd")
	}
	if s.join(Claim{Tenant: "storm", Crowd: 12}) == nil {
		t.Error("a caller is refused without a crowd")
	}
}

// TestIdleTenantsAreForgotten: however many tenants come and go, those without callers are forgotten,
// and one that holds a slot, waits for one, or came a moment ago is not.
func TestIdleTenantsAreForgotten(t *testing.T) {
	s, clock := newScheduler(2)
	holder, waiter := s.join(Claim{Tenant: "holds", Most: 1}), s.join(Claim{Tenant: "holds", Most: 1})
	for i := range 10_000 {
		clock.pass(time.Second)
		s.join(Claim{Tenant: strconv.Itoa(i)}).slot.Release()
	}
	if n := len(s.tenants); n > 2*600+200 {
		t.Errorf("%d tenants are remembered", n)
	}
	if s.tenants["9999"] == nil || s.tenants["9900"] == nil {
		t.Error("a tenant is forgotten that came a moment ago")
	}
	holder.slot.Release()
	if !waiter.has() {
		t.Error("a tenant with callers is forgotten")
	}
	if held, waiting := s.Use("holds"); held != 1 || waiting != 0 {
		t.Errorf("%d held and %d waiting, want 1 and 0", held, waiting)
	}
}
