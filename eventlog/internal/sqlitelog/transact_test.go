package sqlitelog

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/eventlog/logtest"
)

// TestAWriterNoticesATransaction continues the run in a transaction between two
// appends.
func TestAWriterNoticesATransaction(t *testing.T) {
	t.Parallel()
	l := open(t)
	c := logtest.Chain{RunID: "r"}
	storeAll(t, l, []event.Event{c.Start("g"), c.Effect(1)})
	if err := l.Transact(t.Context(), func(tx eventlog.Tx) error { return tx.Append("r", c.Effect(2)) }); err != nil {
		t.Fatal(err)
	}
	storeAll(t, l, []event.Event{c.Effect(3), c.Complete()})
	if _, err := eventlog.CheckRun(t.Context(), l, "r", eventlog.CheckOptions{Strict: true}); err != nil {
		t.Error(err)
	}
	if n := len(l.runs.AtWork()); n != 0 {
		t.Errorf("%d runs are kept", n)
	}
}

// TestTablesThatAFileMayNotHave are refused when they are made, and not when the
// file is opened again.
func TestTablesThatAFileMayNotHave(t *testing.T) {
	t.Parallel()
	l := open(t)
	storeAll(t, l, logtest.Finished("run-1", 1))
	for _, sql := range []string{
		"CREATE TABLE a (n INTEGER); CREATE VIEW v AS SELECT 1",
		"CREATE TABLE a (n INTEGER); CREATE TRIGGER tr AFTER INSERT ON a BEGIN DELETE FROM run; END",
		"CREATE INDEX i ON run (head)",
		"DROP TABLE run",
	} {
		err := l.CreateTables(t.Context(), eventlog.TableSet{Name: "a", Steps: []string{sql}})
		if !errors.Is(err, eventlog.ErrLogCorrupt) {
			t.Errorf("%s: %v", sql, err)
		}
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	readAll(t, openAt(t, l.path, Options{}))
}

// TestFilesOfEarlierCommits are read, and not written.
func TestFilesOfEarlierCommits(t *testing.T) {
	t.Parallel()
	l := open(t)
	storeAll(t, l, logtest.Finished("run-1", 1))
	newVandal(t, l).exec("DROP TABLE module_use; DROP TABLE module; DROP TABLE table_set; " + unsizedModuleTable)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	set := eventlog.TableSet{Name: "a", Steps: []string{"CREATE TABLE a (n INTEGER)"}}
	ro := openAt(t, l.path, Options{ReadOnly: true})
	readAll(t, ro)
	if err := ro.CreateTables(t.Context(), set); !errors.Is(err, eventlog.ErrReadOnly) {
		t.Errorf("CreateTables: %v", err)
	}
	_, err := Open(t.Context(), l.path, Options{})
	if missing, ok := errors.AsType[*eventlog.MissingTableError](err); !ok || missing.Table != "module_use" {
		t.Errorf("opened for writing: %v", err)
	}
}

// TestAFunctionThatEndsItsGoroutine does so as a failing test does.
func TestAFunctionThatEndsItsGoroutine(t *testing.T) {
	t.Parallel()
	l := open(t)
	done := make(chan struct{})
	go func() {
		defer close(done)
		l.Transact(t.Context(), func(tx eventlog.Tx) error {
			c := logtest.Chain{RunID: "r"}
			tx.Append("r", c.Start("g"))
			runtime.Goexit()
			return nil
		})
	}()
	<-done
	storeAll(t, l, logtest.Finished("r", 1))
}

// TestATransactionIsRunAgainWithoutTheRunThatIsLost puts a transaction into one
// batch with an event of a run that another process has continued.
func TestATransactionIsRunAgainWithoutTheRunThatIsLost(t *testing.T) {
	t.Parallel()
	l := open(t)
	c := logtest.Chain{RunID: "shared"}
	storeAll(t, l, []event.Event{c.Start("g")})
	other := c
	newVandal(t, l).exec(insertEventSQL, eventValues(other.Effect(1))...)
	release := holdWriter(t, l)
	ran := 0
	done := make(chan error)
	go func() {
		done <- l.Transact(t.Context(), func(tx eventlog.Tx) error {
			ran++
			return tx.Append("r", logtest.Finished("r", 1)[0])
		})
	}()
	waitForQueue(t, l, 1)
	if err := l.Append(t.Context(), "shared", c.Effect(2)); err != nil {
		t.Fatal(err)
	}
	release()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if err := l.Sync(t.Context(), "shared"); err == nil || !strings.Contains(err.Error(), "concurrent append") {
		t.Errorf("the run that is lost: %v", err)
	}
	if got, err := l.Read(t.Context(), "r"); err != nil || len(got) != 1 || ran < 2 {
		t.Errorf("%d events after %d attempts, %v", len(got), ran, err)
	}
}

// TestAFunctionThatFailsUndoesItselfAlone puts two failing transactions into one batch
// with others and an event.
func TestAFunctionThatFailsUndoesItselfAlone(t *testing.T) {
	t.Parallel()
	l := open(t)
	release := holdWriter(t, l)
	failure := errors.New("on purpose")
	var done [4]chan error
	for i := range done {
		done[i] = make(chan error)
		go func() {
			done[i] <- l.Transact(t.Context(), func(tx eventlog.Tx) error {
				id := fmt.Sprint("r", i)
				if _, err := tx.Fence(id); err != nil {
					return err
				}
				if err := tx.Append(id, logtest.Finished(id, 1)[0]); err != nil || i%2 == 0 {
					return err
				}
				return failure
			})
		}()
		waitForQueue(t, l, i+1)
	}
	if err := l.Append(t.Context(), "beside", logtest.Finished("beside", 1)[0]); err != nil {
		t.Fatal(err)
	}
	release()
	for i := range done {
		want, events := error(nil), 1
		if i%2 == 1 {
			want, events = failure, 0
		}
		if err := <-done[i]; !errors.Is(err, want) {
			t.Errorf("transaction %d: %v, want %v", i, err, want)
		}
		if got, err := l.Read(t.Context(), fmt.Sprint("r", i)); len(got) != events {
			t.Errorf("transaction %d: %d events, %v", i, len(got), err)
		}
	}
	if err := l.Sync(t.Context(), "beside"); err != nil {
		t.Error(err)
	}
}

// holdWriter keeps the writer waiting for the lock, with one event, until release is
// called. What comes meanwhile is its next batch.
func holdWriter(t *testing.T, l *Log) (release func()) {
	lock, err := openLock(l.path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { lock.Close() })
	if err := lock.Lock(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := l.Append(t.Context(), "other", logtest.Finished("other", 1)[0]); err != nil {
		t.Fatal(err)
	}
	waitForQueue(t, l, 0)
	return func() {
		if err := lock.Unlock(); err != nil {
			t.Fatal(err)
		}
	}
}

// waitForQueue waits until n entries of the queue wait for the writer.
func waitForQueue(t testing.TB, l *Log, n int) {
	for l.runs.Queued() != n && t.Context().Err() == nil {
		runtime.Gosched()
	}
}

// TestAViewThatIsGivenUp views the log with contexts that end at any moment. No
// reader is left in a transaction, where it would keep seeing an old state.
func TestAViewThatIsGivenUp(t *testing.T) {
	t.Parallel()
	l := open(t)
	storeAll(t, l, logtest.Finished("before", 1))
	runs := func(ctx context.Context) (n int64, err error) {
		err = l.View(ctx, func(q eventlog.Querier) error {
			return q.Query("SELECT count(*) FROM run", nil, func(row eventlog.Row) error { return row.Scan(&n) })
		})
		return n, err
	}
	for range 20_000 {
		ctx, cancel := context.WithCancel(t.Context())
		go cancel()
		if _, err := runs(ctx); err != nil && !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		cancel()
	}
	storeAll(t, l, logtest.Finished("after", 1))
	for range 2 * maxReaders {
		if n, err := runs(t.Context()); n != 2 || err != nil {
			t.Fatalf("%d runs are seen of 2: %v", n, err)
		}
	}
}
