package queuetest

import (
	"context"
	"testing"
	"time"

	"github.com/starling-host/starling/serve/queue"
)

func shutdown(t *testing.T, db Database) {
	h := db(t, queue.Config{Workers: 4, Poll: 5 * time.Millisecond, Grace: time.Hour})
	jobs := series("t", 20)
	enqueue(t, h, jobs...)
	began, wake := make(chan queue.Lease, 20), make(chan bool)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- h.Work(ctx, func(ctx context.Context, l queue.Lease) error {
			began <- l
			await(t, wake)
			return End(ctx, h.Log, l)
		})
	}()
	for range 4 {
		receive(t, began)
	}
	cancel()
	close(wake)
	if err := receive(t, done); err != nil {
		t.Error(err)
	}
	s, err := h.Stats(t.Context())
	if err != nil || s.Running != 0 || s.Waiting+len(began)+4 != 20 {
		t.Errorf("%+v, %d began after the first four, %v", s, len(began), err)
	}
	work(t, h, ender(h, make(chan queue.Lease, 20)))
	ended(t, h, jobs...)
}

func shutdownStuck(t *testing.T, db Database) {
	h := db(t, queue.Config{Poll: 5 * time.Millisecond, Grace: time.Millisecond})
	enqueue(t, h, queue.Job{RunID: "t/1"})
	told, causes := make(chan queue.Lease, 1), make(chan error, 1)
	stop := work(t, h, untilCancelled(told, causes))
	receive(t, told)
	stop()
	if cause := receive(t, causes); cause != queue.ErrStopping {
		t.Errorf("the context ended with %v", cause)
	}
	if s := find(t, h, "t/1"); s.State != queue.Waiting || s.Attempt != 0 {
		t.Errorf("%+v", s)
	}
	work(t, h, ender(h, told))
	if l := receive(t, told); l.Attempt != 1 {
		t.Errorf("%+v", l)
	}
}

// shutdownDeaf has a handler that does not look at its context.
func shutdownDeaf(t *testing.T, db Database) {
	h := db(t, queue.Config{Poll: 5 * time.Millisecond, Grace: time.Millisecond})
	j := queue.Job{RunID: "t/1"}
	enqueue(t, h, j)
	began, wake, late := make(chan queue.Lease, 1), make(chan bool), make(chan error, 1)
	stop := work(t, h, func(_ context.Context, l queue.Lease) error {
		began <- l
		await(t, wake)
		late <- End(context.Background(), h.Log, l)
		return nil
	})
	receive(t, began)
	stop()
	if s := find(t, h, j.RunID); s.State != queue.Waiting {
		t.Errorf("%+v", s)
	}
	told := make(chan queue.Lease, 1)
	work(t, h, ender(h, told))
	receive(t, told)
	close(wake)
	if err := receive(t, late); err != nil { // it has seen that the run has ended
		t.Error(err)
	}
	ended(t, h, j)
}
