package riverqueue_test

import (
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/starling-host/starling/eventlog/pglog"
	"github.com/starling-host/starling/eventlog/pglog/pgtest"
	"github.com/starling-host/starling/host/queue"
	"github.com/starling-host/starling/host/queue/queuetest"
	"github.com/starling-host/starling/host/queue/riverqueue"
)

func TestQueue(t *testing.T) {
	queuetest.Run(t, func(t testing.TB) queuetest.Database {
		dsn := pgtest.Database(t)
		return func(t testing.TB, cfg queue.Config) queuetest.Host { return open(t, dsn, cfg) }
	})
}

// open opens the log in a database and the queue in it.
func open(t testing.TB, dsn string, cfg queue.Config) queuetest.Host {
	t.Helper()
	pool, err := pgxpool.New(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	log, err := pglog.New(t.Context(), pool, pglog.Options{AutoMigrate: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { log.Close() })
	q, err := riverqueue.Open(t.Context(), log, pool, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return queuetest.Host{Queue: q, Log: log}
}
