package pglog

import (
	"fmt"
	"testing"

	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/eventlog/logtest"
)

// BenchmarkDurable is the price of a barrier after each event. What other ways cost is
// measured in bench/hosting.
func BenchmarkDurable(b *testing.B) {
	for _, size := range []int{180, 2000} {
		for _, runs := range []int{1, 8, 64, 256} {
			b.Run(fmt.Sprintf("%d runs of %d B", runs, size), func(b *testing.B) {
				l, _ := open(b)
				storeAll(b, l, logtest.Finished("warm", 1000)...)
				b.ResetTimer()
				took, err := logtest.Load{Runs: runs, Size: size}.Times(b.N, func(e event.Event) error {
					if err := l.Append(b.Context(), e.RunID, e); err != nil {
						return err
					}
					return l.Sync(b.Context(), e.RunID)
				})
				if err != nil {
					b.Fatal(err)
				}
				b.ReportMetric(float64(b.N)/took.Seconds(), "events/s")
			})
		}
	}
}
