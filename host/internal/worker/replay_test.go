package worker_test

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/eventlog/store"
	"github.com/starling-host/starling/host/guest"
	"github.com/starling-host/starling/host/internal/worker"
	"github.com/starling-host/starling/host/sandbox"
	"github.com/starling-host/starling/internal/wasmtest"
	"github.com/starling-host/starling/runtime/agent"
	"github.com/starling-host/starling/runtime/tool"
)

// toolOf gives a tiny tool a description.
func toolOf(m *wasmtest.Module) []byte {
	const description = `{"tools":[{"name":"tiny","description":"d","input_schema":{"type":"object"}}]}`
	m.Data = append(m.Data, wasmtest.Data{Offset: worker.OutputAt + 0x100, Bytes: description})
	m.Funcs[1].Code = worker.Packed(worker.OutputAt+0x100, len(description))
	return m.Bytes()
}

// record makes a run of the tool and returns its events.
func record(t *testing.T, ctx context.Context, subject tool.Tool) []event.Event {
	t.Helper()
	log := struct{ eventlog.EventLog }{store.Memory()} // without modules: the tool is at hand
	defer log.Close()
	r, err := agent.Direct{Log: log, Tool: subject, ClockFn: tick()}.Run(ctx, json.RawMessage(`{}`))
	if err != nil {
		t.Fatal(err)
	}
	events, err := log.Read(context.Background(), r.RunID)
	if err != nil {
		t.Fatal(err)
	}
	return events
}

func tick() func() time.Time {
	now := time.Unix(1_790_000_000, 0)
	return func() time.Time { now = now.Add(time.Millisecond); return now }
}

func mustTool(t *testing.T, e sandbox.Loader, wasm []byte, l sandbox.Limits) tool.Tool {
	t.Helper()
	m, err := guest.Load(t.Context(), e, wasm, guest.Options{Limits: l, Name: "tiny.wasm"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close(context.Background()) })
	return m.Tools()[0]
}

func mustReplay(t *testing.T, where string, events []event.Event, subject tool.Tool) {
	t.Helper()
	v, err := agent.Replay(t.Context(), events, func(context.Context, event.ToolSchemaRef) (tool.Tool, error) { return subject, nil }, agent.ReplayOptions{})
	if err != nil || !v.Identical() || v.Open {
		t.Errorf("%s: %+v, %v", where, v.Divergence, err)
	}
}

// meddling is a tool that something happens to while it runs.
type meddling struct {
	tool.Sandboxed
	during func()
}

// soon returns a while after a call has the one process of an engine.
func soon(t *testing.T, e *worker.Engine) {
	for range 10_000 {
		busy := worker.Busy(e)
		time.Sleep(time.Millisecond)
		if busy {
			time.Sleep(30 * time.Millisecond)
			return
		}
	}
	t.Error("no call has begun")
}

func (m meddling) Execute(ctx context.Context, input json.RawMessage) (json.RawMessage, error) {
	done := make(chan struct{})
	go func() { defer close(done); m.during() }()
	defer func() { <-done }()
	return m.Sandboxed.Execute(ctx, input)
}

