package queue_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/store"
	"github.com/starling-host/starling/internal/pgtest"
	"github.com/starling-host/starling/internal/queuetest"
	"github.com/starling-host/starling/serve/queue"
	"github.com/starling-host/starling/serve/tenant"
)

func TestMain(m *testing.M) { queuetest.Main(m, connect) }

// connect opens the log at the address and the queue in it.
func connect(ctx context.Context, address string, cfg queue.Config) (queuetest.Host, error) {
	log, err := openLog(ctx, address)
	if err != nil {
		return queuetest.Host{}, err
	}
	q, err := queue.Open(ctx, log.(eventlog.Transactor), cfg)
	return queuetest.Host{Queue: q, Log: log}, err
}

func openLog(ctx context.Context, address string) (eventlog.EventLog, error) {
	if strings.HasPrefix(address, "postgres://") {
		return store.OpenServer(ctx, address, store.ServerOptions{AutoMigrate: true})
	}
	return store.OpenFile(ctx, address, store.FileOptions{})
}

// file is the address of a new SQLite file.
func file(t testing.TB) string { return filepath.Join(t.TempDir(), "log.db") }

func TestQueueOnSQLite(t *testing.T)   { t.Parallel(); queuetest.Run(t, connect, file) }
func TestQueueOnPostgres(t *testing.T) { t.Parallel(); queuetest.Run(t, connect, pgtest.Database) }

func TestKilledProcessesLoseNothing(t *testing.T) {
	t.Parallel()
	for name, create := range map[string]func(testing.TB) string{"SQLite": file, "PostgreSQL": pgtest.Database} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			queuetest.Kill(t, connect, create(t))
		})
	}
}

// awaitTime is how long a test waits for an event that must come, on however slow a machine.
const awaitTime = 2 * time.Minute

