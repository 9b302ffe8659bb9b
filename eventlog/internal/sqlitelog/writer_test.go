package sqlitelog

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/eventlog/internal/pending"
	"github.com/starling-host/starling/eventlog/logtest"
)

// TestConflictInABatch commits a conflict together with events of other runs.
func TestConflictInABatch(t *testing.T) {
	t.Parallel()
	l := open(t)
	c := logtest.Chain{RunID: "shared"}
	start := c.Start("g")
	storeAll(t, l, []event.Event{start})
	v := newVandal(t, l)
	other := c
	v.exec(insertEventSQL, eventValues(other.Effect(1))...) // a program that keeps no table of runs
	var waits sync.WaitGroup
	for i := range 20 {
		evs := logtest.Finished(fmt.Sprintf("run-%d", i), 5)
		waits.Go(func() { storeAll(t, l, evs) })
	}
	if err := l.Append(t.Context(), "shared", c.Effect(2)); err != nil {
		t.Error(err)
	}
	if err := l.Sync(t.Context(), "shared"); !errors.Is(err, eventlog.ErrInvalidAppend) {
		t.Error(err)
	}
	waits.Wait()
	for i := range 20 {
		if _, err := eventlog.CheckRun(t.Context(), l, fmt.Sprintf("run-%d", i), eventlog.CheckOptions{Strict: true}); err != nil {
			t.Error(err)
		}
	}
}

func TestAFileThatANewerProgramMigratesStopsTheLog(t *testing.T) {
	t.Parallel()
	l := open(t)
	storeAll(t, l, logtest.Finished("run-1", 1))
	newVandal(t, l).exec("PRAGMA user_version=3")
	c := logtest.Chain{RunID: "run-2"}
	if err := l.Append(t.Context(), "run-2", c.Start("g")); err != nil {
		t.Fatal(err)
	}
	err := l.Sync(t.Context(), "run-2")
	if !errors.Is(err, eventlog.ErrSchemaTooNew) || !errors.Is(err, eventlog.ErrLogStopped) {
		t.Errorf("Sync: %v", err)
	}
	if _, err := l.PutModule(t.Context(), []byte("m")); !errors.Is(err, eventlog.ErrLogStopped) {
		t.Errorf("PutModule: %v", err)
	}
	if got, err := l.Read(t.Context(), "run-1"); err != nil || len(got) != 5 {
		t.Errorf("reading a log that has stopped: %d events, %v", len(got), err)
	}
	if err := l.Close(); !errors.Is(err, eventlog.ErrLogStopped) {
		t.Errorf("Close: %v", err)
	}
}

func TestFinishedRunsAreForgotten(t *testing.T) {
	t.Parallel()
	l := open(t)
	for i := range 500 {
		storeAll(t, l, logtest.Finished(fmt.Sprintf("run-%d", i), 1))
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

func TestOpenRunsAreForgottenWhenTheyAreMany(t *testing.T) {
	t.Parallel()
	l := open(t)
	chains := make([]logtest.Chain, pending.MaxIdleRuns+10)
	for i := range chains {
		chains[i].RunID = fmt.Sprintf("run-%d", i)
		if err := l.Append(t.Context(), chains[i].RunID, chains[i].Start("g")); err != nil {
			t.Fatal(err)
		}
		if i%1000 == 0 || i == pending.MaxIdleRuns-1 {
			if err := l.Sync(t.Context(), chains[i].RunID); err != nil {
				t.Fatal(err)
			}
		}
	}
	if n := len(l.runs.AtWork()); n > pending.MaxIdleRuns {
		t.Errorf("%d runs are kept", n)
	}
	storeAll(t, l, []event.Event{chains[0].Effect(1), chains[0].Complete()}) // read again from the file
	if _, err := eventlog.CheckRun(t.Context(), l, "run-0", eventlog.CheckOptions{Strict: true}); err != nil {
		t.Error(err)
	}
}

// TestAFullQueueBlocksUntilTheContextEnds holds the file's lock, so that the
// writer cannot continue.
func TestAFullQueueBlocksUntilTheContextEnds(t *testing.T) {
	t.Parallel()
	l := open(t)
	lock, err := openLock(l.path)
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	if err := lock.Lock(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	c := logtest.Chain{RunID: "run-1"}
	e := c.Start("g")
	taken := 0
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
	if err := lock.Unlock(); err != nil {
		t.Fatal(err)
	}
	if err := l.Append(t.Context(), "run-1", e); err != nil { // the refused event was not counted
		t.Error(err)
	}
	if got, err := l.Read(t.Context(), "run-1"); err != nil || len(got) != taken+1 {
		t.Errorf("%d events, want %d: %v", len(got), taken+1, err)
	}
}

func TestWaitingForTheLockEndsWithTheContext(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "log.db")
	holder, err := openLock(path)
	if err != nil {
		t.Fatal(err)
	}
	defer holder.Close()
	if err := holder.Lock(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if _, err := Open(ctx, path, Options{}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Open: %v", err)
	}
	if err := holder.Unlock(); err != nil {
		t.Fatal(err)
	}
	openAt(t, path, Options{}) // the abandoned wait gives the lock back
}

func TestWriteLockHasOneHolder(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "log.db")
	var contenders sync.WaitGroup
	var held sync.Mutex
	for range 8 {
		contenders.Go(func() {
			l, err := openLock(path)
			if err != nil {
				t.Error(err)
				return
			}
			defer l.Close()
			for range 100 {
				if err := l.Lock(t.Context()); err != nil || !held.TryLock() {
					t.Errorf("two hold the lock, or none: %v", err)
					return
				}
				runtime.Gosched()
				held.Unlock()
				if err := l.Unlock(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	contenders.Wait()
}

// TestTheWriterWritesNothingThatItsCallerReads has callers leave while the writer takes up their
// tasks, for the race detector.
func TestTheWriterWritesNothingThatItsCallerReads(t *testing.T) {
	t.Parallel()
	l := open(t)
	for name, call := range map[string]func(context.Context) error{
		"Compact":   func(ctx context.Context) error { _, err := Compact(ctx, l); return err },
		"PruneRuns": func(ctx context.Context) error { _, err := l.PruneRuns(ctx, eventlog.PruneOptions{}); return err },
		"PutModule": func(ctx context.Context) error { _, err := l.PutModule(ctx, []byte(rand.Text())); return err },
	} {
		for range 100 {
			ctx, leave := context.WithCancel(t.Context())
			go leave()
			if err := call(ctx); err != nil && !errors.Is(err, context.Canceled) {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}
