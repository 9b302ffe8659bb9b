package logtest

import (
	"errors"
	"sync"
	"testing"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/event"
)

// fence gives the run to a new writer, in the epoch after last.
func fence(t testing.TB, log eventlog.EventLog, runID string, last uint64) (writer eventlog.EventLog, epoch uint64) {
	t.Helper()
	epoch = last + 1
	if tr, ok := log.(eventlog.Transactor); ok {
		err := tr.Transact(t.Context(), func(tx eventlog.Tx) (err error) {
			epoch, err = tx.Fence(runID)
			return err
		})
		if err != nil || epoch <= last {
			t.Fatalf("epoch %d after %d, %v", epoch, last, err)
		}
	}
	return log.(eventlog.Store).Fenced(runID, epoch), epoch
}

// refused requires the next append of the event, or else the barrier after it, to
// be refused for the reason want.
func refused(t testing.TB, what string, log eventlog.EventLog, e event.Event, want error) {
	t.Helper()
	err := log.Append(t.Context(), e.RunID, e)
	if err == nil {
		err = log.Sync(t.Context(), e.RunID)
	}
	if !errors.Is(err, want) {
		t.Errorf("%s: %v, want %v", what, err, want)
	}
}

func fencing(t *testing.T, log eventlog.EventLog) {
	c := Chain{RunID: "ns/run"}
	store(t, log, c.Start("begun by nobody in particular"))
	first, epoch := fence(t, log, "ns/run", 0)
	old := c
	refused(t, "the log itself", log, old.Effect(1), eventlog.ErrFenced)
	store(t, first, c.Effect(2), c.Effect(3))

	second, _ := fence(t, log, "ns/run", epoch)
	old = c
	refused(t, "the first writer", first, old.Effect(4), eventlog.ErrFenced)
	refused(t, "the log itself, again", log, old.Effect(5), eventlog.ErrFenced)
	if !errors.Is(eventlog.ErrFenced, eventlog.ErrInvalidAppend) {
		t.Error("ErrFenced is no ErrInvalidAppend")
	}
	other := Chain{RunID: "ns/other"}
	refused(t, "a run that the writer was not given", second, other.Start("g"), eventlog.ErrInvalidAppend)
	store(t, log, Finished("ns/third", 1)...) // the run was never fenced
	store(t, second, c.Effect(6), c.Complete())
	if err := second.Close(); err != nil {
		t.Error(err)
	}
	for _, reader := range []eventlog.EventLog{log, first, second} {
		r, err := eventlog.CheckRun(t.Context(), reader, "ns/run", eventlog.CheckOptions{Strict: true})
		if err != nil || r.Events != 5 {
			t.Errorf("%d events, %v", r.Events, err)
		}
	}
	if evs, err := second.Read(t.Context(), "ns/third"); err != nil || len(evs) != 5 {
		t.Errorf("what the writer was not given cannot be read: %d events, %v", len(evs), err)
	}
}

// fencingOnTheWay fences a writer that never waits, over and over. The next
// writer finds, after the fence, all that the one before will ever have written.
func fencingOnTheWay(t *testing.T, log eventlog.EventLog) {
	c := Chain{RunID: "run"}
	store(t, log, c.Start("g"))
	writer, epoch := fence(t, log, "run", 0)
	for range 10 {
		var old sync.WaitGroup
		begun := make(chan struct{})
		old.Go(func() { writeUntilFenced(t, writer, c, begun) })
		<-begun
		writer, epoch = fence(t, log, "run", epoch)
		evs, err := log.Read(t.Context(), "run")
		if err != nil {
			t.Fatal(err)
		}
		c = Resume(evs)
		store(t, writer, c.Effect(1000))
		old.Wait()
	}
	store(t, writer, c.Complete())
	r, err := eventlog.CheckRun(t.Context(), log, "run", eventlog.CheckOptions{Strict: true})
	if err != nil || r.Events != c.seq {
		t.Errorf("%d events, want %d: %v", r.Events, c.seq, err)
	}
}

// fencingIdle fences writers that have nothing queued.
func fencingIdle(t *testing.T, log eventlog.EventLog) {
	c := Chain{RunID: "run"}
	store(t, log, c.Start("g"))
	writer, epoch := log, uint64(0)
	for range 20 {
		var next eventlog.EventLog
		next, epoch = fence(t, log, "run", epoch)
		if err := writer.Sync(t.Context(), "run"); err != nil {
			t.Errorf("Sync, of what is durable: %v", err)
		}
		old := c
		e := old.Effect(1)
		if err := writer.Append(t.Context(), "run", e); !errors.Is(err, eventlog.ErrFenced) {
			t.Errorf("Append: %v", err)
		}
		writer = next
		store(t, writer, c.Effect(1))
	}
}

// writeUntilFenced continues from c until the writer gets the error that it has lost the run.
func writeUntilFenced(t testing.TB, writer eventlog.EventLog, c Chain, begun chan<- struct{}) {
	const bound = 200_000
	for i := range bound {
		e := c.Effect(10)
		err := writer.Append(t.Context(), e.RunID, e)
		if i == 20 || err != nil && i < 20 {
			close(begun)
		}
		if err == nil && i%512 == 511 {
			err = writer.Sync(t.Context(), e.RunID)
		}
		if errors.Is(err, eventlog.ErrFenced) {
			return
		}
		if err != nil {
			t.Errorf("event %d: %v", e.Seq, err)
			return
		}
	}
	t.Errorf("%d events were taken in an epoch that is over", bound)
}

func transactingFenced(t *testing.T, log eventlog.EventLog) {
	tr := transactor(t, log)
	c := Chain{RunID: "run-1"}
	store(t, log, c.Start("g"))
	var epoch uint64
	claim := c.Effect(1)
	transact(t, tr, func(tx eventlog.Tx) (err error) {
		epoch, err = tx.Fence("run-1")
		return errors.Join(err, tx.Append("run-1", claim))
	})
	stale := c
	late := stale.Effect(2) // once, however often the function is run
	err := tr.Transact(t.Context(), func(tx eventlog.Tx) error { return tx.Append("run-1", late) })
	if !errors.Is(err, eventlog.ErrFenced) {
		t.Errorf("in no epoch: %v", err)
	}
	store(t, log.(eventlog.Store).Fenced("run-1", epoch), c.Effect(3), c.Complete())
	other := Chain{RunID: "run-2"}
	first := other.Start("g")
	transact(t, tr, func(tx eventlog.Tx) (err error) { // begun and given away at once
		err = tx.Append("run-2", first)
		if err == nil {
			epoch, err = tx.Fence("run-2")
		}
		return err
	})
	store(t, log.(eventlog.Store).Fenced("run-2", epoch), other.Effect(1), other.Complete())
	if r, err := eventlog.CheckRun(t.Context(), log, "run-1", eventlog.CheckOptions{Strict: true}); err != nil || r.Events != 4 {
		t.Errorf("%d events, %v", r.Events, err)
	}
}
