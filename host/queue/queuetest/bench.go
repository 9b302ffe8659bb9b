package queuetest

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/eventlog/logtest"
	"github.com/starling-host/starling/host/queue"
)

// Bench measures runs that are enqueued with their first event by as many callers
// as there are workers, handed out, ended by their last event, and removed. All of
// it is durable.
func Bench(b *testing.B, open Opener, address string, workers int) {
	h := open.at(address)(b, queue.Config{Workers: workers})
	var taken atomic.Int64
	b.ResetTimer()
	worked, took, err := h.Ending(workers).Run(b.Context(), func() bool { return taken.Add(1) <= int64(b.N) })
	b.StopTimer()
	if err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(float64(worked)/took.Seconds(), "runs/s")
}

// Flow is runs that callers enqueue and workers work, both as fast as they can.
type Flow struct {
	Queue   queue.Queue
	Callers int

	// Opening returns the first event of a run, and what its job carries.
	Opening func(runID string) (first event.Event, payload []byte, err error)

	// Handler works a job. An error ends the flow.
	Handler queue.Handler
}

// Ending returns the flow of runs that begin and end, and have no other events.
func (h Host) Ending(callers int) Flow {
	fenced := h.Log.(eventlog.Fencer)
	return Flow{
		Queue: h.Queue, Callers: callers,
		Opening: func(runID string) (event.Event, []byte, error) { return First(runID), nil, nil },
		Handler: func(ctx context.Context, l queue.Lease) error {
			c := logtest.Chain{RunID: l.RunID}
			c.Start("goal")
			log := fenced.Fenced(l.RunID, l.Epoch)
			if err := log.Append(ctx, l.RunID, c.Complete()); err != nil {
				return err
			}
			return log.Sync(ctx, l.RunID)
		},
	}
}

// Run enqueues as long as there are more, waits until all of it is worked, and
// returns how many runs that was and how long it took. One run comes before all that
// and is not counted: when it is worked, the workers are awake.
func (f Flow) Run(ctx context.Context, more func() bool) (worked int, took time.Duration, err error) {
	ctx, fail := context.WithCancelCause(ctx)
	var open, working sync.WaitGroup // jobs that were enqueued; the call of Work
	defer working.Wait()
	defer fail(nil)
	working.Go(func() {
		if err := f.Queue.Work(ctx, f.handler(fail, open.Done)); err != nil {
			fail(err)
		}
	})
	var enqueued atomic.Int64
	flow := func(f Flow, more func() bool) {
		idle := make(chan struct{})
		go func() {
			defer close(idle)
			f.enqueue(ctx, fail, more, func() { open.Add(1); enqueued.Add(1) })
			open.Wait()
		}()
		select {
		case <-idle:
		case <-ctx.Done():
		}
	}
	first := f
	first.Callers = 1
	flow(first, func() bool { return enqueued.Load() == 0 })
	began := time.Now()
	flow(f, more)
	return int(enqueued.Load()) - 1, time.Since(began), context.Cause(ctx)
}

// handler counts what the flow's handler has worked.
func (f Flow) handler(fail func(error), done func()) queue.Handler {
	return func(ctx context.Context, l queue.Lease) error {
		if err := f.Handler(ctx, l); err != nil {
			fail(fmt.Errorf("run %s: %w", l.RunID, err))
			return err
		}
		done()
		return nil
	}
}

// enqueue lets the callers enqueue runs of ten tenants, each of which it tells of
// beforehand.
func (f Flow) enqueue(ctx context.Context, fail func(error), more func() bool, told func()) {
	var callers sync.WaitGroup
	for i := range f.Callers {
		callers.Go(func() {
			for n := i; more() && ctx.Err() == nil; n++ {
				tenant := fmt.Sprintf("t%d", n%10)
				j := queue.Job{RunID: tenant + "/" + event.NewID(), Tenant: tenant}
				first, payload, err := f.Opening(j.RunID)
				if err != nil {
					fail(err)
					return
				}
				j.Payload = payload
				told()
				if err := f.Queue.Enqueue(ctx, j, first); err != nil {
					fail(err)
				}
			}
		})
	}
	callers.Wait()
}
