package worker

import (
	"errors"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/starling-host/starling/host/sandbox"
	"github.com/starling-host/starling/internal/treetest"
	"github.com/starling-host/starling/runtime/tool"
)

// observation is everything that is observable in a call.
type observation struct {
	Output, Error string
	Classes       []string
	Meter, Probed sandbox.Meter
	Effects       []string
	Fuel          []uint64
}

var errorClasses = map[string]error{
	"panicked": tool.ErrPanicked, "fuel": tool.ErrFuel, "limit": tool.ErrLimit, "timeout": tool.ErrTimeout,
	"cancelled": tool.ErrCancelled, "lost": tool.ErrLost, "host": tool.ErrHost,
}

func observe(t *testing.T, m sandbox.Loaded, c sandbox.Call, w *world) (observation, error) {
	t.Helper()
	c.Probe = func(meter func() sandbox.Meter) { w.meter = meter }
	r, err := m.Call(tool.WithRunID(t.Context(), "the run"), c, w)
	o := observation{Output: string(r.Output), Meter: r.Meter, Effects: w.effects, Fuel: w.fuel, Probed: w.meter()}
	if err != nil {
		o.Error = err.Error()
	}
	for _, name := range []string{"panicked", "fuel", "limit", "timeout", "cancelled", "lost", "host"} {
		if errors.Is(err, errorClasses[name]) {
			o.Classes = append(o.Classes, name)
		}
	}
	return o, err
}

// The outcome never depends on the process in which a guest runs.
func TestACallInAWorkerIsTheCallInline(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIPPED in short mode: compiles a Go program several times; TestEveryOutcomeReplaysHereAndThere compares less")
	}
	wasm := mustBuild(t, goTool)
	limits := sandbox.Limits{Fuel: 300_000_000, MemoryPages: 512}
	here, there := mustLoad(t, inline(t), wasm, limits), mustLoad(t, workers(t, Config{CacheDir: treetest.CodeFolder()}), wasm, limits)
	if here.Digest() != there.Digest() || here.ABI() != there.ABI() || here.Limits() != there.Limits() {
		t.Errorf("the module is another: %v %s %v", there.Digest(), there.ABI(), there.Limits())
	}
	if diff := cmp.Diff(here.Imports(), there.Imports()); diff != "" {
		t.Error(diff)
	}
	names := strings.Fields("echo clock sleep random maps goroutines garbage world print flood fetch panic nil recovered exit deadlock spin recurse hoard big")
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			c := sandbox.Call{Tool: name, Input: envelope(name, `"hello"`)}
			want, _ := observe(t, here, c, &world{})
			got, _ := observe(t, there, c, &world{})
			if diff := cmp.Diff(want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
	want, _ := here.Describe(t.Context())
	got, err := there.Describe(t.Context())
	if err != nil || string(got) != string(want) {
		t.Errorf("described as %q, %v, not %q", got, err, want)
	}
}

// TestACallBeginsWhenItHasItsProcess: when a call is reported to begin, it waits for
// nothing more, and can still be prevented.
func TestACallBeginsWhenItHasItsProcess(t *testing.T) {
	engine := workers(t, Config{})
	m := mustLoad(t, engine, asksForTheTime().Bytes(), sandbox.Limits{}).(*Module)
	busy := engine.take(m)
	m.starting <- struct{}{} // as a call does that has a process started
	waiting, ended := make(chan bool), make(chan error, 1)
	var free atomic.Bool
	w, no := &world{}, errors.New("no")
	go func() {
		_, err := m.Call(t.Context(), sandbox.Call{
			Input: envelope("t", "1"),
			Probe: func(func() sandbox.Meter) { close(waiting) },
			Begin: func() error {
				if !free.Load() {
					t.Error("the call begins while its process is another's")
				}
				return no
			},
		}, w)
		ended <- err
	}()
	<-waiting
	free.Store(true)
	m.giveBack(busy)
	<-m.starting
	if err := <-ended; err != no || len(w.effects) > 0 {
		t.Errorf("a call that must not begin: %v, after %q", err, w.effects)
	}
	here := mustLoad(t, inline(t), asksForTheTime().Bytes(), sandbox.Limits{})
	if _, err := here.Call(t.Context(), sandbox.Call{Input: envelope("t", "1"), Begin: func() error { return no }}, w); err != no || len(w.effects) > 0 {
		t.Errorf("inline: %v, after %q", err, w.effects)
	}
}