// A run does not depend on the process that it ran in, and replays in any.
func TestEveryOutcomeReplaysHereAndThere(t *testing.T) {
	traps := worker.Tiny()
	traps.Funcs[2].Code = worker.Unreachable()
	tests := []struct {
		name   string
		module *wasmtest.Module
		limits sandbox.Limits
		during func(t *testing.T, cancel context.CancelFunc) // a while after the call has begun
		want   string                                        // the recorded type, empty for a success
	}{
		{"a success", worker.Tiny(), sandbox.Limits{}, nil, ""},
		{"a success with an effect", worker.AsksForTheTime(), sandbox.Limits{}, nil, ""},
		{"a trap", traps, sandbox.Limits{}, nil, event.ErrorPanic},
		{"out of fuel", worker.Spins(), sandbox.Limits{Fuel: 1_000_000}, nil, event.ErrorFuel},
		{"too many effects", worker.AsksForEver(), sandbox.Limits{Effects: 3}, nil, event.ErrorLimit},
		{"the end of its time", worker.Spins(), sandbox.Limits{TimeoutMs: 30}, nil, event.ErrorTimeout},
		{"a cancellation", worker.Spins(), sandbox.Limits{}, func(_ *testing.T, cancel context.CancelFunc) { cancel() }, event.ErrorCancelled},
		{"a process that dies while it computes", worker.Spins(), sandbox.Limits{}, func(t *testing.T, _ context.CancelFunc) { worker.KillWorkers(t) }, event.ErrorLost},
		{"a process that dies between effects", worker.AsksForEver(), sandbox.Limits{Effects: 1 << 20, EffectBytes: 1 << 30}, func(t *testing.T, _ context.CancelFunc) { worker.KillWorkers(t) }, event.ErrorLost},
		{"a process that hangs", worker.AsksForEver(), sandbox.Limits{TimeoutMs: 300, Effects: 1 << 20, EffectBytes: 1 << 30}, func(t *testing.T, _ context.CancelFunc) { worker.FreezeWorkers(t) }, event.ErrorTimeout},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			wasm := toolOf(tt.module)
			engine := worker.Workers(t, worker.Config{Grace: 50 * time.Millisecond})
			here, there := mustTool(t, worker.Inline(t), wasm, tt.limits), mustTool(t, engine, wasm, tt.limits)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			subject := there
			if tt.during != nil {
				subject = meddling{there.(tool.Sandboxed), func() { soon(t, engine); tt.during(t, cancel) }}
			}
			events := record(t, ctx, subject)
			worker.ThawWorkers(t) // on a busy machine the call may have ended before its process was frozen
			if got := recordedType(t, events); got != tt.want {
				t.Fatalf("recorded as %q, not %q", got, tt.want)
			}
			mustReplay(t, "inline", events, here)
			mustReplay(t, "in a worker", events, there)
			if tt.during == nil && tt.want != event.ErrorTimeout {
				if diff := cmp.Diff(payloads(record(t, ctx, here)), payloads(events)); diff != "" {
					t.Errorf("recorded otherwise inline:\n%s", diff)
				}
			}
			if tt.want == event.ErrorTimeout || tt.want == event.ErrorCancelled {
				mustReplay(t, "recorded inline, replayed in a worker", recordUntil(t, tt.want, here), there)
			}
		})
	}
}

// recordUntil records a run inline that is interrupted.
func recordUntil(t *testing.T, errorType string, subject tool.Tool) []event.Event {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	if errorType == event.ErrorCancelled {
		time.AfterFunc(30*time.Millisecond, cancel)
	}
	return record(t, ctx, subject)
}

// recordedType is the type of the failure of the call in a run.
func recordedType(t *testing.T, events []event.Event) string {
	t.Helper()
	for _, ev := range events {
		if ev.Kind == event.KindToolCallFailed {
			failed, err := ev.AsToolCallFailed()
			if err != nil {
				t.Fatal(err)
			}
			return failed.ErrorType
		}
	}
	return ""
}

// payloads returns the parts that two runs must have in common, without the
// effects' values and the minted id, which come from the world.
func payloads(events []event.Event) []string {
	var out []string
	for _, ev := range events {
		switch ev.Kind {
		case event.KindSideEffectRecorded:
			effect, _ := ev.AsSideEffectRecorded()
			effect.Value, effect.CallID = nil, ""
			out = append(out, fmt.Sprintf("%+v", effect))
		case event.KindToolCallCompleted:
			completed, _ := ev.AsToolCallCompleted()
			completed.CallID = ""
			out = append(out, fmt.Sprintf("%+v", completed))
		case event.KindToolCallFailed:
			failed, _ := ev.AsToolCallFailed()
			failed.CallID = ""
			out = append(out, fmt.Sprintf("%+v", failed))
		}
	}
	return out
}
