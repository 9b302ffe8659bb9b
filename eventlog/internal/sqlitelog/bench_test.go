package sqlitelog

import (
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/eventlog/internal/pending"
	"github.com/starling-host/starling/eventlog/logtest"
)

// BenchmarkDurable is the price of a barrier after each event. The ratio
// compares the log's rate with a raw file's with the same group commit,
// measured in the same run.
func BenchmarkDurable(b *testing.B) {
	for _, bb := range []struct {
		name       string
		runs, size int
	}{
		{"64 runs of 200 B", 64, 180},
		{"64 runs of 2 KB", 64, 2000},
		{"one run of 200 B", 1, 180},
	} {
		b.Run(bb.name, func(b *testing.B) {
			load := logtest.Load{Runs: bb.runs, Size: bb.size}
			rawTime := rawFile(b, func(do func(event.Event) error) time.Duration {
				took, _ := load.Times(b.N, do) // a raw file reports its failure when it is closed
				return took
			})
			l := open(b)
			b.ResetTimer()
			took, err := load.Times(b.N, func(e event.Event) error { return appendSync(b, l, e) })
			if err != nil {
				b.Fatal(err)
			}
			b.ReportMetric(float64(b.N)/took.Seconds(), "events/s")
			b.ReportMetric(rawTime.Seconds()/took.Seconds(), "ratio-to-raw")
		})
	}
}

// rawFile returns how long a load takes with a raw file.
func rawFile(b *testing.B, load func(do func(event.Event) error) time.Duration) time.Duration {
	raw, err := logtest.CreateRawFile(filepath.Join(b.TempDir(), "raw"))
	if err != nil {
		b.Fatal(err)
	}
	took := load(func(e event.Event) error {
		<-raw.Append(e)
		return nil
	})
	if err := raw.Close(); err != nil {
		b.Fatal(err)
	}
	return took
}

func appendSync(b *testing.B, l *Log, e event.Event) error {
	err := l.Append(b.Context(), e.RunID, e)
	if err == nil {
		err = l.Sync(b.Context(), e.RunID)
	}
	if err != nil {
		b.Error(err)
	}
	return err
}

// BenchmarkLoneDurable measures how long one caller waits for one durable event.
func BenchmarkLoneDurable(b *testing.B) {
	l := open(b)
	c := logtest.Chain{RunID: "r"}
	appendSync(b, l, c.Start("bench"))
	waits := make([]time.Duration, 0, b.N)
	for b.Loop() {
		e := c.Effect(180)
		began := time.Now()
		appendSync(b, l, e)
		waits = append(waits, time.Since(began))
	}
	slices.Sort(waits)
	b.ReportMetric(float64(waits[len(waits)/2].Microseconds()), "p50-µs")
	b.ReportMetric(float64(waits[len(waits)*99/100].Microseconds()), "p99-µs")
}

// BenchmarkAppend measures an append without a barrier: the check and the
// queue. The events are made beforehand, and the disk catches up untimed.
func BenchmarkAppend(b *testing.B) {
	const burst = pending.MaxQueued / 2
	l := open(b)
	c := logtest.Chain{RunID: "r"}
	appendSync(b, l, c.Start("bench"))
	for done := 0; done < b.N; done += burst {
		b.StopTimer()
		evs := make([]event.Event, min(burst, b.N-done))
		for i := range evs {
			evs[i] = c.Effect(180)
		}
		b.StartTimer()
		for _, e := range evs {
			if err := l.Append(b.Context(), "r", e); err != nil {
				b.Fatal(err)
			}
		}
		b.StopTimer()
		if err := l.Sync(b.Context(), "r"); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
	}
}

// BenchmarkCheckRun checks a run from the file.
func BenchmarkCheckRun(b *testing.B) {
	for _, strict := range []bool{false, true} {
		b.Run(fmt.Sprintf("strict=%v", strict), func(b *testing.B) {
			const n = 20_000
			l := open(b)
			c := logtest.Chain{RunID: "r"}
			l.Append(b.Context(), "r", c.Start("bench"))
			for range n - 2 {
				l.Append(b.Context(), "r", c.Effect(180))
			}
			appendSync(b, l, c.Complete())
			for b.Loop() {
				if _, err := eventlog.CheckRun(b.Context(), l, "r", eventlog.CheckOptions{Strict: strict}); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(n*b.N)/b.Elapsed().Seconds(), "events/s")
		})
	}
}

// BenchmarkListPage lists the newest 50 of ten thousand runs, of all and of the
// tenant whose runs they are.
func BenchmarkListPage(b *testing.B) {
	l := open(b)
	for i := range 10_000 {
		c := logtest.Chain{RunID: fmt.Sprintf("tenant/run-%05d", i), Clock: int64(i)}
		e := c.Start("bench")
		l.Append(b.Context(), e.RunID, e)
	}
	l.Sync(b.Context(), "tenant/run-09999")
	for _, namespace := range []string{"", "tenant"} {
		b.Run("namespace="+namespace, func(b *testing.B) {
			for b.Loop() {
				page, err := l.ListRunsPage(b.Context(), eventlog.RunPageOptions{Namespace: namespace})
				if err != nil || len(page.Runs) != 50 {
					b.Fatal(len(page.Runs), err)
				}
			}
		})
	}
}

// BenchmarkTransact enqueues: a row and the first event of a run in one
// transaction, waited for. Its ratios are to plain appends with a barrier each, of
// first events as well, and to a raw file, measured in the same run.
func BenchmarkTransact(b *testing.B) {
	for _, writers := range []int{1, 8, 64} {
		b.Run(fmt.Sprint(writers, " at once"), func(b *testing.B) {
			rawTime := rawFile(b, func(do func(event.Event) error) time.Duration {
				return eachFirst(b.N, writers, func(e event.Event) { do(e) })
			})
			plain := open(b)
			plainTime := eachFirst(b.N, writers, func(e event.Event) { appendSync(b, plain, e) })
			l := open(b)
			if err := l.CreateTables(b.Context(), waiting); err != nil {
				b.Fatal(err)
			}
			b.ResetTimer()
			took := eachFirst(b.N, writers, func(e event.Event) {
				if err := begin(b.Context(), l, e); err != nil {
					b.Error(err)
				}
			})
			b.ReportMetric(float64(b.N)/took.Seconds(), "enqueued/s")
			b.ReportMetric(plainTime.Seconds()/took.Seconds(), "ratio-to-append")
			b.ReportMetric(rawTime.Seconds()/took.Seconds(), "ratio-to-raw")
		})
	}
}

// eachFirst calls do with the first events of n runs, from several goroutines.
func eachFirst(n, writers int, do func(event.Event)) time.Duration {
	var taken atomic.Int64
	var all sync.WaitGroup
	began := time.Now()
	for range writers {
		all.Go(func() {
			for i := taken.Add(1); i <= int64(n); i = taken.Add(1) {
				c := logtest.Chain{RunID: fmt.Sprintf("acme/01JABCDEFGHJKMNPQRSTV%05d", i), Clock: began.UnixNano()}
				do(c.Start("bench"))
			}
		})
	}
	all.Wait()
	return time.Since(began)
}

// BenchmarkView measures what a host reads several times for each call: one row, by its key.
func BenchmarkView(b *testing.B) {
	l := open(b)
	storeAll(b, l, logtest.Finished("run-1", 1))
	for b.Loop() {
		err := l.View(b.Context(), func(q eventlog.Querier) error {
			return q.Query("SELECT last_seq FROM run WHERE run_id = $1", []any{"run-1"}, func(eventlog.Row) error { return nil })
		})
		if err != nil {
			b.Fatal(err)
		}
	}
}
