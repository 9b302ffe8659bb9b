package riverqueue_test

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"

	"github.com/starling-host/starling/eventlog/pglog/pgtest"
	"github.com/starling-host/starling/host/queue/queuetest"
)

// BenchmarkQueue works runs to their end, with two events each.
func BenchmarkQueue(b *testing.B) {
	for _, workers := range []int{64, 256} {
		b.Run(fmt.Sprintf("workers=%d", workers), func(b *testing.B) { queuetest.Bench(b, connect, pgtest.Database(b), workers) })
	}
}

// BenchmarkRiver works jobs of River's own that do nothing and record nothing. Each
// is inserted by itself, as a run is; in bulk River is faster, by what a client that
// waits for one job cannot use.
func BenchmarkRiver(b *testing.B) {
	for _, workers := range []int{64, 256} {
		b.Run(fmt.Sprintf("single/workers=%d", workers), func(b *testing.B) { benchRiver(b, workers, 1) })
		b.Run(fmt.Sprintf("bulk/workers=%d", workers), func(b *testing.B) { benchRiver(b, workers, 1000) })
	}
}

type nothing struct {
	RunID string `json:"run_id"`
}

func (nothing) Kind() string { return "nothing" }

func benchRiver(b *testing.B, workers, bulk int) {
	pool, err := pgxpool.New(b.Context(), pgtest.Database(b))
	if err != nil {
		b.Fatal(err)
	}
	defer pool.Close()
	client, done := noopClient(b, pool, workers)
	next := make(chan int)
	var inserting sync.WaitGroup
	for range workers {
		inserting.Go(func() {
			for i := range next {
				insert(b, client, i, min(bulk, b.N-i))
			}
		})
	}
	b.ResetTimer()
	for i := 0; i < b.N; i += bulk {
		next <- i
	}
	close(next)
	inserting.Wait()
	done.Wait()
	b.StopTimer()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "jobs/s")
	if err := client.Stop(context.Background()); err != nil {
		b.Error(err)
	}
}

// noopClient starts a client whose worker does nothing, and returns what is done
// when it has done that b.N times.
func noopClient(b *testing.B, pool *pgxpool.Pool, workers int) (*river.Client[pgx.Tx], *sync.WaitGroup) {
	driver := riverpgxv5.New(pool)
	m, err := rivermigrate.New(driver, nil)
	if err != nil {
		b.Fatal(err)
	}
	if _, err := m.Migrate(b.Context(), rivermigrate.DirectionUp, nil); err != nil {
		b.Fatal(err)
	}
	done := new(sync.WaitGroup)
	done.Add(b.N)
	set := river.NewWorkers()
	river.AddWorker(set, river.WorkFunc(func(context.Context, *river.Job[nothing]) error {
		done.Done()
		return nil
	}))
	client, err := river.NewClient(driver, &river.Config{
		Logger: slog.New(slog.DiscardHandler), Workers: set, FetchCooldown: time.Millisecond,
		Queues: map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: workers}},
	})
	if err == nil {
		err = client.Start(context.Background())
	}
	if err != nil {
		b.Fatal(err)
	}
	return client, done
}

func insert(b *testing.B, client *river.Client[pgx.Tx], from, n int) {
	params := make([]river.InsertManyParams, n)
	for i := range params {
		params[i].Args = nothing{RunID: fmt.Sprint(from + i)}
	}
	var err error
	if n == 1 {
		_, err = client.Insert(context.Background(), params[0].Args, nil)
	} else {
		_, err = client.InsertManyFast(context.Background(), params)
	}
	if err != nil {
		b.Error(err)
	}
}
