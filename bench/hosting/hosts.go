package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/starling-host/starling/bench/internal/figures"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/eventlog/store"
	"github.com/starling-host/starling/internal/queuetest"
	"github.com/starling-host/starling/serve/queue"
)

// crowdCallers is how many callers there are, shared by all hosts, and crowdTenants of how many
// tenants their runs are.
const (
	crowdCallers = 64
	crowdTenants = 100
)

// crowd is hosts that share a database.
type crowd struct {
	dsn   string
	hosts []queuetest.Host
	waits []time.Duration // for an acceptance, of all rounds
	least []float64       // share of the host that accepted the fewest, of an equal share, by round
	kept  []float64       // share of the transactions that were committed, by round
}

// crowds measures submissions while there are more and more hosts on one server, beside as many
// clients of River's.
func (b *bench) crowds(ctx context.Context) error {
	var all []contender
	open := make(map[int]*crowd)
	for _, n := range []int{1, 2, 4, 8} {
		c, err := b.openCrowd(ctx, n)
		if err != nil {
			return err
		}
		defer c.close()
		r, err := b.openRiver(ctx, max(1, crowdCallers/n))
		if err != nil {
			return err
		}
		defer r.pool.Close()
		clients, err := r.more(ctx, n)
		if err != nil {
			return err
		}
		open[n] = c
		all = append(all, contender{crowdName(n), c.submissions}, contender{riverCrowd(n), r.inserting(crowdCallers, 1, clients...)})
	}
	t, err := take(ctx, b.rounds, b.flow, all...)
	if err != nil {
		return err
	}
	load := fmt.Sprintf("%d callers, %d tenants, 2 events a run", crowdCallers, crowdTenants)
	one := percentile(open[1].waits, 0.99)
	for _, n := range []int{1, 2, 4, 8} {
		b.report.note(load, t, crowdName(n), riverCrowd(n))
		c := open[n]
		b.report.atLeast(0, load, crowdName(n)+" / "+riverCrowd(n), t.ratio(crowdName(n), riverCrowd(n)))
		b.report.atLeast(0, load, crowdName(n)+": share of the host that accepts the fewest, of an equal one", figures.Median(c.least))
		b.report.atLeast(0, load, crowdName(n)+": share of the transactions that were committed", figures.Median(c.kept))
		if n == 1 {
			b.report.atMost(0, " ms", load, crowdName(n)+": p99 of an acceptance", one.Seconds()*1e3)
			continue
		}
		b.report.atLeast(1, load, crowdName(n)+" / "+crowdName(1), t.ratio(crowdName(n), crowdName(1)))
		b.report.atMost(3, "", load, crowdName(n)+": p99 of an acceptance / of 1 host's", percentile(c.waits, 0.99).Seconds()/one.Seconds())
	}
	return nil
}

func crowdName(n int) string  { return count(n, "host") + " on Postgres" }
func riverCrowd(n int) string { return count(n, "client") + " of River's" }

func percentile(of []time.Duration, p float64) time.Duration {
	slices.Sort(of)
	return of[int(float64(len(of)-1)*p)]
}

// openCrowd opens n hosts on a database of their own.
func (b *bench) openCrowd(ctx context.Context, n int) (*crowd, error) {
	dsn, err := b.server.NewDatabase()
	if err != nil {
		return nil, err
	}
	c := &crowd{dsn: dsn}
	for range n {
		log, err := store.OpenServer(ctx, dsn, store.ServerOptions{AutoMigrate: true})
		if err != nil {
			return nil, err
		}
		h, err := openQueue(ctx, log, queue.Config{Workers: max(1, crowdCallers/n)})
		if err != nil {
			return nil, err
		}
		c.hosts = append(c.hosts, h)
	}
	return c, nil
}

func (c *crowd) close() {
	for _, h := range c.hosts {
		h.Log.Close()
	}
}

// submissions lets callers submit runs to the hosts in turn for about so long, and waits until all
// are worked, by any host.
func (c *crowd) submissions(ctx context.Context, d time.Duration) (float64, error) {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var open, workers, callers sync.WaitGroup
	working, end := context.WithCancel(ctx)
	defer workers.Wait()
	defer end()
	for _, h := range c.hosts {
		run := h.EmptyRuns(1).Handler
		workers.Go(func() {
			if err := h.Queue.Work(working, func(ctx context.Context, l queue.Lease) error {
				err := run(ctx, l)
				if err == nil {
					open.Done()
				}
				return err
			}); err != nil {
				stop(err)
			}
		})
	}
	submit := func(h queuetest.Host, tenant int) error {
		j := queue.Job{Tenant: fmt.Sprint("t", tenant)}
		j.RunID = j.Tenant + "/" + event.NewID()
		open.Add(1)
		return h.Queue.Enqueue(ctx, j, queuetest.Append(j.RunID, queuetest.First(j.RunID)))
	}
	for _, h := range c.hosts { // until all are awake
		if err := submit(h, 0); err != nil {
			return 0, err
		}
	}
	open.Wait()
	committed, undone, err := c.transactions(ctx)
	if err != nil {
		return 0, err
	}
	waits, accepted := make([][]time.Duration, crowdCallers), make([]atomic.Int64, len(c.hosts))
	began := time.Now()
	for i := range crowdCallers {
		callers.Go(func() {
			for k := i; time.Since(began) < d && ctx.Err() == nil; k++ {
				asked := time.Now()
				if err := submit(c.hosts[i%len(c.hosts)], k%crowdTenants); err != nil {
					stop(err)
					return
				}
				waits[i] = append(waits[i], time.Since(asked))
				accepted[i%len(c.hosts)].Add(1)
			}
		})
	}
	callers.Wait()
	idle := make(chan struct{})
	go func() { open.Wait(); close(idle) }()
	select {
	case <-idle:
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	}
	took := time.Since(began)
	after, failed, err := c.transactions(ctx)
	var sum, least int64
	for i := range accepted {
		n := accepted[i].Load()
		sum += n
		if i == 0 || n < least {
			least = n
		}
	}
	c.waits = append(c.waits, slices.Concat(waits...)...)
	c.least = append(c.least, float64(least)*float64(len(c.hosts))/float64(max(sum, 1)))
	c.kept = append(c.kept, float64(after-committed)/float64(max(after-committed+failed-undone, 1)))
	return float64(sum) / took.Seconds(), err
}

// transactions returns how many the server has committed and rolled back in the database.
func (c *crowd) transactions(ctx context.Context) (committed, undone int64, err error) {
	conn, err := pgx.Connect(ctx, c.dsn)
	if err != nil {
		return 0, 0, err
	}
	defer func() { err = errors.Join(err, conn.Close(ctx)) }()
	const sql = "SELECT xact_commit, xact_rollback FROM pg_stat_database WHERE datname = current_database()"
	return committed, undone, conn.QueryRow(ctx, sql).Scan(&committed, &undone)
}
