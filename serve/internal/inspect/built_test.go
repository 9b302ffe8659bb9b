package inspect_test

import (
	"context"
	"errors"
	"iter"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/eventlog/store"
	"github.com/starling-host/starling/serve/internal/eventview"
	"github.com/starling-host/starling/serve/internal/inspect"
)

// countingLog counts the events that are read.
type countingLog struct {
	eventlog.EventLog
	events int
}

func (l *countingLog) Events(ctx context.Context, runID string, after uint64) iter.Seq2[event.Event, error] {
	return func(yield func(event.Event, error) bool) {
		for ev, err := range l.EventLog.Events(ctx, runID, after) {
			if l.events++; !yield(ev, err) {
				return
			}
		}
	}
}

// stranger reads the summaries of a log, but its events from one without the key.
type stranger struct {
	eventlog.EventLog
	events eventlog.EventLog
}

func (l stranger) Events(ctx context.Context, runID string, after uint64) iter.Seq2[event.Event, error] {
	return l.events.Events(ctx, runID, after)
}

// TestRunsAreReadOnce looks at a run twice, with its key, without it, and after it was removed.
func TestRunsAreReadOnce(t *testing.T) {
	key, err := store.NewDataKey([]byte(strings.Repeat("k", 32)))
	if err != nil {
		t.Fatal(err)
	}
	inner := store.Memory()
	sealed, err := store.Encrypted(inner, key, "")
	if err != nil {
		t.Fatal(err)
	}
	record(t, sealed, "R", `{"City":"Oslo"}`)
	log := &countingLog{EventLog: sealed}
	b := open(t, inspect.Config{Scope: func(r *http.Request) (eventview.View, error) {
		if r.URL.Query().Has("stranger") {
			return eventview.View{Log: stranger{sealed, inner}}, nil
		}
		return eventview.View{Log: log}, nil
	}})
	b.wants("/runs/R", "Oslo", "weather")
	whole := log.events
	log.events = 0
	b.wants("/runs/R?at=2", "Oslo", "weather")
	if log.events >= whole {
		t.Errorf("the second page read %d events, the first %d", log.events, whole)
	}
	if _, page := b.get("/runs/R?stranger"); strings.Contains(page, "Oslo") || strings.Contains(page, "weather") || !strings.Contains(page, "encrypted") {
		t.Error("a reader without the key sees what another reader decrypted")
	}
	if _, err := inner.PruneRuns(t.Context(), eventlog.PruneOptions{RunIDs: []string{"R"}}); err != nil {
		t.Fatal(err)
	}
	if code, _ := b.get("/runs/R"); code != http.StatusNotFound {
		t.Errorf("a removed run answers %d", code)
	}
}

// TestAGrowingRunIsReadOn looks at a run before and after an event came, and after the log has another run
// in its place.
func TestAGrowingRunIsReadOn(t *testing.T) {
	inner := store.Memory()
	long(t, inner, "R", 600)
	log := &countingLog{EventLog: inner}
	b := openView(t, eventview.View{Log: log})
	b.wants("/runs/R")
	whole := log.events
	log.events = 0
	appendEvent(t, inner, "R", event.KindToolCallScheduled, event.ToolCallScheduled{CallID: "c", TurnID: "t", ToolName: "lookup", Attempt: 1})
	b.wants("/runs/R", "lookup")
	if log.events > whole/2 {
		t.Errorf("the second page read %d events, the first %d", log.events, whole)
	}
	other := store.Memory()
	long(t, other, "R", 700)
	log.EventLog = other
	if page := b.wants("/runs/R"); strings.Contains(page, "lookup") {
		t.Error("the page shows what another run did")
	}
}

// slowLog keeps its first readers waiting.
type slowLog struct {
	eventlog.EventLog
	free, waiting chan struct{} // readers that may wait, and those that do
	release       chan struct{}
}

func (l slowLog) Events(ctx context.Context, runID string, after uint64) iter.Seq2[event.Event, error] {
	select {
	case <-l.free:
		l.waiting <- struct{}{}
		<-l.release
	default:
	}
	return l.EventLog.Events(ctx, runID, after)
}

// TestPagesAtATime asks a server that is used alone for a page of a run while it makes as many as it does
// at a time.
func TestPagesAtATime(t *testing.T) {
	const most = 4
	inner := store.Memory()
	long(t, inner, "R", 10)
	log := slowLog{inner, make(chan struct{}, most), make(chan struct{}), make(chan struct{})}
	s, err := inspect.New(inspect.Config{Scope: func(*http.Request) (eventview.View, error) { return eventview.View{Log: log}, nil }})
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	served := make(chan error)
	go func() { served <- s.Serve(ctx, l) }()
	ask := func(ctx context.Context) error {
		r, err := http.NewRequestWithContext(ctx, "GET", "http://"+l.Addr().String()+"/runs/R", nil)
		if err != nil {
			return err
		}
		resp, err := http.DefaultClient.Do(r)
		if err == nil {
			err = resp.Body.Close()
		}
		return err
	}
	answers := make(chan error, most)
	for range most {
		log.free <- struct{}{}
		go func() { answers <- ask(t.Context()) }()
		<-log.waiting
	}
	impatient, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if err := ask(impatient); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("one page more: %v", err)
	}
	close(log.release)
	for range most {
		if err := <-answers; err != nil {
			t.Error(err)
		}
	}
	if err := ask(t.Context()); err != nil {
		t.Error(err)
	}
	stop()
	if err := <-served; err != nil {
		t.Error(err)
	}
}
