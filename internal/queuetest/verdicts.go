package queuetest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/starling-host/starling/runtime/tool"
	"github.com/starling-host/starling/serve/queue"
)

// verdicts returns a handler that tells of each lease and returns what it is told.
func verdicts(t testing.TB, told chan<- queue.Lease, verdict <-chan error) queue.Handler {
	return func(_ context.Context, l queue.Lease) error {
		told <- l
		select {
		case err := <-verdict:
			return err
		case <-t.Context().Done():
			return nil
		}
	}
}

// exchange is how a test talks to that handler.
type exchange struct {
	told    chan queue.Lease
	verdict chan error
}

func converse(t testing.TB, h Host) exchange {
	x := exchange{make(chan queue.Lease, 1), make(chan error, 1)}
	work(t, h, verdicts(t, x.told, x.verdict))
	return x
}

func snoozes(t *testing.T, db Database) {
	clock := NewClock()
	h := db(t, queue.Config{Clock: clock, Lease: forever})
	enqueue(t, h, queue.Job{RunID: "t/1", MaxAttempts: 1})
	x := converse(t, h)
	for i := range 4 {
		clock.AdvanceUntil(t, time.Second, func() bool { return len(x.told) > 0 })
		if l := receive(t, x.told); l.Attempt != 1 || l.Snoozes != i || l.Exhausted {
			t.Errorf("lease %d is %+v", i, l)
		}
		if i == 3 {
			break
		}
		now := clock.Now()
		x.verdict <- tool.ToolSnooze(time.Minute, errors.New("busy"))
		if s := sleeps(t, h, "t/1"); !s.Until.Equal(now.Add(time.Minute)) {
			t.Errorf("due %v, %v after", s.Until, s.Until.Sub(now))
		}
	}
	x.verdict <- nil
	absent(t, h, "t/1")
}

func retries(t *testing.T, db Database) {
	clock := NewClock()
	h := db(t, queue.Config{Clock: clock, Lease: forever})
	enqueue(t, h, queue.Job{RunID: "t/1", MaxAttempts: 3})
	x := converse(t, h)
	for i, delay := range []time.Duration{1 * time.Second, 16 * time.Second, 81 * time.Second, 256 * time.Second, 0} {
		clock.AdvanceUntil(t, delay/10+time.Second, func() bool { return len(x.told) > 0 })
		l := receive(t, x.told)
		if l.Attempt != i+1 || l.Exhausted != (i >= 3) || (l.Failure == "it failed") != (i > 0) {
			t.Errorf("lease %d is %+v", i, l)
		}
		if delay == 0 {
			break
		}
		now := clock.Now()
		x.verdict <- errors.New("it failed")
		s := sleeps(t, h, "t/1")
		if after := s.Until.Sub(now); after < delay*9/10 || after > delay*11/10 {
			t.Errorf("attempt %d is followed by %v, want about %v", i+1, after, delay)
		}
	}
	x.verdict <- nil
	absent(t, h, "t/1")
}

func panics(t *testing.T, db Database) {
	h := db(t, quick())
	enqueue(t, h, queue.Job{RunID: "t/1"})
	work(t, h, func(context.Context, queue.Lease) error { panic("a mistake") })
	if s := sleeps(t, h, "t/1"); s.LastError.Message != "queue: the handler panicked: a mistake" {
		t.Errorf("%+v", s)
	}
}

func final(t *testing.T, db Database) {
	h := db(t, quick())
	x := converse(t, h)
	for _, err := range []error{tool.ToolDiscard(errors.New("never")), tool.ToolCancel(errors.New("no"))} {
		enqueue(t, h, queue.Job{RunID: err.Error()})
		receive(t, x.told)
		x.verdict <- err
		absent(t, h, err.Error())
	}
}
