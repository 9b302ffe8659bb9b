package queuetest

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/starling-host/starling/runtime/tool"
	"github.com/starling-host/starling/serve/queue"
)

func cancelWaiting(t *testing.T, db Database) {
	var paused atomic.Bool
	cfg := quick()
	cfg.Limits = func(string) queue.Limits { return queue.Limits{Paused: paused.Load()} }
	h := db(t, cfg)
	x := converse(t, h)
	enqueue(t, h, queue.Job{RunID: "sleeping"})
	receive(t, x.told)
	x.verdict <- tool.ToolSnooze(time.Hour, errors.New("busy"))
	sleeps(t, h, "sleeping")
	cancel(t, h, "sleeping")
	if l := receive(t, x.told); !l.Cancelled || l.RunID != "sleeping" {
		t.Errorf("%+v", l)
	}
	x.verdict <- nil
	absent(t, h, "sleeping")

	paused.Store(true)
	enqueue(t, h, queue.Job{RunID: "ready"})
	cancel(t, h, "ready")
	if l := receive(t, x.told); !l.Cancelled || l.RunID != "ready" {
		t.Errorf("%+v", l)
	}
	x.verdict <- nil
	absent(t, h, "ready")
}

func cancel(t testing.TB, h Host, runID string) {
	t.Helper()
	if err := h.Cancel(t.Context(), runID); err != nil {
		t.Fatal(err)
	}
}

// untilCancelled tells of each lease and, unless it was cancelled before, waits for
// the end of the context and tells of its cause.
func untilCancelled(told chan<- queue.Lease, causes chan<- error) queue.Handler {
	return func(ctx context.Context, l queue.Lease) error {
		told <- l
		if l.Cancelled {
			return nil
		}
		<-ctx.Done()
		causes <- context.Cause(ctx)
		return ctx.Err()
	}
}

func cancelRunning(t *testing.T, db Database) {
	h := db(t, quick())
	cancelFrom(t, h, h)
}

func cancelElsewhere(t *testing.T, db Database) { cancelFrom(t, db(t, quick()), db(t, quick())) }

// cancelFrom cancels on host b what host a runs. The handler fails, so that the job
// comes back at once to be ended.
func cancelFrom(t *testing.T, a, b Host) {
	told, causes := make(chan queue.Lease, 1), make(chan error, 1)
	work(t, a, untilCancelled(told, causes))
	enqueue(t, a, queue.Job{RunID: "t/1"})
	receive(t, told)
	cancel(t, b, "t/1")
	if cause := receive(t, causes); cause != queue.ErrCancelled {
		t.Errorf("the context ended with %v", cause)
	}
	if l := receive(t, told); !l.Cancelled || l.Attempt != 2 {
		t.Errorf("%+v", l)
	}
	absent(t, b, "t/1")
}

func cancelNothing(t *testing.T, db Database) {
	h := db(t, quick())
	x := converse(t, h)
	if err := h.Cancel(t.Context(), "t/1"); !errors.Is(err, queue.ErrNotFound) {
		t.Errorf("before: %v", err)
	}
	enqueue(t, h, queue.Job{RunID: "t/1"})
	receive(t, x.told)
	x.verdict <- nil
	absent(t, h, "t/1")
	if err := h.Cancel(t.Context(), "t/1"); !errors.Is(err, queue.ErrNotFound) {
		t.Errorf("after: %v", err)
	}
}
