package logtest

import (
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/event"
	"pgregory.net/rapid"
)

// concurrent writes 16 runs at once, each with a stream, while readers list
// and read.
func concurrent(t *testing.T, log eventlog.EventLog) {
	const runs, effects = 16, 50
	var writers, readers sync.WaitGroup
	stop := make(chan struct{})
	for i := range runs {
		evs := Finished(fmt.Sprintf("run-%02d", i), effects)
		ch, cancel := stream(t, log, evs[0].RunID)
		defer cancel()
		writers.Go(func() { writeWithBarriers(t, log, evs, i) })
		writers.Go(func() {
			expect(t, ch, 1, uint64(len(evs)))
			expectEnd(t, ch)
		})
	}
	for range 2 {
		readers.Go(func() { readUntil(t, log, stop) })
	}
	writers.Wait()
	close(stop)
	readers.Wait()
	for i := range runs {
		if _, err := eventlog.CheckRun(t.Context(), log, fmt.Sprintf("run-%02d", i), eventlog.CheckOptions{Strict: true}); err != nil {
			t.Error(err)
		}
	}
}

// writeWithBarriers places a barrier every few events; how few depends on i.
func writeWithBarriers(t *testing.T, log eventlog.EventLog, evs []event.Event, i int) {
	for n, e := range evs {
		if err := log.Append(t.Context(), e.RunID, e); err != nil {
			t.Error(err)
			return
		}
		if n%(i+1) == 0 || n == len(evs)-1 {
			if err := log.Sync(t.Context(), e.RunID); err != nil {
				t.Error(err)
				return
			}
		}
	}
}

// readUntil checks that what can be read at any moment is a prefix of a run.
func readUntil(t *testing.T, log eventlog.EventLog, stop <-chan struct{}) {
	for i := 0; ; i++ {
		select {
		case <-stop:
			return
		default:
		}
		id := fmt.Sprintf("run-%02d", i%16)
		_, err := eventlog.CheckRun(t.Context(), log, id, eventlog.CheckOptions{AllowOpen: true})
		if err != nil && !errors.Is(err, eventlog.ErrRunNotFound) {
			t.Error(err)
			return
		}
		if i%8 == 0 {
			if _, err := log.ListRuns(t.Context()); err != nil {
				t.Error(err)
				return
			}
		}
	}
}

// model compares the log with a map, over random sequences of good and bad
// appends, barriers and reads. All sequences share the log, so each has its
// own runs.
func model(t *testing.T, log eventlog.EventLog) {
	sequence := 0
	rapid.Check(t, func(rt *rapid.T) {
		sequence++
		m := modelState{log: log, prefix: fmt.Sprintf("%d/", sequence), runs: map[string]*modelRun{}}
		rt.Repeat(map[string]func(*rapid.T){
			"append":      func(rt *rapid.T) { m.append(t, rt) },
			"append junk": func(rt *rapid.T) { m.appendJunk(t, rt) },
			"sync":        func(rt *rapid.T) { m.sync(t, rt) },
			"read":        func(rt *rapid.T) { m.read(t, rt) },
		})
	})
}

type modelState struct {
	log    eventlog.EventLog
	prefix string
	runs   map[string]*modelRun
}

type modelRun struct {
	chain  Chain
	events []event.Event
	ended  bool
}

// pick draws one of three runs.
func (m *modelState) pick(rt *rapid.T) *modelRun {
	id := m.prefix + rapid.SampledFrom([]string{"a", "b", "c"}).Draw(rt, "run")
	if m.runs[id] == nil {
		m.runs[id] = &modelRun{chain: Chain{RunID: id}}
	}
	return m.runs[id]
}

func (m *modelState) append(t testing.TB, rt *rapid.T) {
	r := m.pick(rt)
	if r.ended {
		return
	}
	var e event.Event
	switch {
	case len(r.events) == 0:
		e = r.chain.Start("g")
	case rapid.IntRange(0, 9).Draw(rt, "end") == 0:
		e, r.ended = r.chain.Complete(), true
	default:
		e = r.chain.Effect(rapid.IntRange(0, 3000).Draw(rt, "size"))
	}
	if err := m.log.Append(t.Context(), e.RunID, e); err != nil {
		rt.Fatal(err)
	}
	r.events = append(r.events, e)
}

// appendJunk offers events that continue the run except for their number or
// hash, or any event to a run that has ended.
func (m *modelState) appendJunk(t testing.TB, rt *rapid.T) {
	r := m.pick(rt)
	c := r.chain
	e := c.Effect(1)
	if !r.ended {
		e.Seq += uint64(rapid.SampledFrom([]int64{-1, 1, 1 << 40}).Draw(rt, "off"))
	}
	if err := m.log.Append(t.Context(), e.RunID, e); !errors.Is(err, eventlog.ErrInvalidAppend) {
		rt.Fatalf("event %d after %d: %v", e.Seq, len(r.events), err)
	}
}

func (m *modelState) sync(t testing.TB, rt *rapid.T) {
	if err := m.log.Sync(t.Context(), m.pick(rt).chain.RunID); err != nil {
		rt.Fatal(err)
	}
}

func (m *modelState) read(t testing.TB, rt *rapid.T) {
	r := m.pick(rt)
	got, err := m.log.Read(t.Context(), r.chain.RunID)
	if len(r.events) == 0 {
		if !errors.Is(err, eventlog.ErrRunNotFound) {
			rt.Fatal(err)
		}
		return
	}
	if err != nil || len(got) != len(r.events) {
		rt.Fatalf("%d events, want %d: %v", len(got), len(r.events), err)
	}
	for i, e := range got {
		if e.Hash() != r.events[i].Hash() {
			rt.Fatalf("event %d is another one", i+1)
		}
	}
}
