package worker

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/starling-host/starling/host/sandbox"
	"github.com/starling-host/starling/runtime/tool"
)

// children returns the processes whose parent is this one, with their state, by
// id. The states are as in proc(5).
func children(t *testing.T) map[int]string {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skip("SKIPPED: needs /proc")
	}
	files, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		t.Fatal(err)
	}
	found := map[int]string{}
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			continue // ended meanwhile
		}
		fields := strings.Fields(string(b[strings.LastIndexByte(string(b), ')')+1:]))
		if fields[1] == strconv.Itoa(os.Getpid()) {
			pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(file)))
			found[pid] = fields[0]
		}
	}
	return found
}

// killWorkers kills every child of this process.
func killWorkers(t *testing.T) {
	t.Helper()
	for pid := range children(t) {
		p, err := os.FindProcess(pid)
		if err == nil {
			err = p.Kill()
		}
		if err != nil && !errors.Is(err, os.ErrProcessDone) {
			t.Error(err)
		}
	}
}

func TestACallWhoseProcessDiesIsLostAndTheNextSucceeds(t *testing.T) {
	var logged bytes.Buffer
	e := workers(t, Config{Logger: slog.New(slog.NewTextHandler(&logged, nil))})
	m := mustLoad(t, e, asksForEver().Bytes(), sandbox.Limits{})
	w := &world{}
	w.at = func(effect int) {
		if effect == 7 {
			killWorkers(t)
		}
	}
	got, err := observe(t, m, sandbox.Call{Input: []byte("x")}, w)
	if !errors.Is(err, tool.ErrLost) || got.Error != "tool: lost: its process ended" || len(got.Effects) != 7 {
		t.Errorf("got %+v", got)
	}
	if !strings.Contains(logged.String(), `msg="a worker process died" run_id="the run"`) {
		t.Errorf("the operator is not told of which run: %s", &logged)
	}
	if got.Meter.Fuel != got.Fuel[6] || got.Meter != got.Probed {
		t.Errorf("the meter reads %+v, then %+v; the last effect was at %d", got.Meter, got.Probed, got.Fuel[6])
	}
	again, err := observe(t, m, sandbox.Call{Input: []byte("x")}, endingAfter(3))
	if err != errInterrupted || len(again.Effects) != 3 {
		t.Errorf("the next call: %+v", again)
	}
}

func probeOf(w *world) func(func() sandbox.Meter) {
	return func(meter func() sandbox.Meter) { w.meter = meter }
}

var errInterrupted = errors.New("interrupted")

// endingAfter is a world that ends the guest at the nth effect.
func endingAfter(n int) *world {
	return &world{at: func(effect int) {
		if effect == n {
			panic(errInterrupted)
		}
	}}
}

func TestAProcessThatDiedIdleIsReplaced(t *testing.T) {
	e := workers(t, Config{})
	m := mustLoad(t, e, tiny().Bytes(), sandbox.Limits{})
	idle := e.idle[0].process
	killWorkers(t)
	<-idle.exited
	if _, err := m.Call(t.Context(), sandbox.Call{Input: []byte("x")}, quiet{}); err != nil {
		t.Error(err)
	}
}

