package worker

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/starling-host/starling/host/sandbox"
	"github.com/starling-host/starling/runtime/tool"
)

// TestEveryWaitOfACallEndsWithItsContext has calls wait for all that they can wait for,
// and cancels them.
func TestEveryWaitOfACallEndsWithItsContext(t *testing.T) {
	for name, hold := range map[string]func(*Engine, *Module) (release func()){
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
			var turns []func()
			for range 4 * e.config.MaxIdle { // more than there are
				if turn, err := e.config.Turns.Take(overAlready()); err == nil {
					turns = append(turns, turn.End)
				}
			}
			return func() {
				for _, end := range turns {
					end()
				}
			}
		},
		"a process that is started for another call": func(e *Engine, m *Module) func() {
			e.drop(func(*idleProcess) bool { return true })
			m.starting <- struct{}{}
			return func() { <-m.starting }
		},
		"the start of another module's process": func(e *Engine, _ *Module) func() {
			e.drop(func(*idleProcess) bool { return true })
			turn, _ := e.starts.Take(context.Background())
			return turn.End
		},
		"the same behind others": func(e *Engine, m *Module) func() {
			e.drop(func(*idleProcess) bool { return true })
			m.long.Store(true)
			turn, _ := e.startsBehind.Take(context.Background())
			return turn.End
		},
		"an effect of another call": func(e *Engine, m *Module) func() {
			p := e.take(m)
			p.behind.Store(true)
			m.giveBack(p)
			for range cap(e.aside) {
				e.aside <- struct{}{}
			}
			return func() {
				for range cap(e.aside) {
					<-e.aside
				}
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			e := workers(t, Config{})
			m := mustLoad(t, e, asksForEver().Bytes(), sandbox.Limits{}).(*Module)
			release := hold(e, m)
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() {
				_, err := m.Call(ctx, sandbox.Call{Input: envelope("t", "1")}, &world{})
				ended <- err
			}()
			time.AfterFunc(10*time.Millisecond, cancel) // it may as well come before the wait
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

// overAlready is a context that has ended, by which nobody waits.
func overAlready() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

// TestAnEffectThatWaitsEndsAtTheDeadline, although the process waits for the host then.
func TestAnEffectThatWaitsEndsAtTheDeadline(t *testing.T) {
	e := workers(t, Config{})
	m := mustLoad(t, e, asksForEver().Bytes(), sandbox.Limits{TimeoutMs: 50}).(*Module)
	p := e.take(m)
	p.behind.Store(true)
	m.giveBack(p)
	for range cap(e.aside) {
		e.aside <- struct{}{}
		defer func() { <-e.aside }()
	}
	if _, err := m.Call(t.Context(), sandbox.Call{Input: envelope("t", "1")}, &world{}); !errors.Is(err, tool.ErrTimeout) {
		t.Errorf("the call ended with %v", err)
	}
}
