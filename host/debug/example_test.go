package debug_test

import (
	"context"
	"fmt"
	"os"

	"github.com/starling-host/starling/eventlog/store"
	"github.com/starling-host/starling/host/debug"
	"github.com/starling-host/starling/host/guest"
	"github.com/starling-host/starling/host/sandbox"
	"github.com/starling-host/starling/runtime/agent"
)

// A call reads the clock twice. The session begins at its end, and goes back to the second time.
func Example() {
	ctx := context.Background()
	log := store.Memory()
	runID, err := record(ctx, log)
	if err != nil {
		fmt.Println(err)
		return
	}
	events, err := log.Read(ctx, runID)
	if err != nil {
		fmt.Println(err)
		return
	}
	target, err := debug.Find(events, "")
	if err != nil {
		fmt.Println(err)
		return
	}
	s, err := debug.Open(ctx, events, target, debug.Options{Modules: log})
	if err != nil {
		fmt.Println(err)
		return
	}
	if _, err := s.Break("effect now"); err != nil {
		fmt.Println(err)
		return
	}
	stop, err := s.Move(ctx, debug.Continue, true)
	at, end, _ := s.Position()
	fmt.Println(stop.Reason, stop.Breakpoint.What, at < end, err)
	fmt.Println(s.Effects()[0].Name, s.Frames()[0].Function)
	// Output:
	// breakpoint effect now true <nil>
	// now function 5
}

// record runs a tool once.
func record(ctx context.Context, log *store.MemoryLog) (runID string, err error) {
	wasm, err := os.ReadFile("../../spec/tck/modules/clock.wasm")
	if err != nil {
		return "", err
	}
	engine, err := sandbox.New(ctx, sandbox.Config{})
	if err != nil {
		return "", err
	}
	defer engine.Close(ctx)
	if _, err := log.PutModule(ctx, wasm); err != nil {
		return "", err
	}
	module, err := guest.Load(ctx, guest.Inline(engine), wasm, guest.Options{Name: "clock"})
	if err != nil {
		return "", err
	}
	defer module.Close(ctx)
	result, err := agent.Direct{Log: log, Tool: module.Tools()[0]}.Run(ctx, []byte(`{}`))
	if err != nil {
		return "", err
	}
	return result.RunID, nil
}
