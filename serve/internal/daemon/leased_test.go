package daemon

import (
	"fmt"
	"testing"

	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/eventlog/logtest"
	"github.com/starling-host/starling/eventlog/store"
)

// TestALeaseReadsTheRunThatIsAskedFor reads several runs through the log of one lease,
// in every order, again and again and after an append: each read returns the events of
// the run that it names.
func TestALeaseReadsTheRunThatIsAskedFor(t *testing.T) {
	below := store.Memory()
	chains := map[string]*logtest.Chain{}
	var runs []string
	for i := range 3 {
		c := &logtest.Chain{RunID: fmt.Sprintf("run-%d", i)}
		chains[c.RunID], runs = c, append(runs, c.RunID)
		for _, e := range []event.Event{c.Start("g"), c.Effect(i)} {
			if err := below.Append(t.Context(), c.RunID, e); err != nil {
				t.Fatal(err)
			}
		}
	}
	lease := &leased{EventLog: below, ctx: t.Context(), count: func(int) {}}
	for round := range 4 {
		for _, id := range append(runs, runs[2], runs[0], runs[1]) {
			got, err := lease.Read(t.Context(), id)
			if err != nil || len(got) != 2+round {
				t.Fatalf("round %d: %s has %d events, %v", round, id, len(got), err)
			}
			for _, e := range got {
				if e.RunID != id {
					t.Fatalf("round %d: asked for %s, got an event of %s", round, id, e.RunID)
				}
			}
		}
		for _, id := range runs {
			if err := lease.Append(t.Context(), id, chains[id].Effect(round)); err != nil {
				t.Fatal(err)
			}
		}
	}
	if _, err := lease.Read(t.Context(), "nobody"); err == nil {
		t.Error("a run that is not there was read")
	}
}
