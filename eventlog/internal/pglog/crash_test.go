package pglog

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/logtest"
	"github.com/starling-host/starling/internal/await"
	"github.com/starling-host/starling/internal/pgtest"
	"github.com/starling-host/starling/internal/treetest"
)

// TestACrashOfTheServerLosesNothing crashes the server under writers and transactions,
// and starts it again. The writers only see a longer wait.
func TestACrashOfTheServerLosesNothing(t *testing.T) {
	t.Parallel()
	crashes := treetest.Count(1, 1, 5)
	s := pgtest.Start(t)
	underLoad(t, s.Database(t), func(progress func()) {
		for range crashes {
			progress()
			s.Crash(t)
			s.Restart(t)
		}
	})
}

// TestAFailoverLosesNothing takes the standby away for a while, in which an operator ends all waits for
// it. Then the primary is lost, and the standby is promoted.
func TestAFailoverLosesNothing(t *testing.T) {
	t.Parallel()
	pair := pgtest.StartPair(t)
	_, dsn := pair.Database(t)
	underLoad(t, dsn, func(progress func()) {
		progress()
		pair.Standby.Crash(t)
		for range 20 {
			pair.Primary.Query(t, "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'")
		}
		pair.Primary.Crash(t)
		pair.Standby.Restart(t)
		pair.Promote(t)
	})
}

// underLoad lets writers and transactions work on a database while it is disturbed, and requires that
// all that was acknowledged is there at the end.
func underLoad(t *testing.T, dsn string, disturb func(progress func())) {
	t.Helper()
	l := openAt(t, dsn, Options{AutoMigrate: true})
	if err := l.CreateTables(t.Context(), counter); err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	t.Cleanup(all.Wait) // before the log is closed, even if the test has failed
	var acked, counted atomic.Int64
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	ends := make([]map[string]uint64, 8)
	for g := range ends {
		ends[g] = make(map[string]uint64)
		all.Go(func() { writeUntil(ctx, t, l, g, ends[g], &acked) })
	}
	all.Go(func() { countUntil(ctx, t, l, &counted) })
	disturb(func() {
		until(t, &acked, 200)
		until(t, &counted, 5)
	})
	until(t, &acked, 50)
	stop()
	all.Wait()
	for _, runs := range ends {
		for id, seq := range runs {
			r, err := eventlog.CheckRun(t.Context(), l, id, eventlog.CheckOptions{Strict: true, AllowOpen: true})
			if err != nil || r.Events < seq {
				t.Errorf("run %s: %d events, %d were acknowledged: %v", id, r.Events, seq, err)
			}
		}
	}
	if n := count(t, l); n != counted.Load() {
		t.Errorf("the counter is at %d after %d transactions that were committed", n, counted.Load())
	}
	t.Logf("%d barriers, %d transactions", acked.Load(), counted.Load())
}

// until waits until the counter has grown by n. It gives up when a counting goroutine
// has, or when a minute passes without progress.
func until(t testing.TB, counter *atomic.Int64, n int64) {
	t.Helper()
	from := counter.Load()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for counter.Load() < from+n {
		if t.Failed() || ctx.Err() != nil {
			t.Fatalf("%d of %d are counted", counter.Load()-from, n)
		}
		await.Pause(ctx, pause(0))
	}
}

// writeUntil records runs, each event with its barrier, and stores in ends how far
// each run is durable.
func writeUntil(ctx context.Context, t *testing.T, l *Log, g int, ends map[string]uint64, acked *atomic.Int64) {
	for n := 0; ctx.Err() == nil; n++ {
		for _, e := range logtest.Finished(fmt.Sprintf("%d/%d", g, n), 20) {
			if err := errors.Join(l.Append(t.Context(), e.RunID, e), l.Sync(t.Context(), e.RunID)); err != nil {
				t.Error(err)
				return
			}
			ends[e.RunID] = e.Seq
			acked.Add(1)
		}
	}
}

// counter is a table with one number.
var counter = eventlog.TableSet{Name: "counter", Tables: []string{"counter"}, Steps: []string{
	"CREATE TABLE counter (n BIGINT NOT NULL); INSERT INTO counter VALUES (0)",
}}

// countUntil increments the counter. A transaction that reports an error must not have
// been committed.
func countUntil(ctx context.Context, t *testing.T, l *Log, counted *atomic.Int64) {
	for ctx.Err() == nil {
		err := l.Transact(t.Context(), func(tx eventlog.Tx) error {
			_, err := tx.Exec("UPDATE counter SET n = n + 1")
			return err
		})
		if errors.Is(err, eventlog.ErrLogStopped) {
			t.Error(err)
			return
		}
		if err == nil {
			counted.Add(1)
		}
	}
}

func count(t testing.TB, l *Log) (n int64) {
	t.Helper()
	err := l.View(t.Context(), func(q eventlog.Querier) error {
		return q.Query("SELECT n FROM counter", nil, func(r eventlog.Row) error { return r.Scan(&n) })
	})
	if err != nil {
		t.Error(err)
	}
	return n
}

