package queuetest

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/starling-host/starling/serve/queue"
)

// order works all jobs with one worker and returns them in the order in which they
// were handed out.
func order(t testing.TB, h Host, n int) (runs []string, tenants []string) {
	t.Helper()
	told := make(chan queue.Lease, n)
	stop := work(t, h, ender(h, told))
	for range n {
		l := receive(t, told)
		runs, tenants = append(runs, l.RunID), append(tenants, l.Tenant)
	}
	stop()
	return runs, tenants
}

func oneWorker(limits func(string) queue.Limits) queue.Config {
	return queue.Config{Workers: 1, Poll: 5 * time.Millisecond, Limits: limits}
}

func priorities(t *testing.T, db Database) {
	h := db(t, oneWorker(nil))
	enqueue(t, h, queue.Job{RunID: "c"}, queue.Job{RunID: "d"}, queue.Job{RunID: "e", Priority: -1},
		queue.Job{RunID: "b", Priority: 1}, queue.Job{RunID: "a", Priority: 9})
	if runs, _ := order(t, h, 5); !slices.Equal(runs, []string{"a", "b", "c", "d", "e"}) {
		t.Errorf("handed out as %v", runs)
	}
}

// fairness lets a tenant enqueue a hundred jobs of the highest priority before
// another one enqueues five.
func fairness(t *testing.T, db Database) {
	h := db(t, oneWorker(nil))
	flood := series("flood", 100)
	for i := range flood {
		flood[i].Priority = 1000
	}
	enqueue(t, h, flood...)
	enqueue(t, h, series("good", 5)...)
	_, tenants := order(t, h, 105)
	for i, at := 0, 0; i < 5; i++ {
		at += slices.Index(tenants[at:], "good") + 1
		if at > 2*(i+1) {
			t.Errorf("job %d of the good tenant was job %d of all", i+1, at)
		}
	}
}

// latecomer has a tenant enqueue when another one has had many jobs worked already.
func latecomer(t *testing.T, db Database) {
	h := db(t, oneWorker(nil))
	early := series("early", 60)
	enqueue(t, h, early[:30]...)
	order(t, h, 30)
	enqueue(t, h, early[30:]...)
	enqueue(t, h, series("late", 30)...)
	_, tenants := order(t, h, 60)
	late := 0
	for _, tenant := range tenants[:30] {
		if tenant == "late" {
			late++
		}
	}
	if late < 14 || late > 16 {
		t.Errorf("%d of 30 jobs were of the tenant that came late", late)
	}
}

func weights(t *testing.T, db Database) {
	h := db(t, oneWorker(func(tenant string) queue.Limits {
		return queue.Limits{Weight: map[string]float64{"one": 1, "three": 3}[tenant]}
	}))
	enqueue(t, h, series("one", 40)...)
	enqueue(t, h, series("three", 40)...)
	_, tenants := order(t, h, 80)
	n := 0
	for _, tenant := range tenants[:40] {
		if tenant == "three" {
			n++
		}
	}
	if n < 29 || n > 31 {
		t.Errorf("%d of 40 jobs were of the tenant of weight three", n)
	}
}

func caps(t *testing.T, db Database) {
	limits := func(tenant string) queue.Limits {
		if tenant == "capped" {
			return queue.Limits{MaxRunning: 2}
		}
		return queue.Limits{}
	}
	cfg := quick()
	cfg.Limits = limits
	a, b := db(t, cfg), db(t, cfg)
	enqueue(t, a, series("capped", 12)...)
	enqueue(t, a, series("free", 12)...)
	told, wake := make(chan queue.Lease, 24), make(chan bool)
	for _, h := range []Host{a, b} {
		work(t, h, func(_ context.Context, l queue.Lease) error {
			told <- l
			await(t, wake)
			return nil
		})
	}
	capped := 0
	for range 14 { // all of the free ones, and two
		if receive(t, told).Tenant == "capped" {
			capped++
		}
	}
	loads, err := a.Loads(t.Context())
	s := loads["capped"]
	if err != nil || capped != 2 || s.Running != 2 || s.Waiting != 10 {
		t.Errorf("%d were handed out: %+v, %v", capped, s, err)
	}
	close(wake)
	for range 10 {
		receive(t, told)
	}
	absent(t, b, "capped/0011")
}

