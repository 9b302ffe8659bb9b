package worker

import (
	"testing"

	"github.com/starling-host/starling/host/sandbox"
)

// TestAFloodTakesNobodysProcess: processes that there is no room for are those of
// the module that has the most.
func TestAFloodTakesNobodysProcess(t *testing.T) {
	engine := workers(t, Config{MaxIdle: 3})
	quiet := mustLoad(t, engine, tiny().Bytes(), sandbox.Limits{}).(*Module) // with one idle process
	flood := mustLoad(t, engine, spins().Bytes(), sandbox.Limits{}).(*Module)
	var busy []*process
	for range 4 {
		p, err := flood.start()
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
	if n := len(engine.idle); n != 3 {
		t.Errorf("%d processes are idle", n)
	}
}
