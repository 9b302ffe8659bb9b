package queuetest

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/logtest"
	"github.com/starling-host/starling/host/queue"
)

// Bench measures runs that are enqueued with their first event by as many callers
// as there are workers, handed out, ended by their last event, and removed. All of
// it is durable.
func Bench(b *testing.B, open Opener, address string, workers int) {
	h := open.at(address)(b, queue.Config{Workers: workers})
	fenced := h.Log.(eventlog.Fencer)
	var worked sync.WaitGroup
	worked.Add(b.N)
	work(b, h, func(ctx context.Context, l queue.Lease) error {
		c := logtest.Chain{RunID: l.RunID}
		c.Start("goal")
		log := fenced.Fenced(l.RunID, l.Epoch)
		err := log.Append(ctx, l.RunID, c.Complete())
		if err == nil {
			err = log.Sync(ctx, l.RunID)
		}
		if err != nil {
			b.Error(err)
		}
		worked.Done()
		return err
	})
	next := make(chan int)
	for range workers {
		go func() {
			for i := range next {
				j := queue.Job{RunID: fmt.Sprintf("t%d/%d", i%10, i), Tenant: fmt.Sprintf("t%d", i%10)}
				if err := h.Enqueue(context.Background(), j, First(j.RunID)); err != nil {
					b.Error(err)
				}
			}
		}()
	}
	b.ResetTimer()
	for i := range b.N {
		next <- i
	}
	close(next)
	worked.Wait()
	b.StopTimer()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "runs/s")
}
