package guest

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"

	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/eventlog/store"
	"github.com/starling-host/starling/runtime/agent"
	"github.com/starling-host/starling/runtime/step"
	"github.com/starling-host/starling/runtime/tool"
)

// dying is a sandboxed tool whose process dies after some imports. In a replay no process dies.
type dying struct {
	use   func(imports, context.Context)
	times int
	ended bool // by the import itself
}

func (*dying) Name() string            { return "dying" }
func (*dying) Description() string     { return "a tool for tests" }
func (*dying) Schema() json.RawMessage { return json.RawMessage(`{"type":"object"}`) }
func (*dying) Sandbox() *event.Sandbox { return &event.Sandbox{ABI: "test"} }

func (d *dying) Execute(ctx context.Context, input json.RawMessage) (json.RawMessage, error) {
	return step.ExecuteJSON(ctx, d, input)
}

func (d *dying) ExecuteParsed(ctx context.Context, a *step.Attempt, _ *canon.Doc) (_ *canon.Doc, err error) {
	var meter step.Meter
	a.SetProbe(func() step.Meter { return meter })
	defer func() {
		if stopped, ok := recover().(error); ok { // as the sandbox does
			d.ended, err = true, stopped
		}
	}()
	for range d.times {
		meter.Fuel += 10
		d.use(imports{attempt: a}, ctx)
	}
	return nil, fmt.Errorf("%w: its process ended", tool.ErrLost)
}

// TestTheReplayOfALostCallEnds: each import ends the guest of a replay where the record of a call ends
// whose process died.
func TestTheReplayOfALostCallEnds(t *testing.T) {
	for name, use := range map[string]func(imports, context.Context){
		"Now":    func(i imports, ctx context.Context) { i.Now(ctx) },
		"Random": func(i imports, ctx context.Context) { i.Random(ctx) },
		"Seed":   func(i imports, ctx context.Context) { i.Seed(ctx) },
	} {
		d := &dying{use: use, times: 3}
		log := store.Memory()
		recorded, err := agent.Direct{Log: log, Tool: d}.Run(t.Context(), json.RawMessage(`{}`))
		if err != nil {
			t.Fatal(err)
		}
		events, err := log.Read(t.Context(), recorded.RunID)
		if err != nil {
			t.Fatal(err)
		}
		d.times = 100
		if _, err := (agent.Direct{Tool: d}).Replay(t.Context(), events, agent.ReplayOptions{}); err != nil || !d.ended {
			t.Errorf("%s: %v; the import ended the call: %t", name, err, d.ended)
		}
	}
}
