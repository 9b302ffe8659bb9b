package sqlitelog

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/eventlog/logtest"
)

// BenchmarkRetention backs up, prunes and compacts a log of 1,000 runs with 100
// events of 1.2 KB each; one in ten runs stays. "longest" is the longest wait of a
// durable append of a run in progress meanwhile.
func BenchmarkRetention(b *testing.B) {
	const runs, size = 1000, 1200
	for b.Loop() {
		b.StopTimer()
		l := open(b)
		for i := range runs {
			c := logtest.Chain{RunID: fmt.Sprintf("run-%04d", i), Clock: int64(i)}
			evs := []event.Event{c.Start("bench")}
			for range 98 {
				evs = append(evs, c.Effect(size))
			}
			storeAll(b, l, append(evs, c.Complete()))
		}
		before := fileSize(b, l)
		b.StartTimer()

		began := time.Now()
		if _, err := Backup(b.Context(), l.path, filepath.Join(b.TempDir(), "copy.db")); err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(float64(before)/1e6/time.Since(began).Seconds(), "backup-MB/s")

		stop, longest := make(chan struct{}), make(chan time.Duration)
		go appendUntil(b, l, stop, longest)
		began = time.Now()
		for left := runs * 9 / 10; left > 0; left -= 100 {
			if r, err := l.PruneRuns(b.Context(), eventlog.PruneOptions{Limit: 100}); err != nil || r.Runs != 100 {
				b.Fatal(r, err)
			}
		}
		b.ReportMetric(runs*90/time.Since(began).Seconds(), "pruned-events/s")
		began = time.Now()
		freed, err := Compact(b.Context(), l)
		if err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(float64(freed)/1e6/time.Since(began).Seconds(), "compacted-MB/s")
		close(stop)
		b.ReportMetric(float64((<-longest).Milliseconds()), "longest-ms")
		b.ReportMetric(float64(fileSize(b, l))/float64(before), "left-of-file")
	}
}

// appendUntil writes a run, waiting for each event, and tells the longest wait.
func appendUntil(b *testing.B, l *Log, stop <-chan struct{}, longest chan<- time.Duration) {
	c := logtest.Chain{RunID: "meanwhile", Clock: time.Now().UnixNano()}
	most := time.Duration(0)
	for e := c.Start("bench"); ; e = c.Effect(180) {
		began := time.Now()
		appendSync(b, l, e)
		most = max(most, time.Since(began))
		select {
		case <-stop:
			longest <- most
			return
		default:
		}
	}
}
