package guest_test

import (
	"context"
	"encoding/json"
	"sync/atomic"
	"testing"
	"time"

	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/host/guest"
	"github.com/starling-host/starling/host/internal/interp"
	"github.com/starling-host/starling/host/sandbox"
	"github.com/starling-host/starling/runtime/agent"
	"github.com/starling-host/starling/runtime/tool"
)

// timed measures what takes time in a call, and what does not, in milliseconds.
const timed = `const took = async (act) => { const began = Date.now(), from = performance.now(); try { await act() } catch {}
	const ms = Date.now() - began; if (Math.abs(performance.now() - from - ms) > 50) throw new Error("two clocks"); return ms };
return [
	await took(() => fetch("http://127.0.0.1:9/")),
	await took(() => tools.inner({ code: "await new Promise((r) => setTimeout(r, 1e7)); return 1" })),
	await took(() => tools.run_js({ code: "return 1" })),
	await took(() => fetch("http://127.0.0.1:9/", { method: "TRACE" })),
	await took(() => new Promise((r) => setTimeout(r, 90_000))),
]`

// TestEffectsTakeTheirRecordedTime: an exchange that is denied and a call of another tool move the
// clock by duration_us. A refused call and a malformed request, which have none, do not, and a sleep
// moves it by itself. It is the same in this process and in others, and in a replay on every engine.
// A run that was recorded without the field rules follows the rules of that time.
func TestEffectsTakeTheirRecordedTime(t *testing.T) {
	wasm := interp.Tools["run_js"].Wasm()
	processes, err := guest.NewProcesses(t.Context(), guest.ProcessConfig{CacheDir: codeDir})
	if err != nil {
		t.Fatal(err)
	}
	defer processes.Close(context.Background())
	engines := map[string]guest.Engine{"compiler": guest.Inline(newEngine(t)), "processes": processes}
	for name, c := range map[string]sandbox.Config{"machine": {Machine: true}, "interpreter": {Interpreter: true}} {
		engine, err := sandbox.New(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		defer engine.Close(context.Background())
		engines[name] = guest.Inline(engine)
	}
	tools := map[string]agent.Direct{}
	limits := sandbox.DefaultLimits()
	limits.Depth = 31744 // which every engine holds
	for name, engine := range engines {
		m, err := guest.Load(t.Context(), engine, wasm, guest.Options{Limits: limits})
		if err != nil {
			t.Fatal(name, err)
		}
		defer m.Close(context.Background())
		tools[name] = agent.Direct{Tool: m.Tools()[0].Calling(), Others: []tool.Tool{tool.Rename(m.Tools()[0], "inner")}}
	}
	input, err := json.Marshal(map[string]string{"code": timed})
	if err != nil {
		t.Fatal(err)
	}
	for _, live := range []string{"compiler", "processes"} {
		var readings atomic.Int64
		d := tools[live]
		d.Log = newLog()
		d.ClockFn = func() time.Time { return time.Unix(1_790_000_000+7*readings.Add(1), 0) }
		r, err := d.Run(t.Context(), input)
		if err != nil {
			t.Fatal(err)
		}
		events, err := d.Log.Read(t.Context(), r.RunID)
		if err != nil {
			t.Fatal(err)
		}
		var ms []int64
		if err := json.Unmarshal(r.Output, &ms); err != nil || len(ms) != 5 {
			t.Fatalf("%s: %s %s, %v", live, r.Output, r.Error, err)
		}
		var recorded []int64
		for _, ev := range events {
			if p, err := ev.AsSideEffectRecorded(); err == nil && (p.Request != nil || len(p.Name) > 5 && p.Name[:5] == "call ") {
				recorded = append(recorded, p.DurationUs/1000)
			}
		}
		if len(recorded) != 3 || recorded[0] < 7000 || recorded[1] < 7000 || recorded[2] != 0 {
			t.Fatalf("%s: the effects took %d ms", live, recorded)
		}
		for i, want := range []int64{recorded[0], recorded[1], 0, 0, 90_000} {
			if ms[i] < want || ms[i] > want+50 { // the program computes, too
				t.Errorf("%s: step %d took %d ms on the tool's clock, and %d are recorded", live, i, ms[i], want)
			}
		}
		for name, again := range tools {
			if _, err := again.Replay(t.Context(), events, agent.ReplayOptions{}); err != nil {
				t.Errorf("recorded on %s, replayed on %s: %v", live, name, err)
			}
		}
		started, err := events[0].AsRunStarted()
		if err != nil || started.ToolSchemas[0].Sandbox.Rules != event.RulesVersion {
			t.Fatalf("%+v, %v", started.ToolSchemas, err)
		}
		for i := range started.ToolSchemas {
			started.ToolSchemas[i].Sandbox.Rules = 0
		}
		if events[0].Payload, err = event.EncodePayload(started); err != nil {
			t.Fatal(err)
		}
		result, err := tools["compiler"].Replay(t.Context(), events, agent.ReplayOptions{})
		if err == nil {
			t.Errorf("%s: by the rules of before, the exchange takes %s ms", live, result.Output)
		}
	}
}
