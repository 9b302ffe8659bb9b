package riverqueue_test

import (
	"fmt"
	"testing"

	"github.com/starling-host/starling/eventlog/pglog/pgtest"
	"github.com/starling-host/starling/host/queue/queuetest"
)

// BenchmarkQueue works runs to their end, with two events each. What River's own
// jobs cost is measured in bench/hosting.
func BenchmarkQueue(b *testing.B) {
	for _, workers := range []int{64, 256} {
		b.Run(fmt.Sprintf("workers=%d", workers), func(b *testing.B) { queuetest.Bench(b, connect, pgtest.Database(b), workers) })
	}
}

// BenchmarkBacklog works runs off that were enqueued before.
func BenchmarkBacklog(b *testing.B) {
	for _, workers := range []int{64, 256} {
		b.Run(fmt.Sprintf("workers=%d", workers), func(b *testing.B) {
			queuetest.BenchBacklog(b, connect, pgtest.Database(b), workers)
		})
	}
}
