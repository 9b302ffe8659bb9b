package cipherlog_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/eventlog/internal/cipherlog"
	"github.com/starling-host/starling/eventlog/logtest"
	"github.com/starling-host/starling/eventlog/store"
)

// TestRunsWithoutAKeyEnd ends runs after each of their events, in a log without a
// key: the result validates.
func TestRunsWithoutAKeyEnd(t *testing.T) {
	t.Parallel()
	below := store.Memory()
	log := over(t, below, 1)
	whole := logtest.Finished("whole", 3)
	for n := 1; n <= len(whole); n++ {
		id := fmt.Sprint("run", n)
		for _, e := range logtest.Finished(id, 3)[:n] {
			if err := log.Append(t.Context(), id, e); err != nil {
				t.Fatal(err)
			}
		}
		for range 2 { // the second time there is nothing to do
			if err := cipherlog.End(t.Context(), below, id); err != nil {
				t.Fatal(err)
			}
		}
		events, terminal := n+2, event.KindRunCancelled
		switch n {
		case 1: // no call had begun
			events = 2
		case len(whole): // it had ended
			events, terminal = n, event.KindRunCompleted
		}
		r, err := eventlog.CheckRun(t.Context(), below, id, eventlog.CheckOptions{Strict: true})
		if err != nil || r.Terminal != terminal || r.Events != uint64(events) {
			t.Errorf("behind event %d: %+v, %v", n, r, err)
		}
	}
	if err := cipherlog.End(t.Context(), below, "nobody's"); err != nil {
		t.Error(err)
	}
}

// undurable is a log whose barriers fail.
type undurable struct{ eventlog.EventLog }

var errUndurable = errors.New("the disk is broken")

func (undurable) Sync(context.Context, string) error { return errUndurable }

func TestAnEndReportsThatItMayNotBeDurable(t *testing.T) {
	t.Parallel()
	below := store.Memory()
	first := logtest.Finished("run", 3)[0]
	if err := over(t, below, 1).Append(t.Context(), "run", first); err != nil {
		t.Fatal(err)
	}
	if err := cipherlog.End(t.Context(), undurable{below}, "run"); !errors.Is(err, errUndurable) {
		t.Errorf("the end is reported as durable: %v", err)
	}
}
