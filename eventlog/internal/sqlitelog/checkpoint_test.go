package sqlitelog

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/logtest"
)

// looker shows the WAL of the log, to others than its writer.
func looker(t *testing.T, l *Log) func() wal {
	c, err := connect(t.Context(), l.path, "mode=rw")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return func() wal {
		w, err := walOf(c, lookSQL)
		if err != nil {
			t.Fatal(err)
		}
		return w
	}
}

// fill writes runs of 64 KiB, a few at a time, until done or until it has written 2 GiB.
func fill(t *testing.T, l *Log, name string, done func() bool) {
	const atOnce = 4
	for n := range 1 << 13 {
		if done() {
			return
		}
		var all sync.WaitGroup
		for i := range atOnce {
			all.Go(func() {
				c := logtest.Chain{RunID: fmt.Sprint(name, n, "-", i)}
				e := c.Start("g")
				err := l.Append(t.Context(), e.RunID, e)
				if err == nil {
					e = c.Effect(64 << 10)
					err = l.Append(t.Context(), e.RunID, e)
				}
				if err == nil {
					err = l.Sync(t.Context(), e.RunID)
				}
				if err != nil {
					t.Error(err)
				}
			})
		}
		if all.Wait(); t.Failed() {
			return
		}
	}
	t.Fatalf("%s: 2 GiB were not enough", name)
}

// startsOver returns a condition that is met when the WAL has been written from its
// beginning so many times.
func startsOver(look func() wal, times int) func() bool {
	before, seen := look(), 0
	return func() bool {
		w := look()
		if w.kept { // it is being written
			return false
		}
		if w.frames < before.frames {
			seen++
		}
		before = w
		return seen >= times
	}
}

// TestTheWALStartsOver writes without a pause for as long as it takes until the WAL was
// written from its beginning three times. All of it is read back, and once more from
// the file alone.
func TestTheWALStartsOver(t *testing.T) {
	t.Parallel()
	l := open(t)
	fill(t, l, "run", startsOver(looker(t, l), 3))
	before, _ := readAllOpen(t, l)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	after, _ := readAllOpen(t, openAt(t, l.path, Options{ReadOnly: true}))
	if len(before) == 0 || len(before) != len(after) {
		t.Errorf("%d runs, after closing %d", len(before), len(after))
	}
}

// TestAReaderHoldsUpTheWALAndNobodyElse keeps a reader open while more is written than
// the WAL may keep. When the reader has ended, the WAL starts over, and its file is cut.
func TestAReaderHoldsUpTheWALAndNobodyElse(t *testing.T) {
	t.Parallel()
	l := open(t)
	look := looker(t, l)
	storeAll(t, l, logtest.Finished("run", 1))
	before := look()
	err := l.View(t.Context(), func(q eventlog.Querier) error {
		var runs, now int64
		count := func(to *int64) error {
			return q.Query("SELECT count(*) FROM run", nil, func(row eventlog.Row) error { return row.Scan(to) })
		}
		if err := count(&runs); err != nil {
			return err
		}
		fill(t, l, "beside", func() bool { return look().frames > 5000 })
		if w := look(); w.moved > before.frames {
			t.Errorf("%d frames of %d were moved from under the reader", w.moved, w.frames)
		}
		if err := count(&now); err != nil || now != runs {
			t.Errorf("the reader sees %d runs, and then %d (%v)", runs, now, err)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	fill(t, l, "after", startsOver(look, 1))
	info, err := os.Stat(l.path + "-wal")
	if err != nil || info.Size() > 64<<20 {
		t.Errorf("the WAL has %d bytes (%v)", info.Size(), err)
	}
}

// TestASyncThatFailsEndsTheLog: data that could not be synced may be gone, and no
// caller is told that it is durable.
func TestASyncThatFailsEndsTheLog(t *testing.T) {
	t.Parallel()
	l := open(t)
	storeAll(t, l, logtest.Finished("run", 1))
	c := newCheckpointer()
	if err := c.open(t.Context(), l.path, "FULL"); err != nil {
		t.Fatal(err)
	}
	defer c.close()
	if c.file == nil {
		t.Skip("SKIPPED: the database is synced by SQLite alone here")
	}
	c.file.Close()
	_, err := c.step()
	if !damages(err) {
		t.Fatalf("a step whose sync fails returns %v", err)
	}
	l.checkpointer.failed <- err
	chain := logtest.Chain{RunID: "later"}
	e := chain.Start("g")
	for range 3 { // the writer gets the error behind the first of them
		if err = errors.Join(l.Append(t.Context(), "later", e), l.Sync(t.Context(), "later")); err != nil {
			break
		}
		e = chain.Effect(1)
	}
	if !errors.Is(err, eventlog.ErrLogStopped) || !errors.Is(err, errSync) {
		t.Errorf("later events: %v", err)
	}
}

// TestAnErrorOfTheCheckpointerIsNotTheEnd tells apart the errors that lose nothing.
func TestAnErrorOfTheCheckpointerIsNotTheEnd(t *testing.T) {
	t.Parallel()
	l := open(t)
	c := newCheckpointer()
	if err := c.open(t.Context(), l.path+"/nowhere", "FULL"); err == nil || damages(err) {
		t.Errorf("a file that cannot be opened: %v", err)
	}
	c.close()
	if damages(nil) {
		t.Error("no error damages the database")
	}
}
