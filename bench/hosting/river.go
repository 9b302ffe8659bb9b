package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
)

// noop is a job of River's that does nothing and records nothing.
type noop struct {
	RunID string `json:"run_id"`
}

func (noop) Kind() string { return "noop" }

// rivers works jobs of River's own, on Postgres.
type rivers struct {
	pool    *pgxpool.Pool
	workers int
	client  *river.Client[pgx.Tx]
	open    sync.WaitGroup // jobs that are inserted and not worked
}

// openRiver makes River's tables in a database of their own, and a client that has not
// begun to work.
func (b *bench) openRiver(ctx context.Context, workers int) (*rivers, error) {
	dsn, err := b.server.NewDatabase()
	if err != nil {
		return nil, err
	}
	pool, err := pgxpool.New(ctx, dsn)
	if err != nil {
		return nil, err
	}
	r := &rivers{pool: pool, workers: workers}
	m, err := rivermigrate.New(riverpgxv5.New(pool), nil)
	if err == nil {
		_, err = m.Migrate(ctx, rivermigrate.DirectionUp, nil)
	}
	if err == nil {
		r.client, err = r.newClient()
	}
	if err != nil {
		pool.Close()
		return nil, err
	}
	return r, nil
}

func (r *rivers) newClient() (*river.Client[pgx.Tx], error) {
	set := river.NewWorkers()
	river.AddWorker(set, river.WorkFunc(func(context.Context, *river.Job[noop]) error {
		r.open.Done()
		return nil
	}))
	return river.NewClient(riverpgxv5.New(r.pool), &river.Config{
		Logger: slog.New(slog.DiscardHandler), Workers: set, FetchCooldown: time.Millisecond,
		Queues: map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: r.workers}},
	})
}

// workOff inserts that many jobs by the thousand while nobody works, and measures from
// then on until they are worked and the workers have stopped.
func (r *rivers) workOff(jobs int) func(context.Context, time.Duration) (float64, error) {
	return func(ctx context.Context, _ time.Duration) (float64, error) {
		for from := 0; from < jobs; from += bulk {
			if err := r.insert(ctx, r.client, from, min(bulk, jobs-from)); err != nil {
				return 0, err
			}
		}
		client, err := r.newClient()
		if err != nil {
			return 0, err
		}
		began := time.Now()
		if err := client.Start(ctx); err != nil {
			return 0, err
		}
		r.open.Wait()
		err = client.Stop(ctx)
		return float64(jobs) / time.Since(began).Seconds(), err
	}
}

// inserting lets callers, who share the clients, insert so many jobs at a time, and waits until all are worked.
func (r *rivers) inserting(callers, bulk int, clients ...*river.Client[pgx.Tx]) func(context.Context, time.Duration) (float64, error) {
	return func(ctx context.Context, d time.Duration) (float64, error) {
		var inserted atomic.Int64
		var inserting sync.WaitGroup
		errs := make([]error, callers)
		began := time.Now()
		for i := range callers {
			inserting.Go(func() {
				for errs[i] == nil && time.Since(began) < d {
					errs[i] = r.insert(ctx, clients[i%len(clients)], int(inserted.Add(int64(bulk))), bulk)
				}
			})
		}
		inserting.Wait()
		if err := errors.Join(errs...); err != nil {
			return 0, err
		}
		r.open.Wait()
		return float64(inserted.Load()) / time.Since(began).Seconds(), nil
	}
}

// more starts n clients that share the tables.
func (r *rivers) more(ctx context.Context, n int) (clients []*river.Client[pgx.Tx], err error) {
	for range n {
		client, err := r.newClient()
		if err == nil {
			err = client.Start(ctx)
		}
		if err != nil {
			return nil, err
		}
		clients = append(clients, client)
	}
	return clients, nil
}

func (r *rivers) insert(ctx context.Context, client *river.Client[pgx.Tx], from, n int) error {
	r.open.Add(n)
	if n == 1 {
		_, err := client.Insert(ctx, noop{RunID: fmt.Sprint(from)}, nil)
		return err
	}
	params := make([]river.InsertManyParams, n)
	for i := range params {
		params[i].Args = noop{RunID: fmt.Sprint(from + i)}
	}
	_, err := client.InsertManyFast(ctx, params)
	return err
}
