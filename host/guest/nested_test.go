package guest_test

import (
	"context"
	"encoding/json"
	"sync"
	"testing"
	"time"

	"github.com/starling-host/starling/host/guest"
	"github.com/starling-host/starling/host/internal/interp"
	"github.com/starling-host/starling/runtime/agent"
	"github.com/starling-host/starling/runtime/tool"
)

// TestNestedCallsNeedNoPlace has as many calls as there are places make nested calls at the
// same time, in processes. If these waited for places, none would ever get one.
func TestNestedCallsNeedNoPlace(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	const places = 2
	engine, err := guest.NewProcesses(ctx, guest.ProcessConfig{CacheDir: codeDir, MaxCalls: places})
	if err != nil {
		t.Fatal(err)
	}
	defer engine.Close(context.Background())
	load := func() *guest.Tool {
		m, err := guest.Load(ctx, engine, interp.Tools["run_js"].Wasm(), guest.Options{})
		if err != nil {
			t.Fatal(err)
		}
		return m.Tools()[0]
	}
	inner := load()
	d := agent.Direct{Log: newLog(), Tool: load().Calling(), Others: []tool.Tool{tool.Rename(inner, "inner")}}
	input := json.RawMessage(`{"code":"let n = 0; for (let i = 0; i < 3; i++) n += await tools.inner({code: 'return 7'}); return n;"}`)
	inline, err := guest.Load(ctx, guest.Inline(newEngine(t)), interp.Tools["run_js"].Wasm(), guest.Options{})
	if err != nil {
		t.Fatal(err)
	}
	// A replay takes from the record whether the call may be made.
	again := agent.Direct{Tool: inline.Tools()[0], Others: []tool.Tool{tool.Rename(inline.Tools()[0], "inner")}}
	var calls sync.WaitGroup
	for range places {
		calls.Go(func() {
			r, err := d.Run(ctx, input)
			if err != nil || string(r.Output) != "21" {
				t.Errorf("%+v, %v", r, err)
				return
			}
			events, err := d.Log.Read(ctx, r.RunID)
			if err != nil {
				t.Error(err)
				return
			}
			if _, err := again.Replay(ctx, events, agent.ReplayOptions{}); err != nil {
				t.Errorf("replay in this process: %v", err)
			}
		})
	}
	calls.Wait()
}
