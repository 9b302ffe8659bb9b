package search

import (
	"fmt"
	"testing"
	"time"

	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/eventlog/logtest"
	"github.com/starling-host/starling/eventlog/store"
)

// TestBounds searches more runs than are looked at.
func TestBounds(t *testing.T) {
	defer func(n int) { maxRuns = n }(maxRuns)
	maxRuns = 4
	log := store.Memory()
	for i := range 10 {
		chain := logtest.Chain{RunID: fmt.Sprint("R", i), Clock: int64(i) * int64(time.Hour)}
		if err := log.Append(t.Context(), chain.RunID, chain.Start("goal")); err != nil {
			t.Fatal(err)
		}
	}
	for text, want := range map[string]string{
		"": "10 R9 R8 true", "state:open": "10 R9 R8 true", "text:goal": "4 R9 R8 true", "until:1970-01-01T03:00": "3 R2 R1 false", "until:1970-01-01T05:00 text:goal": "4 R4 R3 true",
		"since:1970-01-01T08:00": "2 R9 R8 false", "-state:failed": "4 R9 R8 true",
	} {
		q, err := Parse(text, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		found, err := Find(t.Context(), log, q, Options{Limit: 2, Begun: true})
		if err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprint(found.Total, " ", found.Runs[0].RunID, " ", found.Runs[1].RunID, " ", found.More); got != want {
			t.Errorf("%s finds %s, want %s", text, got, want)
		}
	}
	found, err := Find(t.Context(), log, Query{}, Options{Limit: 2, Offset: 7})
	if err != nil || len(found.Runs) != 2 || found.Runs[0].RunID != "R2" || found.Total != 10 {
		t.Errorf("a late page has %+v, %v", found, err)
	}
}

// TestLongRuns searches a run that fails behind 24,000 events, and one that is too long to be read.
func TestLongRuns(t *testing.T) {
	log := store.Memory()
	record := func(id string, calls int, fuel uint64) {
		chain := logtest.Chain{RunID: id, Clock: int64(len(id)) * int64(time.Hour)}
		events := []event.Event{chain.Next(event.RunStarted{SchemaVersion: event.SchemaVersion, Goal: "tool", ToolSchemas: []event.ToolSchemaRef{}})}
		for i := range calls {
			call := fmt.Sprint("c", i)
			events = append(events, chain.Next(event.ToolCallScheduled{CallID: call, TurnID: "t", ToolName: "tool", Args: canon.Raw{0xa0}, Attempt: 1}))
			if i < calls-1 {
				events = append(events, chain.Next(event.ToolCallCompleted{CallID: call, Attempt: 1, Result: canon.Raw{0xa0}, Meter: event.Meter{Fuel: fuel}}))
			} else {
				events = append(events, chain.Next(event.ToolCallFailed{CallID: call, Attempt: 1, ErrorType: "tool", Error: "no quagga", Final: true}))
			}
		}
		events = append(events, chain.Next(event.RunFailed{ErrorType: "tool", Error: "no quagga"}))
		for _, ev := range events {
			if err := log.Append(t.Context(), id, ev); err != nil {
				t.Fatal(err)
			}
		}
	}
	record("R", 12_000, 100_000)
	search := func(text string) Found {
		t.Helper()
		q, err := Parse(text, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		found, err := Find(t.Context(), log, q, Options{})
		if err != nil {
			t.Fatal(err)
		}
		return found
	}
	for _, text := range []string{"", "error:quagga", "fuel:>1G", "calls:>11999"} {
		if f := search(text); len(f.Runs) != 1 || f.Runs[0].Reason != "no quagga" || f.Runs[0].Meter.Fuel != 1_199_900_000 || f.Note() != "" {
			t.Errorf("%q finds %+v", text, f)
		}
	}

	defer func(all, run int) { maxEvents, maxRunEvents = all, run }(maxEvents, maxRunEvents)
	maxEvents, maxRunEvents = 30, 20
	record("RR", 3, 1)
	record("RRR", 12, 1)
	const note = "1 run not read to the end: a search reads 30 events, and 20 of a run. Their figures are too low, and words may miss them."
	if f := search("error:quagga"); f.Total != 2 || !f.Runs[0].Partly || f.Runs[0].Reason != "no quagga" || f.Runs[1].Partly || !f.More || f.Note() != note {
		t.Errorf("a search of long runs: %+v", f)
	}
	if f := search(""); len(f.Runs) != 3 || f.Partly != 2 || f.More || f.Reasons[0].Runs != 3 || f.Runs[1].Partly {
		t.Errorf("a listing of long runs: %+v", f)
	}
}
