package turns

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

// clock is a line's clock, which stands still unless the test moves it.
type clock struct{ time.Time }

func (c *clock) pass(d time.Duration) { c.Time = c.Add(d) }

// newLine returns a line of n turns and its clock.
func newLine(n int) (*Line, *clock) {
	l, c := New(n), &clock{time.Unix(0, 0)}
	l.now = func() time.Time { return c.Time }
	return l, c
}

// has reports whether a call has its turn.
func (w *waiter) has() bool {
	select {
	case <-w.ready:
		return true
	default:
		return false
	}
}

// TestWhoUsedLeastIsNext: a tenant that comes later than all calls of a flood waits for
// the end of one turn, and then for its own share.
func TestWhoUsedLeastIsNext(t *testing.T) {
	l, clock := newLine(1)
	var flood []*waiter
	for range 10 {
		flood = append(flood, l.join(Claim{Tenant: "flood"}))
	}
	if !flood[0].has() || flood[1].has() {
		t.Fatal("of a line of one turn not one is given")
	}
	clock.pass(time.Second)
	first := l.join(Claim{Tenant: "good"})
	second := l.join(Claim{Tenant: "good"})
	flood[0].turn.End()
	if !first.has() {
		t.Fatal("who has used nothing stands behind who has")
	}
	clock.pass(2 * time.Second)
	first.turn.End()
	if second.has() || !flood[1].has() {
		t.Error("who has used more is before who has used less")
	}
}

// TestTimeIsDividedByWeight: tenants that always have calls waiting get time in the
// relation of their weights, however long their turns are and however many wait.
func TestTimeIsDividedByWeight(t *testing.T) {
	for _, n := range []int{1, 3} {
		l, clock := newLine(n)
		claims := []Claim{{"short", 1}, {"long", 1}, {"heavy", 3}}
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
				waiting = append(waiting, running{l.join(c), i, time.Time{}})
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
			waiting = append(waiting, running{l.join(claims[done.who]), done.who, time.Time{}})
			done.turn.End()
		}
		all := float64(n) * 60
		for i, want := range []float64{0.2, 0.2, 0.6} {
			if have := got[i].Seconds() / all; have < want-0.01 || have > want+0.01 {
				t.Errorf("%d turns: %s has %.3f of the time, want %.1f", n, claims[i].Tenant, have, want)
			}
		}
	}
}

// TestNothingIsSavedUpAndDebtsStay: a tenant that was away for long takes turns with
// those that were not, and one that leaves for a moment comes back with what it owes.
func TestNothingIsSavedUpAndDebtsStay(t *testing.T) {
	l, clock := newLine(1)
	use := func(who string, d time.Duration) {
		w := l.join(Claim{Tenant: who})
		if !w.has() {
			t.Fatalf("%s waits for a turn that is free", who)
		}
		clock.pass(d)
		w.turn.End()
	}
	use("away", time.Second)
	for range 100 {
		use("busy", time.Second)
	}
	holder := l.join(Claim{Tenant: "busy"})
	away := []*waiter{l.join(Claim{Tenant: "away"}), l.join(Claim{Tenant: "away"})}
	busy := l.join(Claim{Tenant: "busy"})
	clock.pass(time.Second / 2)
	holder.turn.End()
	clock.pass(time.Second)
	away[0].turn.End()
	if !busy.has() {
		t.Error("a tenant that was away has saved turns up")
	}
	clock.pass(10 * time.Second)
	busy.turn.End()
	back := l.join(Claim{Tenant: "busy"})
	late := l.join(Claim{Tenant: "late"})
	clock.pass(time.Second)
	away[1].turn.End()
	if !late.has() || back.has() {
		t.Error("a tenant that owes time is before one that has just come")
	}
}

// TestWhoLeavesLosesNothing: who gives up costs nobody a turn, not even when the turn
// is given at that moment, and a turn that is ended twice is one turn.
func TestWhoLeavesLosesNothing(t *testing.T) {
	l, _ := newLine(1)
	first := l.join(Claim{Tenant: "a"})
	given, waits := l.join(Claim{Tenant: "b"}), l.join(Claim{Tenant: "b"})
	ctx, cancel := context.WithCancel(For(t.Context(), Claim{Tenant: "c"}))
	cancel()
	if _, err := l.Take(ctx); !errors.Is(err, context.Canceled) {
		t.Fatalf("who has given up: %v", err)
	}
	first.turn.End()
	first.turn.End()
	if !given.has() || waits.has() {
		t.Fatal("a turn that was ended twice is two")
	}
	l.leave(given) // too late: it has the turn
	if !waits.has() {
		t.Fatal("the turn of one who has left is lost")
	}
	waits.turn.End()
	if l.free != 1 {
		t.Errorf("%d turns are free, want 1", l.free)
	}
}

// TestManyAtOnce: never more turns than there are, and in the end all of them, whoever
// comes, works and gives up.
func TestManyAtOnce(t *testing.T) {
	const n = 3
	l := New(n)
	var at atomic.Int64
	var all sync.WaitGroup
	for who := range 8 {
		for range 4 {
			all.Go(func() {
				for i := range 500 {
					ctx, cancel := context.WithCancel(For(t.Context(), Claim{strconv.Itoa(who), float64(who)}))
					if rand.N(4) == 0 {
						go cancel()
					}
					turn, err := l.Take(ctx)
					if err == nil {
						if at.Add(1) > n {
							t.Errorf("more than %d turns at once, in round %d", n, i)
						}
						at.Add(-1)
						turn.End()
					}
					cancel()
				}
			})
		}
	}
	all.Wait()
	if l.free != n || l.next() != nil || len(l.waiting) != 0 {
		t.Errorf("%d turns are free, want %d; %d tenants wait", l.free, n, len(l.waiting))
	}
}
