package riverqueue_test

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/pglog"
	"github.com/starling-host/starling/eventlog/pglog/pgtest"
	"github.com/starling-host/starling/host/queue"
	"github.com/starling-host/starling/host/queue/queuetest"
	"github.com/starling-host/starling/host/queue/riverqueue"
)

func TestMain(m *testing.M) { queuetest.Main(m, connect) }

// connect opens the log in a database and the queue in it.
func connect(ctx context.Context, dsn string, cfg queue.Config) (queuetest.Host, error) {
	pool, err := pgxpool.New(ctx, dsn)
	if err != nil {
		return queuetest.Host{}, err
	}
	log, err := pglog.New(ctx, pool, pglog.Options{AutoMigrate: true})
	if err != nil {
		pool.Close()
		return queuetest.Host{}, err
	}
	q, err := riverqueue.Open(ctx, log, pool, cfg)
	return queuetest.Host{Queue: q, Log: pooled{log, pool}}, err
}

// pooled is a log that closes its pool.
type pooled struct {
	*pglog.Log
	pool *pgxpool.Pool
}

func (p pooled) Close() error {
	defer p.pool.Close()
	return p.Log.Close()
}

var _ eventlog.Fencer = pooled{}

func TestQueue(t *testing.T) { queuetest.Run(t, connect, pgtest.Database) }

func TestKilledProcessesLoseNothing(t *testing.T) { queuetest.Kill(t, connect, pgtest.Database(t)) }