// onServer opens a queue in a new database of a server, and a pool beside it.
func onServer(t *testing.T, cfg queue.Config) (h queuetest.Host, pool *pgxpool.Pool, dsn string) {
	t.Helper()
	dsn = pgtest.Database(t)
	pool, err := pgxpool.New(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return join(t, dsn, cfg), pool, dsn
}

// join opens a queue for one more host.
func join(t *testing.T, address string, cfg queue.Config) queuetest.Host {
	t.Helper()
	h, err := connect(t.Context(), address, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { h.Log.Close() })
	return h
}

// atWork runs a host until the test ends.
func atWork(t *testing.T, h queuetest.Host, handle queue.Handler) {
	ctx, stop := context.WithCancel(t.Context())
	stopped := make(chan error, 1)
	go func() { stopped <- h.Work(ctx, handle) }()
	t.Cleanup(func() {
		stop()
		if err := <-stopped; err != nil {
			t.Error(err)
		}
	})
}

// arrives waits for the next value.
func arrives[T any](t *testing.T, from <-chan T, what string) (v T) {
	t.Helper()
	select {
	case v = <-from:
	case <-time.After(awaitTime):
		t.Fatalf("%s: nothing came", what)
	}
	return v
}

// TestQueueJobsDoNotWaitForThePoll runs a host that never polls, on a server. Signals reach it
// for jobs that it and another process enqueue; for each cancellation there; and for
// jobs of another tenant while one tenant is at its limit.
func TestQueueJobsDoNotWaitForThePoll(t *testing.T) {
	t.Parallel()
	never := queue.Config{Poll: time.Hour, Lease: 24 * time.Hour, Grace: -1, Limits: func(tenant string) queue.Limits {
		return queue.Limits{MaxRunning: map[string]int{"capped": 1}[tenant]}
	}}
	h, _, dsn := onServer(t, never)
	other := join(t, dsn, never)
	began, ended := make(chan string, 1), make(chan error, 1)
	atWork(t, h, func(ctx context.Context, l queue.Lease) error {
		began <- l.RunID
		if !l.Cancelled && l.Tenant != "" {
			<-ctx.Done()
			ended <- context.Cause(ctx)
		}
		return nil
	})
	enqueue := func(from queuetest.Host, j queue.Job) {
		t.Helper()
		if err := from.Enqueue(t.Context(), j, nil); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 10 {
		for name, from := range map[string]queuetest.Host{"own": h, "other": other} {
			j := queue.Job{RunID: fmt.Sprint(name, i)}
			enqueue(from, j)
			if run := arrives(t, began, j.RunID); run != j.RunID {
				t.Errorf("%s was handed out", run)
			}
		}
	}
	for _, j := range []queue.Job{{RunID: "capped/1", Tenant: "capped"}, {RunID: "free/1", Tenant: "free"}} {
		enqueue(other, j)
		enqueue(other, queue.Job{RunID: "capped/2." + j.Tenant, Tenant: "capped"})
		if run := arrives(t, began, j.RunID); run != j.RunID {
			t.Errorf("%s was handed out", run)
		}
	}
	if err := other.Cancel(t.Context(), "free/1"); err != nil {
		t.Fatal(err)
	}
	if cause := arrives(t, ended, "the end of what was cancelled"); cause != queue.ErrCancelled {
		t.Error(cause)
	}
	if err := other.Cancel(t.Context(), "capped/2.free"); err != nil {
		t.Fatal(err)
	}
	if run := arrives(t, began, "what was cancelled while it waited"); run != "capped/2.free" {
		t.Errorf("%s was handed out", run)
	}
}

// TestQueueHostsDoNotWaitForEachOther holds up the one process that hands out jobs, as when it stops within
// its transaction. The others accept jobs, cancel them and finish theirs, and count all of it; they hand
// out jobs when the lock is gone.
func TestQueueHostsDoNotWaitForEachOther(t *testing.T) {
	t.Parallel()
	h, pool, dsn := onServer(t, queue.Config{Workers: 2, Lease: time.Hour, MaxWaiting: 4, Limits: func(string) queue.Limits { return queue.Limits{MaxWaiting: 3} }})
	other := join(t, dsn, queue.Config{})
	began, end := make(chan string, 9), make(chan bool)
	atWork(t, h, func(_ context.Context, l queue.Lease) error {
		began <- l.RunID
		l.Used(tenant.DayUsage{Fuel: 7})
		<-end
		return nil
	})
	enqueue := func(run string) error {
		ctx, stop := context.WithTimeout(t.Context(), awaitTime)
		defer stop()
		return h.Enqueue(ctx, queue.Job{RunID: run, Tenant: run[:1]}, nil)
	}
	if err := enqueue("a/first"); err != nil {
		t.Fatal(err)
	}
	arrives(t, began, "the first job")
	stopped, err := pool.Begin(t.Context())
	if err == nil {
		_, err = stopped.Exec(t.Context(), "SELECT 1 FROM queue_state WHERE id = 1 FOR UPDATE")
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		run  string
		want error
	}{{"a/1", nil}, {"a/2", nil}, {"a/3", nil}, {"a/4", queue.ErrTenantFull}, {"b/1", nil}, {"b/2", queue.ErrFull}} {
		if err := enqueue(step.run); !errors.Is(err, step.want) {
			t.Fatalf("%s: %v, want %v", step.run, err, step.want)
		}
	}
	if err := other.Cancel(t.Context(), "a/2"); err != nil {
		t.Error(err)
	}
	if err := other.Enqueue(t.Context(), queue.Job{RunID: "c/1", Tenant: "c"}, nil); err != nil {
		t.Error(err)
	}
	end <- true
	want := map[string]queue.Stats{"a": {Waiting: 3}, "b": {Waiting: 1}, "c": {Waiting: 1}}
	for deadline := time.Now().Add(awaitTime); ; {
		loads, err := other.Loads(t.Context())
		for name, l := range loads {
			if l.Oldest.IsZero() {
				t.Fatalf("the oldest job of %s is from no time", name)
			}
			l.Oldest = time.Time{}
			loads[name] = l
		}
		if err == nil && maps.Equal(loads, want) {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("%+v, %v, want %+v", loads, err, want)
		}
	}
	if u, err := other.Usage(t.Context(), "a", 2); err != nil || len(u) != 1 || u[0].Runs != 1 || u[0].Fuel != 7 {
		t.Errorf("usage %+v, %v", u, err)
	}
	select {
	case run := <-began:
		t.Errorf("%s was handed out while another process may be at it", run)
	default:
	}
	if err := stopped.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	close(end)
	for range 5 {
		arrives(t, began, "a job")
	}
	for deadline := time.Now().Add(awaitTime); ; {
		if s, err := other.Stats(t.Context()); err == nil && s == (queue.Stats{}) {
			break
		} else if time.Now().After(deadline) {
			t.Fatalf("%+v, %v", s, err)
		}
	}
	if u, err := other.Usage(t.Context(), "a", 2); err != nil || len(u) != 1 || u[0].Runs != 5-1 || u[0].Fuel != 7*4 {
		t.Errorf("usage %+v, %v", u, err)
	}
}

// TestQueueCountsAreRecounted when a process begins to work, should they be wrong.
func TestQueueCountsAreRecounted(t *testing.T) {
	t.Parallel()
	h, pool, _ := onServer(t, queue.Config{})
	for _, run := range []string{"a/1", "b/1"} {
		if err := h.Enqueue(t.Context(), queue.Job{RunID: run, Tenant: run[:1]}, nil); err != nil {
			t.Fatal(err)
		}
	}
	const drift = `DELETE FROM queue_change WHERE tenant = 'a';
		INSERT INTO queue_tenant (tenant, tag, open, ready, sleeping, running, ending) VALUES ('gone', 0, 3, 3, 2, 1, 5)`
	if _, err := pool.Exec(t.Context(), drift); err != nil {
		t.Fatal(err)
	}
	began := make(chan string, 2)
	atWork(t, h, func(_ context.Context, l queue.Lease) error { began <- l.RunID; return nil })
	for range 2 {
		arrives(t, began, "a job")
	}
	for deadline := time.Now().Add(awaitTime); ; {
		loads, err := h.Loads(t.Context())
		if err == nil && len(loads) == 0 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("%+v, %v", loads, err)
		}
	}
}

// TestQueueReservedWorkerTakesTheNextJob enqueues more jobs of one tenant than there are
// workers, the last of which are reserved for others. Each job is handed out as soon as
// another is done; no poll finds it.
func TestQueueReservedWorkerTakesTheNextJob(t *testing.T) {
	t.Parallel()
	for name, create := range map[string]func(testing.TB) string{"SQLite": file, "PostgreSQL": pgtest.Database} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := join(t, create(t), queue.Config{Poll: time.Hour, Lease: 24 * time.Hour, Workers: 16, Grace: -1})
			for i := range 24 {
				if err := h.Enqueue(t.Context(), queue.Job{RunID: fmt.Sprint("t/", i), Tenant: "t"}, nil); err != nil {
					t.Fatal(err)
				}
			}
			began, next := make(chan bool, 24), make(chan bool)
			atWork(t, h, func(ctx context.Context, _ queue.Lease) error {
				began <- true
				select {
				case <-next:
				case <-ctx.Done():
				}
				return nil
			})
			for i := range 24 {
				if i >= 14 {
					next <- true
				}
				arrives(t, began, fmt.Sprint("job ", i))
			}
		})
	}
}

