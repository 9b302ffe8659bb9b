package embedded_test

import (
	"fmt"
	"path/filepath"
	"testing"

	"github.com/starling-host/starling/eventlog/pglog/pgtest"
	"github.com/starling-host/starling/host/queue"
	"github.com/starling-host/starling/host/queue/queuetest"
)

// BenchmarkQueue works runs to their end, on SQLite with FULL durability and on
// Postgres.
func BenchmarkQueue(b *testing.B) {
	for _, workers := range []int{1, 64, 256} {
		b.Run(fmt.Sprintf("sqlite/workers=%d", workers), func(b *testing.B) {
			path := filepath.Join(b.TempDir(), "log.db")
			queuetest.Bench(b, func(t testing.TB, cfg queue.Config) queuetest.Host { return open(t, path, cfg) }, workers)
		})
		b.Run(fmt.Sprintf("postgres/workers=%d", workers), func(b *testing.B) {
			dsn := pgtest.Database(b)
			queuetest.Bench(b, func(t testing.TB, cfg queue.Config) queuetest.Host { return openPostgres(t, dsn, cfg) }, workers)
		})
	}
}
