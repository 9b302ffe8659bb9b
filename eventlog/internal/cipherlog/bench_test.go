package cipherlog_test

import (
	"fmt"
	"testing"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/eventlog/logtest"
	"github.com/starling-host/starling/eventlog/store"
)

// BenchmarkAppend measures an append with and without encryption, in memory, so
// that the disk does not hide the cost.
func BenchmarkAppend(b *testing.B) {
	for _, size := range []int{100, 2 << 10, 64 << 10, 1 << 20} {
		for name, log := range map[string]func() eventlog.EventLog{
			"plain":     func() eventlog.EventLog { return store.Memory() },
			"encrypted": func() eventlog.EventLog { return over(b, store.Memory(), 1) },
		} {
			b.Run(fmt.Sprintf("%s/%dB", name, size), func(b *testing.B) {
				b.SetBytes(int64(size))
				b.ReportAllocs()
				to, c := log(), logtest.Chain{}
				for i := 0; b.Loop(); i++ {
					b.StopTimer()
					if i%256 == 0 { // short runs, and not all of them at once in memory
						to, c = log(), logtest.Chain{RunID: "bench/run"}
						if err := to.Append(b.Context(), c.RunID, c.Start("g")); err != nil {
							b.Fatal(err)
						}
					}
					e := c.Effect(size)
					b.StartTimer()
					if err := to.Append(b.Context(), e.RunID, e); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

// BenchmarkAppendOnDisk appends 256 events of 2 KiB and waits for them once.
func BenchmarkAppendOnDisk(b *testing.B) {
	inner := onDisk(b)
	for name, log := range map[string]eventlog.EventLog{"plain": inner, "encrypted": over(b, inner, 1)} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				b.StopTimer()
				c := logtest.Chain{RunID: "bench/" + event.NewID()}
				evs := append([]event.Event{c.Start("g")}, effects(&c, 255)...)
				b.StartTimer()
				keep(b, log, evs)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/256, "ns/event")
		})
	}
}

// BenchmarkRead reads a run of 1000 events of 2 KiB.
func BenchmarkRead(b *testing.B) {
	const events = 1000
	inner := store.Memory()
	encrypted := over(b, inner, 1)
	for id, log := range map[string]eventlog.EventLog{"plain": inner, "encrypted": encrypted} {
		c := logtest.Chain{RunID: id}
		keep(b, log, append([]event.Event{c.Start("g")}, effects(&c, events)...))
		b.Run(id, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				for _, err := range log.Events(b.Context(), id, 0) {
					if err != nil {
						b.Fatal(err)
					}
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/events, "ns/event")
		})
	}
}

func effects(c *logtest.Chain, n int) (evs []event.Event) {
	for range n {
		evs = append(evs, c.Effect(2<<10))
	}
	return evs
}

// BenchmarkPage lists a page of 50 runs.
func BenchmarkPage(b *testing.B) {
	inner := onDisk(b)
	encrypted := over(b, inner, 1)
	for i := range 50 {
		keep(b, encrypted, logtest.Finished(fmt.Sprintf("acme/%d", i), 5))
	}
	for name, log := range map[string]eventlog.EventLog{"plain": inner, "encrypted": encrypted} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				if _, err := log.ListRunsPage(b.Context(), eventlog.RunPageOptions{}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