// TestQueueAtRestMakesNoStatements: while its one job runs and no request comes, a
// host makes no transactions. Each transaction would leave a mark.
func TestQueueAtRestMakesNoStatements(t *testing.T) {
	h, pool, _ := onServer(t, queue.Config{Poll: time.Hour, Lease: 24 * time.Hour})
	if err := h.Enqueue(t.Context(), queue.Job{RunID: "t/1"}, nil); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var first, made int64
	err := h.Work(ctx, func(ctx context.Context, _ queue.Lease) error {
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

// serverWithItsOwnClock returns a database whose clock is ahead of this machine's by
// the hours given to set: a function of the test precedes the real one in the search
// path.
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

// TestLeasesGoByTheServersClock, which is hours ahead of this machine's and is set while a
// host is at work.
func TestLeasesGoByTheServersClock(t *testing.T) {
	t.Parallel()
	dsn, pool, set := serverWithItsOwnClock(t)
	set(3)
	h := join(t, dsn, queue.Config{Lease: time.Second}) // its Ready is called again after a third of that
	atWork(t, h, func(context.Context, queue.Lease) error { return nil })
	for _, hours := range []int{3, 6} {
		set(hours)
		for deadline := time.Now().Add(awaitTime); ; {
			var until int64
			if err := pool.QueryRow(t.Context(), "SELECT coalesce(max(until), 0) FROM ahead.queue_host").Scan(&until); err != nil {
				t.Fatal(err)
			}
			if ahead := time.Until(time.Unix(0, until)).Hours(); ahead > float64(hours)-1 && ahead < float64(hours)+1 {
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("no lease ends in %d hours, by the clock of this machine", hours)
			}
		}
	}
}
