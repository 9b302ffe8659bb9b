package pglog

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/eventlog/internal/pending"
	"github.com/starling-host/starling/eventlog/logtest"
)

// connectTo returns a connection that has nothing to do with a log.
func connectTo(t testing.TB, dsn string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close(context.Background()) })
	return conn
}

func execute(t testing.TB, conn *pgx.Conn, sql string, args ...any) {
	t.Helper()
	if _, err := conn.Exec(t.Context(), sql, args...); err != nil {
		t.Fatal(err)
	}
}

// storeByHand stores an event as a program does that keeps no table of runs.
func storeByHand(t testing.TB, conn *pgx.Conn, e event.Event) {
	t.Helper()
	execute(t, conn, "INSERT INTO eventlog_events VALUES ($1, $2, $3, $4, $5, $6)", e.RunID, e.Seq, e.PrevHash, e.Timestamp, e.Kind, []byte(e.Payload))
}

// TestConflictInABatch commits conflicts of both kinds together with events of other
// runs: with a writer that keeps the table of runs, and with a writer that does not.
func TestConflictInABatch(t *testing.T) {
	t.Parallel()
	l, dsn := open(t)
	conn := connectTo(t, dsn)
	a, b := logtest.Chain{RunID: "a"}, logtest.Chain{RunID: "b"}
	storeAll(t, l, a.Start("g"), b.Start("g"))
	other := a
	storeByHand(t, conn, other.Effect(1))
	other = b
	storeAll(t, openAt(t, dsn, Options{}), other.Effect(1))

	var waits sync.WaitGroup
	for i := range 20 {
		evs := logtest.Finished(fmt.Sprintf("run-%d", i), 5)
		waits.Go(func() { storeAll(t, l, evs...) })
	}
	for _, c := range []*logtest.Chain{&a, &b} {
		err := l.Append(t.Context(), c.RunID, c.Effect(2))
		if err = errors.Join(err, l.Sync(t.Context(), c.RunID)); !errors.Is(err, eventlog.ErrInvalidAppend) || errors.Is(err, eventlog.ErrFenced) {
			t.Errorf("run %s: %v", c.RunID, err)
		}
	}
	waits.Wait()
	for i := range 20 {
		if _, err := eventlog.CheckRun(t.Context(), l, fmt.Sprintf("run-%d", i), eventlog.CheckOptions{Strict: true}); err != nil {
			t.Error(err)
		}
	}
}

// TestABatchIsWrittenRunByRunIfNeedBe writes a batch with an event that a program
// without a table of runs has already written.
func TestABatchIsWrittenRunByRunIfNeedBe(t *testing.T) {
	t.Parallel()
	l, dsn := open(t)
	var items []item
	for _, id := range []string{"a", "b", "c"} {
		c := logtest.Chain{RunID: id}
		e, at := c.Start("g"), eventlog.Cursor{}
		if err := at.Append(id, e); err != nil {
			t.Fatal(err)
		}
		items = append(items, item{Run: &run{ID: id}, Event: e, After: at.Run()})
	}
	var b batch
	b.fill(items)
	storeByHand(t, connectTo(t, dsn), b.items[1].Event)
	n := &writer{log: l}
	defer n.disconnect()
	lost, err := n.attempt(&b, false)
	if err != nil || len(lost) != 1 || !errors.Is(lost[b.runs[1]], eventlog.ErrInvalidAppend) {
		t.Errorf("%v, %v", lost, err)
	}
	if runs, err := l.ListRuns(t.Context()); err != nil || len(runs) != 3 {
		t.Errorf("%v, %v", runs, err)
	}
}

func TestTablesThatANewerProgramMigratesStopTheLog(t *testing.T) {
	t.Parallel()
	l, dsn := open(t)
	storeAll(t, l, logtest.Finished("run-1", 1)...)
	execute(t, connectTo(t, dsn), "UPDATE table_set SET steps = $2 WHERE name = $1", layoutSet, layoutVersion+1)
	c := logtest.Chain{RunID: "run-2"}
	if err := l.Append(t.Context(), "run-2", c.Start("g")); err != nil {
		t.Fatal(err)
	}
	err := l.Sync(t.Context(), "run-2")
	if !errors.Is(err, eventlog.ErrSchemaTooNew) || !errors.Is(err, eventlog.ErrLogStopped) {
		t.Errorf("Sync: %v", err)
	}
	if got, err := l.Read(t.Context(), "run-1"); err != nil || len(got) != 5 {
		t.Errorf("reading a log that has stopped: %d events, %v", len(got), err)
	}
	if err := l.Close(); !errors.Is(err, eventlog.ErrLogStopped) {
		t.Errorf("Close: %v", err)
	}
	if _, err := Open(t.Context(), dsn, Options{AutoMigrate: true}); !errors.Is(err, eventlog.ErrSchemaTooNew) {
		t.Errorf("Open: %v", err)
	}
}