// reserve has two tenants whose jobs do not end, and others that come later. Of 16
// handlers two are kept for those.
func reserve(t *testing.T, db Database) {
	cfg := quick()
	cfg.Workers = 16
	h := db(t, cfg)
	enqueue(t, h, series("flood", 20)...)
	enqueue(t, h, series("spate", 20)...)
	told, wake := make(chan queue.Lease, 44), make(chan bool)
	work(t, h, func(_ context.Context, l queue.Lease) error {
		told <- l
		await(t, wake)
		return nil
	})
	for range 14 {
		receive(t, told)
	}
	for _, late := range []string{"late", "later"} {
		enqueue(t, h, series(late, 2)...)
		if l := receive(t, told); l.Tenant != late {
			t.Errorf("a handler that is kept went to %s", l.RunID)
		}
	}
	if s, err := h.Stats(t.Context()); err != nil || s.Running != 16 || s.Waiting != 28 {
		t.Errorf("%+v, %v", s, err)
	}
	close(wake)
	for range 28 {
		receive(t, told)
	}
}

// paused lets a tenant go on while a host is at work, which finds that out as it
// renews its lease.
func paused(t *testing.T, db Database) {
	clock := NewClock()
	var pause atomic.Bool
	pause.Store(true)
	limits := func(tenant string) queue.Limits { return queue.Limits{Paused: pause.Load() && tenant == "p"} }
	h := db(t, queue.Config{Limits: limits, Clock: clock, Lease: forever})
	enqueue(t, h, queue.Job{RunID: "p/1", Tenant: "p"}, queue.Job{RunID: "q/1", Tenant: "q"})
	told := make(chan queue.Lease, 2)
	work(t, h, ender(h, told))
	receive(t, told)
	absent(t, h, "q/1")
	if s := find(t, h, "p/1"); s.State != queue.Waiting || len(told) > 0 {
		t.Errorf("%+v", s)
	}
	pause.Store(false)
	clock.AdvanceUntil(t, forever/1000, func() bool { return len(told) > 0 })
	ended(t, h, queue.Job{RunID: "p/1"})
}

func full(t *testing.T, db Database) {
	h := db(t, queue.Config{MaxWaiting: 5, Limits: func(string) queue.Limits { return queue.Limits{MaxWaiting: 3} }})
	enqueue(t, h, series("a", 3)...)
	refuse := func(j queue.Job, want error) {
		t.Helper()
		err := h.Enqueue(t.Context(), j, Append(j.RunID, First(j.RunID)))
		var fe *queue.FullError
		if !errors.Is(err, want) || !errors.As(err, &fe) || fe.After < time.Second || fe.After > 5*time.Minute {
			t.Errorf("%v, want %v", err, want)
		}
	}
	refuse(queue.Job{RunID: "a/4", Tenant: "a"}, queue.ErrTenantFull)
	enqueue(t, h, series("b", 2)...)
	refuse(queue.Job{RunID: "b/4", Tenant: "b"}, queue.ErrFull)
	told := make(chan queue.Lease, 5)
	stop := work(t, h, ender(h, told))
	for _, j := range append(series("a", 3), series("b", 2)...) {
		absent(t, h, j.RunID)
	}
	stop()
	enqueue(t, h, queue.Job{RunID: "a/4", Tenant: "a"})
}

func positions(t *testing.T, db Database) {
	h := db(t, queue.Config{})
	enqueue(t, h, series("a", 3)...)
	enqueue(t, h, series("b", 2)...)
	enqueue(t, h, queue.Job{RunID: "a/first", Tenant: "a", Priority: 1})
	for run, want := range map[string]int{"a/first": 0, "a/0000": 1, "a/0002": 3, "b/0000": 0, "b/0001": 1} {
		if s := find(t, h, run); s.Position != want {
			t.Errorf("%s is at %d, want %d", run, s.Position, want)
		}
	}
	all, err := h.Stats(t.Context())
	loads, loadsErr := h.Loads(t.Context())
	own, none := loads["b"], loads["c"]
	if all.Waiting != 6 || own.Waiting != 2 || none != (queue.Stats{}) || err != nil || loadsErr != nil {
		t.Errorf("%+v, %+v, %+v, %v, %v", all, own, none, err, loadsErr)
	}
	if first := find(t, h, "a/0000"); !all.Oldest.Equal(first.Enqueued) || !own.Oldest.After(all.Oldest) {
		t.Errorf("the oldest are from %v and %v", all.Oldest, own.Oldest)
	}
}
