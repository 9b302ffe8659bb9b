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
	"github.com/starling-host/starling/serve/queue"
)

// Bench measures runs that are enqueued with their first event by as many callers
// as there are workers, handed out, ended by their last event, and removed. All of
// it is durable.
func Bench(b *testing.B, open Opener, address string, workers int) {
	h := open.at(address)(b, queue.Config{Workers: workers})
	var taken atomic.Int64
	b.ResetTimer()
	worked, took, err := h.EmptyRuns(workers).Run(b.Context(), func() bool { return taken.Add(1) <= int64(b.N) })
	b.StopTimer()
	if err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(float64(worked)/took.Seconds(), "runs/s")
}

// BenchBacklog measures how runs are worked off that lie there already.
func BenchBacklog(b *testing.B, open Opener, address string, workers int) {
	h := open.at(address)(b, queue.Config{Workers: workers})
	took, err := h.EmptyRuns(workers).WorkOff(b.Context(), b.N)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(float64(b.N)/took.Seconds(), "runs/s")
}

// Flow is runs that callers enqueue and workers work, both as fast as they can.
type Flow struct {
	Queue   *queue.Queue
	Callers int

	// Opening returns the first event of a run, and what its job carries.
	Opening func(runID string) (first event.Event, payload []byte, err error)

	// Handler works a job. An error ends the flow.
	Handler queue.Handler
}

// EmptyRuns returns the flow of runs that have a first and a last event, and no others.
func (h Host) EmptyRuns(callers int) Flow {
	fenced := h.Log.(eventlog.Store)
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
	c := f.begin(ctx)
	stop := c.work()
	c.enqueue(1, func() bool { return c.enqueued.Load() == 0 })
	c.await()
	began := time.Now()
	c.enqueue(f.Callers, more)
	c.await()
	took = time.Since(began)
	return int(c.enqueued.Load()) - 1, took, stop()
}

// WorkOff enqueues that many runs while nobody works. It returns how long it takes from
// then on until they are worked and the workers have stopped, by when it is written
// down what became of each.
func (f Flow) WorkOff(ctx context.Context, runs int) (took time.Duration, err error) {
	c := f.begin(ctx)
	var taken atomic.Int64
	c.enqueue(f.Callers, func() bool { return taken.Add(1) <= int64(runs) })
	began := time.Now()
	stop := c.work()
	c.await()
	err = stop()
	return time.Since(began), err
}

// course is a flow that is under way.
type course struct {
	Flow
	ctx      context.Context // ends with the first error
	fail     context.CancelCauseFunc
	open     sync.WaitGroup // jobs that were enqueued and are not worked
	enqueued atomic.Int64
}

func (f Flow) begin(ctx context.Context) *course {
	c := &course{Flow: f}
	c.ctx, c.fail = context.WithCancelCause(ctx)
	return c
}

// work has jobs worked until stop is called, which waits for the workers and returns
// the first error of the course.
func (c *course) work() (stop func() error) {
	ctx, end := context.WithCancel(c.ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := c.Queue.Work(ctx, c.handle); err != nil {
			c.fail(err)
		}
	}()
	return func() error {
		end()
		<-ended
		defer c.fail(nil)
		return context.Cause(c.ctx)
	}
}

// await waits until what was enqueued is worked, or something has failed.
func (c *course) await() {
	idle := make(chan struct{})
	go func() {
		defer close(idle)
		c.open.Wait()
	}()
	select {
	case <-idle:
	case <-c.ctx.Done():
	}
}

// handle counts what the flow's handler has worked.
func (c *course) handle(ctx context.Context, l queue.Lease) error {
	if err := c.Handler(ctx, l); err != nil {
		c.fail(fmt.Errorf("run %s: %w", l.RunID, err))
		return err
	}
	c.open.Done()
	return nil
}

// enqueue lets callers enqueue runs of ten tenants as long as there are more.
func (c *course) enqueue(callers int, more func() bool) {
	var waiting sync.WaitGroup
	for i := range callers {
		waiting.Go(func() {
			for n := i; more() && c.ctx.Err() == nil; n++ {
				if err := c.add(fmt.Sprintf("t%d", n%10)); err != nil {
					c.fail(err)
				}
			}
		})
	}
	waiting.Wait()
}

// add enqueues a run of the tenant.
func (c *course) add(tenant string) error {
	j := queue.Job{RunID: tenant + "/" + event.NewID(), Tenant: tenant}
	first, payload, err := c.Opening(j.RunID)
	if err != nil {
		return err
	}
	j.Payload = payload
	c.open.Add(1)
	c.enqueued.Add(1)
	return c.Queue.Enqueue(c.ctx, j, Append(j.RunID, first))
}
