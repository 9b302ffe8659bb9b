package worker

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/starling-host/starling/host/internal/scheduler"
	"github.com/starling-host/starling/host/sandbox"
	"github.com/starling-host/starling/runtime/tool"
)

// TestEveryWaitOfACallEndsWithItsContext has calls wait for all that they can wait for,
// and cancels them.
func TestEveryWaitOfACallEndsWithItsContext(t *testing.T) {
	for name, occupy := range map[string]func(*Engine, *Module) (release func()){
		"a place among the calls": func(e *Engine, _ *Module) func() {
			for range cap(e.places) {
				e.places <- struct{}{}
			}
			return func() {
				for range cap(e.places) {
					<-e.places
				}
			}
		},
		"a processor": func(e *Engine, _ *Module) func() {
			return hold(e.config.Scheduler)
		},
		"a process that is started for another call": func(e *Engine, m *Module) func() {
			e.drop(func(*idleProcess) bool { return true })
			m.starting <- struct{}{}
			return func() { <-m.starting }
		},
		"the start of another module's process": func(e *Engine, _ *Module) func() {
			e.drop(func(*idleProcess) bool { return true })
			return hold(e.starts)
		},
		"the start of a demoted process": func(e *Engine, m *Module) func() {
			e.drop(func(*idleProcess) bool { return true })
			m.long.Store(true)
			return hold(e.demotedStarts)
		},
		"an effect of another call": func(e *Engine, m *Module) func() {
			p := e.take(m)
			p.demoted.Store(true)
			m.giveBack(p)
			return hold(e.demotedEffects)
		},
	} {
		t.Run(name, func(t *testing.T) {
			e := workers(t, Config{})
			m := mustLoad(t, e, asksForEver().Bytes(), sandbox.Limits{}).(*Module)
			release := occupy(e, m)
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() {
				_, err := m.Call(ctx, sandbox.Call{Input: envelope("t", "1")}, &world{})
				ended <- err
			}()
			time.AfterFunc(10*time.Millisecond, cancel) // it may also come before the wait
			select {
			case err := <-ended:
				if !errors.Is(err, tool.ErrCancelled) {
					t.Errorf("the call ended with %v", err)
				}
				release()
			case <-time.After(time.Minute):
				t.Error("the call goes on waiting")
				release()
				<-ended
			}
		})
	}
}

// hold takes all slots of a scheduler.
func hold(s *scheduler.Scheduler) (release func()) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel() // so that only free slots are had
	var slots []*scheduler.Slot
	for {
		slot, err := s.Acquire(ctx)
		if err != nil {
			break
		}
		slots = append(slots, slot)
	}
	return func() {
		for _, slot := range slots {
			slot.Release()
		}
	}
}

// TestAnEffectThatWaitsEndsAtTheDeadline, although the process waits for the host then.
func TestAnEffectThatWaitsEndsAtTheDeadline(t *testing.T) {
	e := workers(t, Config{})
	m := mustLoad(t, e, asksForEver().Bytes(), sandbox.Limits{TimeoutMs: 50}).(*Module)
	p := e.take(m)
	p.demoted.Store(true)
	m.giveBack(p)
	defer hold(e.demotedEffects)()
	if _, err := m.Call(t.Context(), sandbox.Call{Input: envelope("t", "1")}, &world{}); !errors.Is(err, tool.ErrTimeout) {
		t.Errorf("the call ended with %v", err)
	}
}

// TestEffectsOfDemotedCallsWaitForOthers makes a demoted call while something else computes, and while
// nothing does.
func TestEffectsOfDemotedCallsWaitForOthers(t *testing.T) {
	for _, busy := range []bool{true, false} {
		e := workers(t, Config{})
		m := mustLoad(t, e, asksForEver().Bytes(), sandbox.Limits{}).(*Module)
		p := e.take(m)
		p.demoted.Store(true)
		m.giveBack(p)
		release := func() {}
		if busy {
			slot, err := e.config.Scheduler.Acquire(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			release = slot.Release
		}
		ctx, cancel := context.WithCancel(t.Context())
		paused := false
		e.pause = func(time.Duration) { paused = true }
		_, err := m.Call(ctx, sandbox.Call{Input: envelope("t", "1")}, &world{at: func(effect int) {
			if effect == 20 {
				cancel()
			}
		}})
		if release(); !errors.Is(err, tool.ErrCancelled) || paused != busy {
			t.Errorf("beside others %v: paused %v, %v", busy, paused, err)
		}
	}
}

// TestARefusedSlotIsNoCancellation: wherever a call waits for a slot, a refusal of the scheduler is an
// error of the host while the call's context goes on.
func TestARefusedSlotIsNoCancellation(t *testing.T) {
	for name, of := range map[string]func(*Engine, *Module) *scheduler.Scheduler{
		"of the processor":          func(e *Engine, _ *Module) *scheduler.Scheduler { return e.config.Scheduler },
		"of starts":                 func(e *Engine, _ *Module) *scheduler.Scheduler { return e.starts },
		"of starts of demoted ones": func(e *Engine, m *Module) *scheduler.Scheduler { m.long.Store(true); return e.demotedStarts },
	} {
		t.Run(name, func(t *testing.T) {
			e := workers(t, Config{})
			m := mustLoad(t, e, asksForEver().Bytes(), sandbox.Limits{}).(*Module)
			e.drop(func(*idleProcess) bool { return true })
			release := hold(of(e, m))
			defer release()
			ctx := scheduler.For(t.Context(), scheduler.Claim{Crowd: 1})
			_, err := m.Call(ctx, sandbox.Call{Input: envelope("t", "1")}, &world{})
			if !errors.Is(err, scheduler.ErrCrowd) || !errors.Is(err, tool.ErrHost) || errors.Is(err, tool.ErrCancelled) {
				t.Errorf("%v", err)
			}
		})
	}
}
