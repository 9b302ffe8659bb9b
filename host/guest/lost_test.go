package guest

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"

	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/eventlog/store"
	"github.com/starling-host/starling/runtime/agent"
	"github.com/starling-host/starling/runtime/step"
	"github.com/starling-host/starling/runtime/tool"
)

// dying is a sandboxed tool whose process dies after some imports. In a replay no process dies.
type dying struct {
	use   func(context.Context)
	times int
	ended bool // by the import itself
}

func (*dying) Name() string            { return "dying" }
func (*dying) Description() string     { return "a tool for tests" }
func (*dying) Schema() json.RawMessage { return json.RawMessage(`{"type":"object"}`) }
func (*dying) Sandbox() *event.Sandbox { return &event.Sandbox{ABI: "test"} }

func (d *dying) Execute(ctx context.Context, _ json.RawMessage) (_ json.RawMessage, err error) {
	var meter step.Meter
	step.SetProbe(ctx, func() step.Meter { return meter })
	defer func() {
		if stopped, ok := recover().(error); ok { // as the sandbox does
			d.ended, err = true, stopped
		}
	}()
	for range d.times {
		meter.Fuel += 10
		d.use(ctx)
	}
	return nil, fmt.Errorf("%w: its process ended", tool.ErrLost)
}

// TestTheReplayOfALostCallEnds: each import ends the guest of a replay where the record of a call ends
// whose process died.
func TestTheReplayOfALostCallEnds(t *testing.T) {
	for name, use := range map[string]func(context.Context){
		"Now":    func(ctx context.Context) { imports{}.Now(ctx) },
		"Random": func(ctx context.Context) { imports{}.Random(ctx) },
		"Seed":   func(ctx context.Context) { imports{}.Seed(ctx) },
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