// TestTheEndOfTheTimeIsThatOfTheSandbox gives the guest more time if it got nothing of
// the processor before the end, as on a busy machine.
func TestTheEndOfTheTimeIsThatOfTheSandbox(t *testing.T) {
	var want, got observation
	for ms := int64(30); got.Meter.Fuel == 0; ms *= 10 {
		if ms > 10_000 {
			t.Fatal("the guest was not running")
		}
		limits := sandbox.Limits{TimeoutMs: ms}
		here, there := mustLoad(t, inline(t), spins().Bytes(), limits), mustLoad(t, workers(t, Config{Grace: time.Minute}), spins().Bytes(), limits)
		want, _ = observe(t, here, sandbox.Call{Input: []byte("x")}, &world{})
		got, _ = observe(t, there, sandbox.Call{Input: []byte("x")}, &world{})
	}
	want.Meter, want.Probed = got.Meter, got.Probed // the world decides where
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestACancelledCallEndsAtACheck(t *testing.T) {
	m := mustLoad(t, workers(t, Config{Grace: time.Minute}), asksForEver().Bytes(), sandbox.Limits{})
	ctx, cancel := context.WithCancel(t.Context())
	w := &world{}
	w.at = func(effect int) {
		if effect == 5 {
			cancel()
		}
	}
	r, err := m.Call(ctx, sandbox.Call{Input: []byte("x")}, w)
	if err == nil || err.Error() != "tool: cancelled" || !errors.Is(err, tool.ErrCancelled) || r.Meter.Fuel == 0 {
		t.Errorf("%+v, %v", r, err)
	}
}

// The test stops a process with a signal, to make it unresponsive: to the
// host it looks like a process whose guest has found a way around all checks.
func TestAStuckProcessIsKilledAndReplaced(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("SKIPPED: needs SIGSTOP")
	}
	tests := []struct {
		name   string
		limits sandbox.Limits
		cancel bool
		want   string
	}{
		{"at the end of its time", sandbox.Limits{TimeoutMs: 1000}, false, "tool: deadline exceeded: the call took longer than 1000 ms"},
		{"after a cancellation", sandbox.Limits{}, true, "tool: cancelled"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			m := mustLoad(t, workers(t, Config{Grace: 10 * time.Millisecond}), asksForEver().Bytes(), tt.limits)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			w := &world{}
			w.at = func(effect int) {
				if effect == 3 {
					freezeWorkers(t)
					if tt.cancel {
						cancel()
					}
				}
			}
			r, err := m.Call(ctx, sandbox.Call{Input: []byte("x"), Probe: probeOf(w)}, w)
			if err == nil || err.Error() != tt.want || r.Meter.Fuel != w.fuel[len(w.fuel)-1] {
				t.Errorf("%+v, %v; effects at %v", r, err, w.fuel)
			}
			if _, err := m.Call(t.Context(), sandbox.Call{Input: []byte("x"), NoTimeout: true}, endingAfter(3)); err != errInterrupted {
				t.Errorf("the next call: %v", err)
			}
		})
	}
}

// While the host carries out an effect a process has nothing to answer for. Afterwards
// it has all of the grace, which on a busy machine it may need.
func TestAProcessThatWaitsForTheHostIsNotKilled(t *testing.T) {
	engine := workers(t, Config{Grace: time.Minute})
	m := mustLoad(t, engine, asksForEver().Bytes(), sandbox.Limits{TimeoutMs: 50}).(*Module)
	p := engine.take(m)
	m.giveBack(p)
	w := &world{}
	w.at = func(effect int) {
		if effect == 1 {
			p.watch.outlast()
		}
	}
	_, err := m.Call(t.Context(), sandbox.Call{Input: []byte("x")}, w)
	if !errors.Is(err, tool.ErrTimeout) {
		t.Error(err)
	}
	if n := len(engine.idle); n != 1 {
		t.Errorf("%d processes are left", n)
	}
}

// outlast returns when the watch has seen a call's time pass, and the grace, which it
// takes to be over at once.
func (w *watch) outlast() {
	for late, _ := w.ended(); !late; late, _ = w.ended() {
		time.Sleep(time.Millisecond)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for w.wait(time.Now()); !w.due.IsZero(); w.mu.Lock() {
		w.mu.Unlock()
		time.Sleep(time.Millisecond)
	}
}

func TestNothingIsLeftOfAnEngine(t *testing.T) {
	e, err := New(t.Context(), Config{MaxIdle: 2, MaxCalls: 2})
	if err != nil {
		t.Fatal(err)
	}
	before := children(t)
	var modules []*Module
	for _, wasm := range [][]byte{tiny().Bytes(), asksForTheTime().Bytes(), spins().Bytes()} {
		m, err := e.Load(t.Context(), wasm, sandbox.Limits{TimeoutMs: 20})
		if err != nil {
			t.Fatal(err)
		}
		modules = append(modules, m.(*Module))
	}
	if len(e.idle) != 2 || e.idle[0].module == modules[0] {
		t.Errorf("%d processes are idle", len(e.idle))
	}
	for range 3 {
		killWorkers(t)
		for _, m := range modules {
			m.Call(t.Context(), sandbox.Call{Input: []byte("x")}, quiet{})
		}
	}
	if err := e.Close(t.Context()); err != nil {
		t.Error(err)
	}
	for pid, state := range children(t) {
		if _, was := before[pid]; !was {
			t.Errorf("process %d is left, in state %s", pid, state)
		}
	}
	if _, err := modules[0].Call(t.Context(), sandbox.Call{}, quiet{}); !errors.Is(err, ErrClosed) {
		t.Errorf("a call after Close: %v", err)
	}
}
