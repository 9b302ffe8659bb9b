package worker

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/starling-host/starling/host/sandbox"
)

// priorityOf returns the nice value of a process's group.
func priorityOf(t *testing.T, pid int) int {
	t.Helper()
	raw, _, errno := syscall.Syscall(syscall.SYS_GETPRIORITY, syscall.PRIO_PGRP, uintptr(pid), 0)
	if errno != 0 {
		t.Fatal(errno)
	}
	return 20 - int(raw) // the system call has no negative results
}

// TestLongCallsAreDemoted: a call that computes is demoted; a call with little to do is
// not. The demoted process is kept as long as its calls are long.
func TestLongCallsAreDemoted(t *testing.T) {
	engine := workers(t, Config{Grace: time.Minute}) // a demoted process may wait that long before it sees a cancellation
	short := mustLoad(t, engine, tiny().Bytes(), sandbox.Limits{}).(*Module)
	if _, err := short.Call(t.Context(), sandbox.Call{Tool: "tiny", Input: []byte("x")}, quiet{}); err != nil {
		t.Fatal(err)
	}
	p := engine.take(short)
	if got := priorityOf(t, p.os.Pid); got != niceness || p.demoted.Load() {
		t.Errorf("after a short call the priority is %d", got)
	}
	short.giveBack(p)

	long := mustLoad(t, engine, spins().Bytes(), sandbox.Limits{TimeoutMs: 20_000, Fuel: 1 << 50}).(*Module)
	p = engine.take(long)
	long.giveBack(p)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() {
		_, err := long.Call(ctx, sandbox.Call{Tool: "tiny", Input: []byte("x")}, quiet{})
		done <- err
	}()
	for !p.demoted.Load() {
		// On a busy machine it may never have half of a processor. So all that it has
		// computed is taken to be of the stretch that ends next.
		p.watch.mu.Lock()
		p.watch.used = 1
		p.watch.mu.Unlock()
		select {
		case err := <-done:
			t.Fatalf("the call ended before it was demoted: %v", err)
		case <-time.After(stretch):
		}
	}
	// The flag is set first; the system is asked under the watch's lock.
	p.watch.mu.Lock()
	got := priorityOf(t, p.os.Pid)
	p.watch.mu.Unlock()
	if n := engine.config.Scheduler.Load().Demoted; n != 1 {
		t.Errorf("%d calls are counted as demoted, want 1", n)
	}
	if got != lowest {
		t.Errorf("the priority of a long call is %d, want %d", got, lowest)
	}
	cancel()
	<-done
	if kept := engine.take(long); kept != p {
		t.Fatalf("after a long call another process is kept: %v", kept)
	}
	p.watch.begin(99, &call{module: long}) // a short call
	p.watch.end()
	long.giveBack(p)
	if engine.take(long) != nil {
		t.Error("a demoted process is kept after a short call")
	}
}

// TestProcessesOfLongCallsStartDemoted: after a long call, processes of the
// module are demoted from the beginning, until one of its calls is short.
func TestProcessesOfLongCallsStartDemoted(t *testing.T) {
	engine := workers(t, Config{})
	m := mustLoad(t, engine, tiny().Bytes(), sandbox.Limits{}).(*Module)
	engine.drop(func(*idleProcess) bool { return true })
	m.long.Store(true)
	p, err := m.start(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if got := priorityOf(t, p.os.Pid); got != lowest || !p.demoted.Load() {
		t.Errorf("a process that starts demoted has priority %d", got)
	}
	m.giveBack(p)
	if _, err := m.Call(t.Context(), sandbox.Call{Tool: "tiny", Input: []byte("x")}, quiet{}); err != nil {
		t.Fatal(err)
	}
	if kept := engine.take(m); kept != nil {
		kept.end() // or the engine would wait for it
		t.Errorf("a process is kept after a short call, and has made %d", kept.calls)
	} else if p.calls != 1 {
		t.Errorf("the process made %d calls", p.calls)
	}
	if p, err = m.start(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer p.end()
	if got := priorityOf(t, p.os.Pid); got != niceness || p.demoted.Load() {
		t.Errorf("after a short call a process begins with priority %d", got)
	}
}

// TestDemotedCallStaysDemotedWhileQueued: a call that computes, but hardly ever gets
// the processor because it is demoted, does not count as short.
func TestDemotedCallStaysDemotedWhileQueued(t *testing.T) {
	engine := workers(t, Config{})
	m := mustLoad(t, engine, tiny().Bytes(), sandbox.Limits{}).(*Module)
	p := engine.take(m)
	defer p.end()
	p.demote()
	for name, c := range map[string]struct {
		used    time.Duration
		effects int
		long    bool
	}{
		"little":  {time.Millisecond, manyEffects, false},
		"compute": {2*stretch + time.Millisecond, 0, true},
		"effects": {0, 5*manyEffects + 1, true},
	} {
		p.watch.begin(1, &call{module: m})
		p.watch.mu.Lock()
		p.watch.before = processorTime(p.os.Pid) - c.used
		p.watch.effects = c.effects
		p.watch.mu.Unlock()
		p.watch.end()
		if p.watch.wasLong() != c.long || m.long.Load() != c.long {
			t.Errorf("%s: long is %v, and of the module %v", name, p.watch.wasLong(), m.long.Load())
		}
	}
}

// TestCompilersStandBack, unless a user waits for the result.
func TestCompilersStandBack(t *testing.T) {
	own := priorityOf(t, syscall.Getpgrp())
	for foreground, want := range map[bool]int{false: lowest, true: own} {
		p, err := start(t.Context(), settings{Compile: true, Foreground: foreground, Folder: t.TempDir()}, maxCompileAnswer, 0, slog.New(slog.DiscardHandler), func() {})
		if err != nil {
			t.Fatal(err)
		}
		if got := priorityOf(t, p.os.Pid); got != want {
			t.Errorf("in the foreground is %v: priority %d, want %d", foreground, got, want)
		}
		p.end()
	}
}

// TestProcessorTimeOfAWorkerIsBounded: the system ends a worker that computes without end
// outside of a call, and a call may take all that its fuel allows.
func TestProcessorTimeOfAWorkerIsBounded(t *testing.T) {
	engine := workers(t, Config{})
	m := mustLoad(t, engine, tiny().Bytes(), sandbox.Limits{Fuel: 20e9}).(*Module)
	p, err := m.acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer m.giveBack(p)
	limits, err := os.ReadFile(fmt.Sprintf("/proc/%d/limits", p.os.Pid))
	if err != nil {
		t.Fatal(err)
	}
	want := fmt.Sprintf("%-26s%d", "Max cpu time", (time.Hour+20_000*time.Second)/time.Second)
	if !strings.Contains(string(limits), want) {
		t.Errorf("the limits lack %q:\n%s", want, limits)
	}
	if p.spent() {
		t.Error("a process that has used next to nothing is spent")
	}
}
