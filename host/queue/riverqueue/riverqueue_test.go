package riverqueue_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

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

// awaitTime is how long a test waits for what has to come, on whatever machine.
const awaitTime = 2 * time.Minute

// TestNoJobWaitsForThePoll enqueues jobs right after one another. River tells workers
// of new ones no more often than it is told to, and what it keeps to itself waits for
// the next poll, which here is too late.
func TestNoJobWaitsForThePoll(t *testing.T) {
	h, err := connect(t.Context(), pgtest.Database(t), queue.Config{Poll: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	defer h.Log.Close()
	ctx, stop := context.WithCancel(t.Context())
	stopped, worked := make(chan error, 1), make(chan string, 1)
	go func() {
		stopped <- h.Work(ctx, func(_ context.Context, l queue.Lease) error {
			worked <- l.RunID
			return nil
		})
	}()
	for i := range 10 {
		if err := h.Enqueue(ctx, queue.Job{RunID: fmt.Sprint("run", i)}); err != nil {
			t.Fatal(err)
		}
		select {
		case <-worked:
		case <-time.After(awaitTime):
			t.Fatalf("job %d is not handed out", i)
		}
	}
	stop()
	if err := <-stopped; err != nil {
		t.Error(err)
	}
}

// TestNoTurnIsLostThatWasKept has jobs of one tenant alone, more than there are
// handlers: the last ones are kept for others, and whoever comes with a turn for them
// gets the next job as soon as one of the others is done. No poll is to make up for it.
func TestNoTurnIsLostThatWasKept(t *testing.T) {
	h, err := connect(t.Context(), pgtest.Database(t), queue.Config{Poll: time.Hour, Lease: 24 * time.Hour, Workers: 16, Grace: -1})
	if err != nil {
		t.Fatal(err)
	}
	defer h.Log.Close()
	for i := range 24 {
		if err := h.Enqueue(t.Context(), queue.Job{RunID: fmt.Sprint("t/", i), Tenant: "t"}); err != nil {
			t.Fatal(err)
		}
	}
	ctx, stop := context.WithCancel(t.Context())
	stopped, began, next := make(chan error, 1), make(chan bool, 24), make(chan bool)
	go func() {
		stopped <- h.Work(ctx, func(ctx context.Context, _ queue.Lease) error {
			began <- true
			select {
			case <-next:
			case <-ctx.Done():
			}
			return nil
		})
	}()
	defer func() {
		stop()
		if err := <-stopped; err != nil {
			t.Error(err)
		}
	}()
	for i := range 24 {
		if i >= 14 {
			next <- true
		}
		select {
		case <-began:
		case <-time.After(awaitTime):
			t.Fatalf("job %d is not handed out", i)
		}
	}
}

// atRest returns a queue on a database that is told of nothing by polling, and
// connections to it.
func atRest(t *testing.T, workers int) (queuetest.Host, *pgxpool.Pool) {
	t.Helper()
	dsn := pgtest.Database(t)
	pool, err := pgxpool.New(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	h, err := connect(t.Context(), dsn, queue.Config{Poll: time.Hour, Lease: 24 * time.Hour, Workers: workers})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { h.Log.Close() })
	return h, pool
}

// TestManyJobsNeedNotAsManyTurns works a backlog with the turns of a part of it.
func TestManyJobsNeedNotAsManyTurns(t *testing.T) {
	const jobs = 2000
	h, pool := atRest(t, 8)
	var enqueueing sync.WaitGroup
	for caller := range 40 {
		enqueueing.Go(func() {
			for i := range jobs / 40 {
				if err := h.Enqueue(t.Context(), queue.Job{RunID: fmt.Sprint("t/", caller, ".", i), Tenant: "t"}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	enqueueing.Wait()
	var turns int
	if err := pool.QueryRow(t.Context(), "SELECT count(*) FROM river_job").Scan(&turns); err != nil || turns != 1024 {
		t.Errorf("%d turns, %v", turns, err)
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var worked atomic.Int64
	err := h.Work(ctx, func(context.Context, queue.Lease) error {
		if worked.Add(1) == jobs {
			stop()
		}
		return nil
	})
	if err != nil || worked.Load() != jobs {
		t.Errorf("%d jobs were worked, %v", worked.Load(), err)
	}
}

// TestNobodyWaitsForATurnThatIsGone takes the turns away for which jobs wait: those before
// a host begins to work, as if another had taken them and died, and while its one worker
// has a job which is then cancelled.
func TestNobodyWaitsForATurnThatIsGone(t *testing.T) {
	h, pool := atRest(t, 1)
	lose := func() {
		if _, err := pool.Exec(t.Context(), "DELETE FROM river_job WHERE state = 'available'"); err != nil {
			t.Error(err)
		}
	}
	enqueue := func(runs ...string) {
		for _, run := range runs {
			if err := h.Enqueue(t.Context(), queue.Job{RunID: run}); err != nil {
				t.Error(err)
			}
		}
		lose()
	}
	ctx, stop := context.WithTimeout(t.Context(), awaitTime)
	defer stop()
	enqueue("a")
	last := ""
	err := h.Work(ctx, func(ctx context.Context, l queue.Lease) error {
		last = l.RunID
		switch l.RunID {
		case "a":
			enqueue("b", "c")
			if err := h.Cancel(t.Context(), "a"); err != nil {
				t.Error(err)
			}
			<-ctx.Done()
		case "c":
			stop()
		}
		return nil
	})
	if err != nil || last != "c" {
		t.Errorf("the last job that was handed out is %q, %v", last, err)
	}
}

// serverWithItsOwnClock returns a database whose server's clock is hours ahead of this
// machine's, as many as set says: it is one of the test's, which stands before the real
// one in the search path.
func serverWithItsOwnClock(t *testing.T) (dsn string, pool *pgxpool.Pool, set func(hours int)) {
	t.Helper()
	dsn = pgtest.Database(t)
	pool, err := pgxpool.New(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	_, err = pool.Exec(t.Context(), `CREATE SCHEMA ahead;
		CREATE TABLE ahead.of_here (hours INTEGER NOT NULL);
		INSERT INTO ahead.of_here VALUES (0);
		CREATE FUNCTION ahead.clock_timestamp() RETURNS timestamptz LANGUAGE sql AS $$
			SELECT pg_catalog.clock_timestamp() + make_interval(hours => (SELECT hours FROM ahead.of_here)) $$;
		ALTER ROLE CURRENT_USER IN DATABASE `+pool.Config().ConnConfig.Database+` SET search_path = ahead, pg_catalog, public`)
	if err != nil {
		t.Fatal(err)
	}
	return dsn, pool, func(hours int) {
		t.Helper()
		if _, err := pool.Exec(t.Context(), "UPDATE ahead.of_here SET hours = $1", hours); err != nil {
			t.Fatal(err)
		}
	}
}

// leaseEnds returns when the last lease ends, as hours from now by this machine's clock.
func leaseEnds(ctx context.Context, pool *pgxpool.Pool) (hours float64, err error) {
	var until int64
	err = pool.QueryRow(ctx, "SELECT coalesce(max(until), 0) FROM ahead.queue_host").Scan(&until)
	return time.Until(time.Unix(0, until)).Hours(), err
}

// TestAQueueAtRestLeavesTheServerAlone: while its one job is at work and nobody asks for
// anything, a host makes no transactions. Each that it makes leaves a mark.
func TestAQueueAtRestLeavesTheServerAlone(t *testing.T) {
	dsn := pgtest.Database(t)
	pool, err := pgxpool.New(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	h, err := connect(t.Context(), dsn, queue.Config{Poll: time.Hour, Lease: 24 * time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	defer h.Log.Close()
	if err := h.Enqueue(t.Context(), queue.Job{RunID: "t/1"}); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var first, made int64
	err = h.Work(ctx, func(ctx context.Context, _ queue.Lease) error {
		defer stop()
		for range 500 {
			if err := pool.QueryRow(ctx, "SELECT sum(mark) FROM commit_mark").Scan(&made); err != nil {
				return err
			}
			if first == 0 {
				first = made
			}
		}
		return nil
	})
	if err != nil || first == 0 {
		t.Fatal(first, err)
	}
	if made > first+10 {
		t.Errorf("%d transactions while there was nothing to do", made-first)
	}
}

// TestLeasesGoByTheServersClock has a server that is hours ahead of this machine.
func TestLeasesGoByTheServersClock(t *testing.T) {
	dsn, pool, set := serverWithItsOwnClock(t)
	set(3)
	h, err := connect(t.Context(), dsn, queue.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer h.Log.Close()
	ctx, stop := context.WithCancel(t.Context())
	var ahead float64
	var asked error
	if err := h.Enqueue(ctx, queue.Job{RunID: "t/1"}); err != nil {
		t.Fatal(err)
	}
	err = h.Work(ctx, func(ctx context.Context, _ queue.Lease) error {
		defer stop()
		ahead, asked = leaseEnds(ctx, pool)
		return asked
	})
	if err != nil || asked != nil {
		t.Fatal(err, asked)
	}
	if ahead < 2 || ahead > 4 {
		t.Errorf("the lease ends in %.1f hours, by the clock of this machine", ahead)
	}
}

// TestTheServersClockIsAskedAgain sets the server's clock while a host is at work, whose
// leases soon go by it.
func TestTheServersClockIsAskedAgain(t *testing.T) {
	dsn, pool, set := serverWithItsOwnClock(t)
	h, err := connect(t.Context(), dsn, queue.Config{Lease: time.Second}) // after a third of which it is asked
	if err != nil {
		t.Fatal(err)
	}
	defer h.Log.Close()
	ctx, stop := context.WithTimeout(t.Context(), awaitTime)
	defer stop()
	stopped := make(chan error, 1)
	go func() { stopped <- h.Work(ctx, func(context.Context, queue.Lease) error { return nil }) }()
	for _, hours := range []int{3, 6} {
		set(hours)
		for {
			ahead, err := leaseEnds(ctx, pool)
			if err != nil {
				t.Fatalf("waiting for a lease that ends in %d hours: %v", hours, err)
			}
			if ahead > float64(hours)-1 {
				break
			}
		}
	}
	stop()
	if err := <-stopped; err != nil {
		t.Error(err)
	}
}

// TestRightsAreGrantedAtOnce, as by several hosts that are brought up to date together.
func TestRightsAreGrantedAtOnce(t *testing.T) {
	dsn := pgtest.Database(t)
	if err := riverqueue.Migrate(t.Context(), dsn); err != nil {
		t.Fatal(err)
	}
	config, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		t.Fatal(err)
	}
	role := config.ConnConfig.User
	var granting sync.WaitGroup
	for range 8 {
		granting.Go(func() {
			if err := riverqueue.Grant(t.Context(), dsn, role, role); err != nil {
				t.Error(err)
			}
		})
	}
	granting.Wait()
}
