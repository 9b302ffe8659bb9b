package queue_test

import (
	"fmt"
	"testing"

	"github.com/starling-host/starling/internal/pgtest"
	"github.com/starling-host/starling/internal/queuetest"
)

// BenchmarkQueue works runs to their end, on SQLite with FULL durability and on
// PostgreSQL. What River's jobs cost is measured in bench/hosting.
func BenchmarkQueue(b *testing.B) {
	for _, workers := range []int{1, 64, 256} {
		b.Run(fmt.Sprintf("sqlite/workers=%d", workers), func(b *testing.B) { queuetest.Bench(b, connect, file(b), workers) })
		b.Run(fmt.Sprintf("postgres/workers=%d", workers), func(b *testing.B) { queuetest.Bench(b, connect, pgtest.Database(b), workers) })
	}
}

// BenchmarkBacklog works runs off that were enqueued before.
func BenchmarkBacklog(b *testing.B) {
	for _, workers := range []int{64, 256} {
		b.Run(fmt.Sprintf("sqlite/workers=%d", workers), func(b *testing.B) { queuetest.BenchBacklog(b, connect, file(b), workers) })
		b.Run(fmt.Sprintf("postgres/workers=%d", workers), func(b *testing.B) {
			queuetest.BenchBacklog(b, connect, pgtest.Database(b), workers)
		})
	}
}