func TestFinishedRunsAreForgotten(t *testing.T) {
	t.Parallel()
	l, _ := open(t)
	for i := range 100 {
		storeAll(t, l, logtest.Finished(fmt.Sprintf("run-%d", i), 1)...)
	}
	for range 100 {
		c := logtest.Chain{RunID: "refused"}
		c.Start("g")
		if err := l.Append(t.Context(), "refused", c.Effect(1)); err == nil {
			t.Error("accepted")
		}
	}
	if n := len(l.runs.AtWork()); n != 0 {
		t.Errorf("%d runs are kept", n)
	}
}

// TestAFullQueueBlocksUntilTheContextEnds locks the run, so that the writer cannot continue.
func TestAFullQueueBlocksUntilTheContextEnds(t *testing.T) {
	t.Parallel()
	l, dsn := open(t)
	c := logtest.Chain{RunID: "run-1"}
	storeAll(t, l, c.Start("g"))
	holder := connectTo(t, dsn)
	execute(t, holder, "BEGIN")
	execute(t, holder, "SELECT FROM run WHERE run_id = 'run-1' FOR UPDATE")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var err error
	e := c.Effect(1)
	taken := 1
	for ; taken < 2*(pending.MaxQueued+pending.MaxBatch); taken++ {
		if err = l.Append(ctx, "run-1", e); err != nil {
			break
		}
		e = c.Effect(1)
		if l.runs.Queued() == pending.MaxQueued {
			cancel() // the next caller that finds no room has to give up
		}
	}
	if !errors.Is(err, context.Canceled) || taken < pending.MaxQueued {
		t.Errorf("%d events were taken: %v", taken, err)
	}
	if err := l.Sync(ctx, "run-1"); !errors.Is(err, context.Canceled) {
		t.Errorf("Sync: %v", err)
	}
	execute(t, holder, "ROLLBACK")
	if err := l.Append(t.Context(), "run-1", e); err != nil { // the refused event was not counted
		t.Error(err)
	}
	if got, err := l.Read(t.Context(), "run-1"); err != nil || len(got) != taken+1 {
		t.Errorf("%d events, want %d: %v", len(got), taken+1, err)
	}
}

func TestRunIDsThatTheServerCannotHold(t *testing.T) {
	t.Parallel()
	l, _ := open(t)
	for _, id := range []string{"a\x00b", "\xff"} {
		c := logtest.Chain{RunID: id}
		if err := l.Append(t.Context(), id, c.Start("g")); !errors.Is(err, eventlog.ErrInvalidAppend) {
			t.Errorf("Append: %v", err)
		}
		if _, err := l.Read(t.Context(), id); !errors.Is(err, eventlog.ErrRunNotFound) {
			t.Errorf("Read: %v", err)
		}
		if _, err := l.Run(t.Context(), id); !errors.Is(err, eventlog.ErrRunNotFound) {
			t.Errorf("Run: %v", err)
		}
		for _, o := range []eventlog.RunPageOptions{{Query: id}, {Namespace: id}} {
			if page, err := l.ListRunsPage(t.Context(), o); err != nil || page.TotalMatching != 0 {
				t.Errorf("%+v: %+v, %v", o, page, err)
			}
		}
	}
}

func TestTheServersTransactionIsAtHand(t *testing.T) {
	t.Parallel()
	l, _ := open(t)
	if err := l.CreateTables(t.Context(), counter); err != nil {
		t.Fatal(err)
	}
	sorry := errors.New("sorry")
	for _, want := range []error{nil, sorry} {
		err := l.Transact(t.Context(), func(tx eventlog.Tx) error {
			_, err := tx.(*Tx).On.(querier).q.Exec(t.Context(), "UPDATE counter SET n = n + 1")
			return errors.Join(err, want)
		})
		if !errors.Is(err, want) {
			t.Error(err)
		}
	}
	if n := count(t, l); n != 1 {
		t.Errorf("the counter is at %d", n)
	}
}

