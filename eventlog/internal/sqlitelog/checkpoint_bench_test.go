package sqlitelog

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/eventlog/logtest"
)

// BenchmarkCommitBesideLongLogs measures how long one run waits for each small
// event to be durable while other runs of 64 KiB are stored: as many a second as
// on a busy host, or as many as possible.
func BenchmarkCommitBesideLongLogs(b *testing.B) {
	for _, perSecond := range []int{400, 0} {
		name := fmt.Sprint(perSecond, " long runs a second")
		if perSecond == 0 {
			name = "as many as can be"
		}
		b.Run(name, func(b *testing.B) {
			l := open(b)
			stop := besideLongRuns(b, l, 16, perSecond)
			c := logtest.Chain{RunID: "small"}
			appendSync(b, l, c.Start("bench"))
			waits := make([]time.Duration, 0, b.N)
			b.ResetTimer()
			for range b.N {
				e := c.Effect(180)
				began := time.Now()
				appendSync(b, l, e)
				waits = append(waits, time.Since(began))
				time.Sleep(100 * time.Microsecond)
			}
			b.StopTimer()
			long := stop()
			slices.Sort(waits)
			for _, p := range []struct {
				name string
				of   float64
			}{{"p50-µs", 0.5}, {"p99-µs", 0.99}, {"p99.9-µs", 0.999}, {"max-µs", 1}} {
				b.ReportMetric(float64(waits[min(len(waits)-1, int(p.of*float64(len(waits))))].Microseconds()), p.name)
			}
			b.ReportMetric(float64(long)/b.Elapsed().Seconds(), "long-runs/s")
		})
	}
}

// besideLongRuns starts goroutines that store runs with an event of 64 KiB until the
// returned function is called, which returns their number. They start no more than
// perSecond runs between them, if it is not zero.
func besideLongRuns(b *testing.B, l *Log, goroutines, perSecond int) (stop func() int) {
	var all sync.WaitGroup
	stopped := make(chan struct{})
	counts := make([]int, goroutines)
	for i := range goroutines {
		all.Go(func() {
			pause := time.NewTimer(0)
			for {
				if perSecond > 0 {
					pause.Reset(time.Second * time.Duration(goroutines) / time.Duration(perSecond))
				} else {
					pause.Reset(0)
				}
				select {
				case <-stopped:
					return
				case <-pause.C:
				}
				c := logtest.Chain{RunID: event.NewID()}
				appendSync(b, l, c.Start("bench"))
				appendSync(b, l, c.Effect(64<<10))
				appendSync(b, l, c.Complete())
				counts[i]++
			}
		})
	}
	return func() (n int) {
		close(stopped)
		all.Wait()
		for _, each := range counts {
			n += each
		}
		return n
	}
}
