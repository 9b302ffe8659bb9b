package logtest

import (
	"context"
	"testing"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/event"
)

// stream begins a stream that ends with the test.
func stream(t testing.TB, log eventlog.EventLog, runID string) (<-chan event.Event, context.CancelFunc) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ch, err := log.Stream(ctx, runID)
	if err != nil {
		cancel()
		t.Fatal(err)
	}
	return ch, cancel
}

// expect reads the events from..to from a stream.
func expect(t testing.TB, ch <-chan event.Event, from, to uint64) {
	t.Helper()
	for want := from; want <= to; want++ {
		e, open := <-ch
		if !open || e.Seq != want {
			t.Errorf("event %d (open: %v), want %d", e.Seq, open, want)
			return
		}
	}
}

// expectEnd requires the stream to be closed without another event.
func expectEnd(t testing.TB, ch <-chan event.Event) {
	t.Helper()
	if e, open := <-ch; open {
		t.Errorf("event %d after the end", e.Seq)
	}
}

func streamHistoryThenLive(t *testing.T, log eventlog.EventLog) {
	evs := Finished("run-1", 3000)
	store(t, log, evs[:1000]...)
	ch, cancel := stream(t, log, "run-1")
	defer cancel()
	done := make(chan struct{})
	go func() {
		defer close(done)
		for _, e := range evs[1000:] {
			if err := log.Append(t.Context(), "run-1", e); err != nil {
				t.Error(err)
				return
			}
		}
	}()
	expect(t, ch, 1, uint64(len(evs)))
	expectEnd(t, ch)
	<-done
}

// longPayloads streams a run that is too long for any backend to read at once.
func longPayloads(t *testing.T, log eventlog.EventLog) {
	c := Chain{RunID: "run-1"}
	evs := []event.Event{c.Start("goal"), c.Effect(3 << 20), c.Effect(3 << 20), c.Effect(10), c.Complete()}
	store(t, log, evs...)
	if got, err := log.Read(t.Context(), "run-1"); err != nil || len(got) != len(evs) {
		t.Errorf("%d events, want %d: %v", len(got), len(evs), err)
	}
	ch, cancel := stream(t, log, "run-1")
	defer cancel()
	expect(t, ch, 1, uint64(len(evs)))
	expectEnd(t, ch)
}

func streamWaits(t *testing.T, log eventlog.EventLog) {
	ch, cancel := stream(t, log, "run-1")
	defer cancel()
	evs := Finished("run-1", 1)
	for i, e := range evs {
		append1(t, log, e)
		expect(t, ch, uint64(i+1), uint64(i+1))
	}
	expectEnd(t, ch)
}

func streamSlowReader(t *testing.T, log eventlog.EventLog) {
	evs := Finished("run-1", 2000)
	store(t, log, evs[0])
	ch, cancel := stream(t, log, "run-1")
	defer cancel()
	store(t, log, evs[1:]...) // unread: ten times the stream's read-ahead
	expect(t, ch, 1, uint64(len(evs)))
	expectEnd(t, ch)
}

func streamEnds(t *testing.T, log eventlog.EventLog) {
	evs := Finished("run-1", 1)
	store(t, log, evs[0])
	byContext, cancel := stream(t, log, "run-1")
	expect(t, byContext, 1, 1)
	cancel()
	expectEnd(t, byContext)
	byLog, cancel := stream(t, log, "run-1")
	defer cancel()
	expect(t, byLog, 1, 1)
	store(t, log, evs[1])
	expect(t, byLog, 2, 2)
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
	expectEnd(t, byLog)
}
