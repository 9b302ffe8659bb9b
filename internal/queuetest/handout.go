package queuetest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/serve/queue"
)

func durable(t *testing.T, db Database) {
	a, b := db(t, queue.Config{}), db(t, queue.Config{})
	j := queue.Job{RunID: "t/1", Tenant: "t", Priority: -3, MaxAttempts: 7, Payload: []byte("how")}
	enqueue(t, a, j)
	s := find(t, b, j.RunID)
	if s.State != queue.Waiting || s.Tenant != "t" || s.Priority != -3 || s.MaxAttempts != 7 || s.Attempt != 0 {
		t.Errorf("%+v", s)
	}
	if evs, err := b.Log.Read(t.Context(), j.RunID); err != nil || len(evs) != 1 {
		t.Errorf("%d events, %v", len(evs), err)
	}
	told := make(chan queue.Lease, 1)
	work(t, b, ender(b, told))
	if l := receive(t, told); string(l.Payload) != "how" {
		t.Errorf("%+v", l)
	}
}

func refused(t *testing.T, db Database) {
	h := db(t, queue.Config{})
	enqueue(t, h, queue.Job{RunID: "there"})
	if err := h.Enqueue(t.Context(), queue.Job{RunID: "there"}, nil); !errors.Is(err, queue.ErrExists) {
		t.Errorf("a second job of a run: %v", err)
	}
	wrong := First("another")
	if err := h.Enqueue(t.Context(), queue.Job{RunID: "new"}, Append("new", wrong)); !errors.Is(err, eventlog.ErrInvalidAppend) {
		t.Errorf("an event of another run: %v", err)
	}
	mistake := errors.New("a mistake")
	if err := h.Enqueue(t.Context(), queue.Job{RunID: "new"}, func(eventlog.Tx) error { return mistake }); err != mistake {
		t.Errorf("Enqueue returns %v", err)
	}
	for _, j := range []queue.Job{{}, {RunID: "new", MaxAttempts: -1}, {RunID: "\xff"}, {RunID: "new", Tenant: "\x00"}, {RunID: "new", Payload: make([]byte, queue.MaxPayloadBytes+1)}} {
		if err := h.Enqueue(t.Context(), j, nil); err == nil {
			t.Errorf("%.80v was taken", j)
		}
	}
	if _, err := h.Find(t.Context(), "new"); !errors.Is(err, queue.ErrNotFound) {
		t.Errorf("Find: %v", err)
	}
	if s, err := h.Stats(t.Context()); err != nil || s.Waiting != 1 {
		t.Errorf("%+v, %v", s, err)
	}
}

// neighbours enqueues jobs of which every other one cannot be, all at once, so that
// they meet in a transaction.
func neighbours(t *testing.T, db Database) {
	h := db(t, queue.Config{})
	jobs := series("t", 40)
	errs := make([]chan error, len(jobs))
	for i, j := range jobs {
		errs[i] = make(chan error, 1)
		go func() {
			ev := First(j.RunID)
			if i%2 == 1 {
				ev.Seq = 2
			}
			errs[i] <- h.Enqueue(context.Background(), j, Append(j.RunID, ev))
		}()
	}
	for i := range jobs {
		if err := receive(t, errs[i]); errors.Is(err, eventlog.ErrInvalidAppend) != (i%2 == 1) {
			t.Errorf("job %d: %v", i, err)
		}
	}
	if s, err := h.Loads(t.Context()); err != nil || s["t"].Waiting != len(jobs)/2 {
		t.Errorf("%+v, %v", s, err)
	}
}

func once(t *testing.T, db Database) {
	const n = 240
	hosts := []Host{db(t, quick()), db(t, quick()), db(t, quick())}
	told := make(chan queue.Lease, 2*n)
	for _, h := range hosts {
		work(t, h, ender(h, told))
	}
	jobs := series("t", n)
	for i, j := range jobs {
		enqueue(t, hosts[i%3], j)
	}
	handed := make(map[string]int)
	for range n {
		handed[receive(t, told).RunID]++
	}
	ended(t, hosts[0], jobs...)
	if len(handed) != n || len(told) > 0 {
		t.Errorf("%d of %d jobs were handed out, %d of them again", len(handed), n, len(told))
	}
}

// zombie lets host a sleep through its lease: its clock stands still. It wakes while
// its successor is at work, whose end of the run alone may count.
func zombie(t *testing.T, db Database) {
	still, clock := NewClock(), NewClock()
	a := db(t, queue.Config{Clock: still, Workers: 1}) // so that it takes nothing else
	b := db(t, queue.Config{Clock: clock, Lease: forever})
	j := queue.Job{RunID: "t/1"}
	enqueue(t, a, j)
	began, wake, late := make(chan queue.Lease, 1), make(chan bool), make(chan error, 1)
	stopA := work(t, a, func(ctx context.Context, l queue.Lease) error {
		began <- l
		await(t, wake)
		late <- End(context.Background(), a.Log, l)
		return nil
	})
	first := receive(t, began)
	told, end := make(chan queue.Lease, 1), make(chan bool)
	work(t, b, func(ctx context.Context, l queue.Lease) error {
		told <- l
		await(t, end)
		return End(ctx, b.Log, l)
	})
	clock.AdvanceUntil(t, time.Second, func() bool { return len(told) > 0 })
	second := receive(t, told)
	if first.Attempt != 1 || second.Attempt != 1 || second.Stranded != 1 || second.Epoch <= first.Epoch || second.Failure != "" {
		t.Errorf("the leases are %+v and %+v", first, second)
	}
	close(wake)
	if err := receive(t, late); !errors.Is(err, eventlog.ErrFenced) {
		t.Errorf("the zombie's append: %v", err)
	}
	stopA() // its verdict, that the job is done, has been heard
	if s := find(t, b, j.RunID); s.State != queue.Running || s.Epoch != second.Epoch {
		t.Errorf("after the zombie's verdict: %+v", s)
	}
	close(end)
	ended(t, b, j)
}

func successor(t *testing.T, db Database) {
	clock := NewClock()                                           // which stands still: no lease ends
	a := db(t, queue.Config{Host: "h", Clock: clock, Workers: 1}) // so that it takes nothing else
	b := db(t, queue.Config{Host: "h", Clock: clock})
	j := queue.Job{RunID: "t/1"}
	enqueue(t, a, j)
	began, wake := make(chan queue.Lease, 1), make(chan bool)
	stopA := work(t, a, func(context.Context, queue.Lease) error {
		began <- queue.Lease{}
		await(t, wake)
		return errors.New("of no interest to anybody")
	})
	receive(t, began)
	told := make(chan queue.Lease, 2)
	stopB := work(t, b, ender(b, told))
	if l := receive(t, told); l.Attempt != 1 || l.Stranded != 1 {
		t.Errorf("%+v", l)
	}
	ended(t, b, j)
	stopB() // so that a cannot take its name back from it
	close(wake)
	stopA()
	if len(told) > 0 {
		t.Errorf("handed out again: %+v", <-told)
	}
}
