package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"time"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/store"
	"github.com/starling-host/starling/internal/queuetest"
	"github.com/starling-host/starling/serve/queue"
)

// The queues.
const (
	onSQLite    = "queue on SQLite, FULL"
	onPostgres  = "queue on Postgres"
	riverOwn    = "River's own no-op on Postgres"
	riverLite   = "River's own no-op on SQLite, NORMAL"
	riverSingle = riverOwn + ", inserted one by one"
	riverBulk   = riverOwn + ", inserted by the thousand"
)

// bulk is how many jobs River is given at once.
const bulk = 1000

// hosts are the queues of this repository, each on a database of its own.
type hosts struct{ sqlite, postgres queuetest.Host }

func (h hosts) close() error { return errors.Join(h.sqlite.Log.Close(), h.postgres.Log.Close()) }

func (b *bench) openHosts(ctx context.Context, name string, workers int) (h hosts, err error) {
	cfg := queue.Config{Workers: workers}
	file, err := store.OpenFile(ctx, filepath.Join(b.dir, name), store.FileOptions{})
	if err != nil {
		return h, err
	}
	server, err := b.openPostgres(ctx)
	if err != nil {
		return h, err
	}
	if h.sqlite, err = openQueue(ctx, file, cfg); err != nil {
		return h, err
	}
	h.postgres, err = openQueue(ctx, server, cfg)
	return h, err
}

// openQueues opens the queues of this repository and River's own.
func (b *bench) openQueues(ctx context.Context, name string, workers int) (h hosts, r *rivers, lite riverlite, err error) {
	if h, err = b.openHosts(ctx, name, workers); err != nil {
		return h, nil, lite, err
	}
	if lite, err = b.buildRiverlite(ctx); err != nil {
		return h, nil, lite, err
	}
	r, err = b.openRiver(ctx, workers)
	return h, r, lite, err
}

func (b *bench) openPostgres(ctx context.Context) (*store.Server, error) {
	dsn, err := b.server.NewDatabase()
	if err != nil {
		return nil, err
	}
	return store.OpenServer(ctx, dsn, store.ServerOptions{AutoMigrate: true})
}

func openQueue(ctx context.Context, log eventlog.EventLog, cfg queue.Config) (queuetest.Host, error) {
	q, err := queue.Open(ctx, log.(eventlog.Transactor), cfg)
	return queuetest.Host{Queue: q, Log: log}, err
}

// queues measures runs that are enqueued, handed out, ended and removed, with two
// events each. As many callers enqueue as there are workers.
func (b *bench) queues(ctx context.Context) error {
	for _, workers := range []int{64, 256} {
		if err := b.queuesOf(ctx, workers); err != nil {
			return err
		}
	}
	return nil
}

func (b *bench) queuesOf(ctx context.Context, workers int) error {
	h, r, lite, err := b.openQueues(ctx, fmt.Sprint("queue", workers), workers)
	if err != nil {
		return err
	}
	defer r.pool.Close()
	if err := r.client.Start(ctx); err != nil {
		return err
	}
	defer r.client.Stop(context.WithoutCancel(ctx))
	t, err := take(ctx, b.rounds, b.flow,
		flowing(onSQLite, h.sqlite.EmptyRuns(workers)), flowing(onPostgres, h.postgres.EmptyRuns(workers)),
		contender{riverLite, lite.inserting(workers)}, contender{riverSingle, r.inserting(workers, 1, r.client)}, contender{riverBulk, r.inserting(4, bulk, r.client)})
	if err != nil {
		return err
	}
	name := fmt.Sprintf("%d callers and workers, 2 events a run", workers)
	b.report.note(name, t, onSQLite, onPostgres, riverLite, riverSingle, riverBulk)
	sqlite, postgres := 2.0, 1.2
	if workers > 64 {
		sqlite, postgres = 0, 0
	}
	b.report.atLeast(sqlite, name, onSQLite+" / "+riverLite, t.ratio(onSQLite, riverLite))
	b.report.atLeast(postgres, name, onPostgres+" / "+riverSingle, t.ratio(onPostgres, riverSingle))
	return h.close()
}

// flowing enqueues and works.
func flowing(name string, f queuetest.Flow) contender {
	return contender{name, func(ctx context.Context, d time.Duration) (float64, error) {
		began := sync.OnceValue(time.Now) // of the first run that counts
		worked, took, err := f.Run(ctx, func() bool { return time.Since(began()) < d })
		return float64(worked) / took.Seconds(), err
	}}
}