// TestATransactionGetsAtARunThatIsWrittenAllTheTime gives the run of a writer that never
// waits to another one, and continues it in the same transaction.
func TestATransactionGetsAtARunThatIsWrittenAllTheTime(t *testing.T) {
	t.Parallel()
	l, dsn := open(t)
	other := openAt(t, dsn, Options{}) // before the writer begins, which writes only that much
	c := logtest.Chain{RunID: "run-1"}
	storeAll(t, l, c.Start("g"))
	var old sync.WaitGroup
	begun := make(chan struct{})
	old.Go(func() {
		for i := range 200_000 {
			if i == 1000 {
				close(begun)
			}
			if err := l.Append(t.Context(), "run-1", c.Effect(1)); err != nil {
				if !errors.Is(err, eventlog.ErrFenced) {
					t.Error(err)
				}
				return
			}
		}
		t.Error("the transaction never got its turn")
	})
	<-begun
	claim := logtest.Chain{RunID: "run-1"}
	err := other.Transact(t.Context(), func(tx eventlog.Tx) error {
		e, last := claim.Effect(2), int64(0)
		_, err := tx.Fence("run-1")
		if err == nil {
			err = tx.Query("SELECT last_seq, head FROM run WHERE run_id = $1", []any{"run-1"}, func(r eventlog.Row) error {
				return r.Scan(&last, &e.PrevHash)
			})
		}
		if err != nil {
			return err
		}
		e.Seq = uint64(last) + 1
		return tx.Append("run-1", e)
	})
	if err != nil {
		t.Error(err)
	}
	old.Wait()
	if _, err := eventlog.CheckRun(t.Context(), l, "run-1", eventlog.CheckOptions{Strict: true, AllowOpen: true}); err != nil {
		t.Error(err)
	}
}

func TestNothingIsLeftOfANamespace(t *testing.T) {
	t.Parallel()
	l, dsn := open(t)
	for _, id := range []string{"a/begun", "a/empty", "b/begun", "b/empty"} {
		var epoch uint64
		err := l.Transact(t.Context(), func(tx eventlog.Tx) (err error) {
			epoch, err = tx.Fence(id)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasSuffix(id, "begun") {
			storeAll(t, l.Fenced(id, epoch), logtest.Finished(id, 1)...)
		}
	}
	if runs, err := l.ListRuns(t.Context()); err != nil || len(runs) != 2 {
		t.Errorf("%+v, %v", runs, err)
	}
	report, err := l.PruneRuns(t.Context(), eventlog.PruneOptions{Namespace: "a", IncludeOpen: true})
	if err != nil || report.Runs != 1 {
		t.Errorf("%+v, %v", report, err)
	}
	for ns, want := range map[string]int{"a": 0, "b": 2} {
		var rows int
		err := connectTo(t, dsn).QueryRow(t.Context(), "SELECT count(*) FROM run WHERE starts_with(run_id, $1)", ns+"/").Scan(&rows)
		if err != nil || rows != want {
			t.Errorf("%s has %d rows, %v", ns, rows, err)
		}
	}
}

// TestTransactionsThatBeginRunsDoNotDisturbEachOther enqueues runs from eight goroutines.
// Nearly every transaction has to succeed at once.
func TestTransactionsThatBeginRunsDoNotDisturbEachOther(t *testing.T) {
	t.Parallel()
	l, _ := open(t)
	err := l.CreateTables(t.Context(), eventlog.TableSet{Name: "job", Steps: []string{"CREATE TABLE job (id TEXT PRIMARY KEY)"}})
	if err != nil {
		t.Fatal(err)
	}
	const goroutines, each = 8, 40
	var attempts atomic.Int64
	enqueue := func(c logtest.Chain) error {
		first := c.Start("g")
		return l.Transact(t.Context(), func(tx eventlog.Tx) error {
			attempts.Add(1)
			_, err := tx.Exec("INSERT INTO job VALUES ($1)", c.RunID)
			return errors.Join(err, tx.Append(c.RunID, first))
		})
	}
	var all sync.WaitGroup
	for range goroutines {
		all.Go(func() {
			for range each {
				if err := enqueue(logtest.Chain{RunID: "tenant/" + event.NewID()}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	if n := attempts.Load(); n > goroutines*each*5/4 {
		t.Errorf("%d attempts for %d transactions", n, goroutines*each)
	}
	again := logtest.Chain{RunID: "tenant/again"}
	first, second := enqueue(again), l.Transact(t.Context(), func(tx eventlog.Tx) error { return tx.Append(again.RunID, again.Start("g")) })
	if first != nil || !errors.Is(second, eventlog.ErrInvalidAppend) {
		t.Errorf("a run is begun twice: %v, %v", first, second)
	}
}