func TestALogWithoutRetriesStopsAndStartsAgain(t *testing.T) {
	t.Parallel()
	s := pgtest.Start(t, "fsync=off")
	dsn := s.Database(t)
	l := openAt(t, dsn, Options{AutoMigrate: true, RetryTime: -1})
	c := logtest.Chain{RunID: "run-1"}
	storeAll(t, l, c.Start("g"))
	s.Crash(t)
	lost := c.Effect(1)
	if err := l.Append(t.Context(), "run-1", lost); err != nil {
		t.Fatal(err)
	}
	for what, err := range map[string]error{
		"the barrier":      l.Sync(t.Context(), "run-1"),
		"the next barrier": l.Sync(t.Context(), "run-2"),
		"the next event":   l.Append(t.Context(), "run-1", c.Effect(1)),
		"a transaction":    l.Transact(t.Context(), func(eventlog.Tx) error { return nil }),
	} {
		if !errors.Is(err, eventlog.ErrLogStopped) {
			t.Errorf("%s: %v", what, err)
		}
	}
	s.Restart(t)
	if got, err := l.Read(t.Context(), "run-1"); err != nil || len(got) != 1 {
		t.Errorf("reading a log that has stopped: %d events, %v", len(got), err)
	}
	if err := l.Append(t.Context(), "run-1", lost); !errors.Is(err, eventlog.ErrLogStopped) {
		t.Errorf("the run that lost an event goes on: %v", err)
	}
	for end := time.Now().Add(time.Minute); l.Transact(t.Context(), func(eventlog.Tx) error { return nil }) != nil; time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the log does not start again")
		}
	}
	storeAll(t, l, logtest.Finished("run-3", 3)...)
	if err := l.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
	storeAll(t, openAt(t, dsn, Options{}), lost)
}

// TestABatchThatIsThereAlreadyIsNotAConflict writes the same batch twice, as after a
// connection that broke between the commit and its answer.
func TestABatchThatIsThereAlreadyIsNotAConflict(t *testing.T) {
	t.Parallel()
	l, _ := open(t)
	stored := func(c *logtest.Chain) item {
		e := c.Effect(1)
		at, _, err := l.index.Look(t.Context(), c.RunID)
		if err = errors.Join(err, at.Append(c.RunID, e)); err != nil {
			t.Fatal(err)
		}
		return item{Run: &run{ID: c.RunID}, Event: e, After: at.Run()}
	}
	a, other := logtest.Chain{RunID: "a"}, logtest.Chain{RunID: "b"}
	storeAll(t, l, a.Start("g"), other.Start("g"))
	theirs := other
	var b batch
	b.fill([]item{stored(&a), stored(&other)})
	storeAll(t, l, theirs.Effect(7)) // another process has taken over the second run by now

	n := &writer{log: l}
	defer n.disconnect()
	for attempt := range 3 {
		lost, err := n.attempt(&b, attempt > 0)
		if err != nil || lost[b.runs[0]] != nil || !errors.Is(lost[b.runs[1]], eventlog.ErrInvalidAppend) {
			t.Errorf("attempt %d: %v, %v", attempt, lost, err)
		}
	}
	for id, want := range map[string]int{"a": 2, "b": 2} {
		if evs, err := l.Read(t.Context(), id); err != nil || len(evs) != want {
			t.Errorf("run %s has %d events: %v", id, len(evs), err)
		}
	}
	lost, err := n.attempt(&b, false)
	if err != nil || lost[b.runs[0]] == nil {
		t.Errorf("another writer's event is taken for this one's: %v, %v", lost, err)
	}
}

func TestCommitOutcomeAfterLostAnswer(t *testing.T) {
	t.Parallel()
	l, _ := open(t)
	cause := errors.New("the connection broke")
	m := l.marks.take()
	for _, commits := range []bool{false, true, true, false} {
		tx, err := l.pool.Begin(t.Context())
		if err = errors.Join(err, m.leave(t.Context(), tx)); err != nil {
			t.Fatal(err)
		}
		found := make(chan error)
		go func() { found <- l.commitOutcome(m, cause) }() // while the server is still at work
		end := tx.Rollback
		if commits {
			end = tx.Commit
		}
		if err := end(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := <-found; (err == nil) != commits || !commits && !errors.Is(err, errUndone) {
			t.Errorf("committed: %v, found out: %v", commits, err)
		}
	}
	l.opts.RetryTime = -1
	execute(t, connectTo(t, l.pool.Config().ConnString()), "DROP TABLE commit_mark")
	if err := l.commitOutcome(m, cause); !errors.Is(err, eventlog.ErrLogStopped) || !errors.Is(err, cause) {
		t.Errorf("what cannot be found out: %v", err)
	}
}
