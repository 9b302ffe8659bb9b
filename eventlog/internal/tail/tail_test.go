package tail

import (
	"context"
	"sync"
	"testing"

	"github.com/starling-host/starling/eventlog/event"
)

// countingLog is a log of one run that counts how often it is read.
type countingLog struct {
	hub Hub

	mu    sync.Mutex
	evs   []event.Event
	reads int
}

func (b *countingLog) page(_ context.Context, _ string, after uint64, n int) ([]event.Event, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.reads++
	rest := b.evs[min(after, uint64(len(b.evs))):]
	return rest[:min(n, len(rest))], nil
}

// add stores an event with so many bytes, the last one if it is terminal.
func (b *countingLog) add(size int, kind event.Kind) event.Event {
	b.mu.Lock()
	defer b.mu.Unlock()
	e := event.Event{RunID: "run", Seq: uint64(len(b.evs) + 1), Kind: kind, Payload: make([]byte, size)}
	b.evs = append(b.evs, e)
	return e
}

func (b *countingLog) readings() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.reads
}

// follow returns a stream that has sent the first event, which was stored before.
func (b *countingLog) follow(t *testing.T) <-chan event.Event {
	t.Helper()
	b.add(1, event.KindRunStarted)
	out, err := b.hub.Stream(t.Context(), "run", b.page)
	if err != nil {
		t.Fatal(err)
	}
	want(t, out, 1, 1)
	return out
}

// want reads the events from..to.
func want(t *testing.T, out <-chan event.Event, from, to uint64) {
	t.Helper()
	for seq := from; seq <= to; seq++ {
		if e, open := <-out; !open || e.Seq != seq {
			t.Fatalf("event %d (open: %v), want %d", e.Seq, open, seq)
		}
	}
}

// ends adds the last event and requires the stream to end after it.
func (b *countingLog) ends(t *testing.T, out <-chan event.Event) {
	t.Helper()
	last := b.add(1, event.KindRunCompleted)
	b.hub.Hand(last)
	want(t, out, last.Seq, last.Seq)
	if e, open := <-out; open {
		t.Errorf("event %d after the end", e.Seq)
	}
}

// TestWhatIsHandedOverIsNotRead: a reader that keeps up reads the log once.
func TestWhatIsHandedOverIsNotRead(t *testing.T) {
	var b countingLog
	out := b.follow(t)
	for seq := uint64(2); seq < 100; seq++ {
		b.hub.Hand(b.add(1, event.KindUserMessageAppended))
		want(t, out, seq, seq)
	}
	b.ends(t, out)
	if n := b.readings(); n != 1 {
		t.Errorf("the log was read %d times", n)
	}
}

// TestAStreamReadsWhatItWasNotHanded: events of another process, which are not handed
// over, come before later ones that are.
func TestAStreamReadsWhatItWasNotHanded(t *testing.T) {
	var b countingLog
	out := b.follow(t)
	b.add(1, event.KindUserMessageAppended)
	b.hub.Hand(b.add(1, event.KindUserMessageAppended))
	want(t, out, 2, 3)
	b.add(1, event.KindUserMessageAppended)
	b.hub.WakeAll()
	want(t, out, 4, 4)
	b.hub.Hand(b.evs[2]) // late, and known
	b.ends(t, out)
}

// TestASlowReaderIsKeptLittle: whatever is handed over for it, a reader that does not
// read has little kept for it, and misses nothing.
func TestASlowReaderIsKeptLittle(t *testing.T) {
	for name, size := range map[string]int{"small": 1, "large": 100 << 10, "too large": 2 * maxHandedBytes} {
		t.Run(name, func(t *testing.T) {
			var b countingLog
			out := b.follow(t)
			last := uint64(1)
			for range 2*ReadAhead + 3*maxHanded {
				e := b.add(size, event.KindUserMessageAppended)
				b.hub.Hand(e)
				last = e.Seq
				b.holdsLittle(t)
			}
			want(t, out, 2, last)
			b.ends(t, out)
		})
	}
}

func (b *countingLog) holdsLittle(t *testing.T) {
	t.Helper()
	b.hub.mu.Lock()
	defer b.hub.mu.Unlock()
	for s := range b.hub.of["run"] {
		size := 0
		for _, e := range s.handed {
			size += len(e.Payload)
		}
		if len(s.handed) > maxHanded || size > maxHandedBytes || size != s.size {
			t.Fatalf("%d events of %d bytes are kept, counted as %d", len(s.handed), size, s.size)
		}
	}
}
