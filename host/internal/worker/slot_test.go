package worker

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/starling-host/starling/abi"
	"github.com/starling-host/starling/host/internal/scheduler"
	"github.com/starling-host/starling/host/sandbox"
	"github.com/starling-host/starling/internal/wasm"
)

// callTiny makes a call and fails if that does.
func callTiny(ctx context.Context, t *testing.T, m sandbox.Loaded, imports sandbox.Imports) {
	t.Helper()
	if _, err := m.Call(ctx, sandbox.Call{Tool: "tiny", Input: []byte("x")}, imports); err != nil {
		t.Error(err)
	}
}

// TestCallsThatWaitHaveNoProcess: with one CPU slot a module needs one process, however
// many calls it has. They end before they compute: on a busy machine a call that does
// may take so long that it releases its slot.
func TestCallsThatWaitHaveNoProcess(t *testing.T) {
	const many = 8
	engine := workers(t, Config{Scheduler: scheduler.New(1), MaxCalls: many})
	m := mustLoad(t, engine, tiny().Bytes(), sandbox.Limits{})
	var coming, calls sync.WaitGroup
	coming.Add(many)
	no := errors.New("no")
	c := sandbox.Call{
		Tool: "tiny", Input: []byte("x"),
		Probe: func(func() sandbox.Meter) { coming.Done() },
		Begin: func() error { coming.Wait(); return no }, // it has the slot until then
	}
	for range many {
		calls.Go(func() {
			if _, err := m.Call(t.Context(), c, quiet{}); err != no {
				t.Error(err)
			}
		})
	}
	calls.Wait()
	if n := len(engine.idle); n != 1 {
		t.Errorf("%d processes, want 1", n)
	}
}

// TestAnExchangeHoldsNoSlot: while one call waits for an answer another one computes.
func TestAnExchangeHoldsNoSlot(t *testing.T) {
	engine := workers(t, Config{Scheduler: scheduler.New(1)})
	other := mustLoad(t, engine, tiny().Bytes(), sandbox.Limits{})
	asking := asks(new(wasm.Asm).I32(roomAt).I32(1).I32(roomAt).I32(16).Index(wasm.OpCall, 0).Op(wasm.OpDrop))
	asking.Imports = asksTheWeb().Imports
	m := mustLoad(t, engine, asking.Bytes(), sandbox.Limits{})
	answered := false
	callTiny(t.Context(), t, m, &world{http: func(ctx context.Context, _ string) (string, abi.Status) {
		callTiny(ctx, t, other, quiet{})
		answered = true
		return "", abi.StatusTimeout
	}})
	if !answered {
		t.Error("no exchange was made")
	}
	callTiny(t.Context(), t, other, quiet{}) // so the slot was released
}

// TestALongCallHoldsNoSlot: a call that computes keeps its slot for a moment only, and
// later calls compute beside it.
func TestALongCallHoldsNoSlot(t *testing.T) {
	engine := workers(t, Config{Scheduler: scheduler.New(1)})
	short := mustLoad(t, engine, tiny().Bytes(), sandbox.Limits{})
	long := mustLoad(t, engine, spins().Bytes(), sandbox.Limits{TimeoutMs: 20_000, Fuel: 1 << 50})
	ctx, cancel := context.WithCancel(t.Context())
	begun, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		probe := func(func() sandbox.Meter) { close(begun) }
		_, _ = long.Call(ctx, sandbox.Call{Tool: "tiny", Input: []byte("x"), Probe: probe}, quiet{})
	}()
	<-begun
	for range 3 {
		callTiny(t.Context(), t, short, quiet{})
	}
	select {
	case <-ended:
		t.Error("the long call has ended, so nothing was shown")
	default:
	}
	cancel()
	<-ended
}
