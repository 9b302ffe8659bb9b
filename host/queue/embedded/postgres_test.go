package embedded_test

import (
	"testing"

	"github.com/starling-host/starling/eventlog/pglog"
	"github.com/starling-host/starling/eventlog/pglog/pgtest"
	"github.com/starling-host/starling/host/queue"
	"github.com/starling-host/starling/host/queue/embedded"
	"github.com/starling-host/starling/host/queue/queuetest"
)

// TestQueueOnPostgres holds the tables and the statements to the other dialect.
func TestQueueOnPostgres(t *testing.T) {
	queuetest.Run(t, func(t testing.TB) queuetest.Database {
		dsn := pgtest.Database(t)
		return func(t testing.TB, cfg queue.Config) queuetest.Host { return openPostgres(t, dsn, cfg) }
	})
}

func openPostgres(t testing.TB, dsn string, cfg queue.Config) queuetest.Host {
	t.Helper()
	log, err := pglog.Open(t.Context(), dsn, pglog.Options{AutoMigrate: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { log.Close() })
	q, err := embedded.Open(t.Context(), log, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return queuetest.Host{Queue: q, Log: log}
}
