package worker

import (
	"testing"
	"time"

	"github.com/starling-host/starling/host/sandbox"
)

// TestAFloodTakesNobodysProcess: when there is no room, processes of the module
// with the most are ended.
func TestAFloodTakesNobodysProcess(t *testing.T) {
	engine := workers(t, Config{MaxIdle: 3, MaxCalls: 5})
	engine.linger = time.Hour
	quiet := mustLoad(t, engine, tiny().Bytes(), sandbox.Limits{}).(*Module) // with one idle process
	flood := mustLoad(t, engine, spins().Bytes(), sandbox.Limits{}).(*Module)
	var busy []*process
	for range 4 {
		p, err := flood.start(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		busy = append(busy, p)
	}
	for _, p := range busy {
		flood.giveBack(p)
	}
	kept := engine.take(quiet)
	if kept == nil {
		t.Fatal("the one process of a module was ended for those of another")
	}
	quiet.giveBack(kept)
	if n := len(engine.idle); n != 5 {
		t.Errorf("%d processes are idle just after the calls, want MaxCalls", n)
	}
	engine.linger = 0
	engine.tidy()
	if n := len(engine.idle); n != 3 {
		t.Errorf("%d processes are idle, want MaxIdle", n)
	}
}

// TestCallsOfOneModuleWaitInOnePlace: while a process is started for a call, another
// call of the module takes a process that is given back, and starts none.
func TestCallsOfOneModuleWaitInOnePlace(t *testing.T) {
	engine := workers(t, Config{})
	m := mustLoad(t, engine, tiny().Bytes(), sandbox.Limits{}).(*Module)
	busy := engine.take(m)
	m.starting <- struct{}{} // as a call does that has a process started
	got := make(chan *process)
	go func() {
		p, err := m.acquire(t.Context())
		if err != nil {
			t.Error(err)
		}
		got <- p
	}()
	m.giveBack(busy)
	<-m.starting
	p := <-got
	if p != busy {
		t.Error("another process was started")
	}
	m.giveBack(p)
}
