package step_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/runtime/step"
	"github.com/starling-host/starling/runtime/tool"
)

// lostTool is a sandboxed tool whose process dies after some of its effects, each
// of which costs ten units.
type lostTool struct {
	native
	effects int // before it dies; a replay does not know
}

func (*lostTool) Sandbox() *event.Sandbox { return &event.Sandbox{ABI: "test"} }

func (l *lostTool) ExecuteParsed(ctx context.Context, a *step.Attempt, _ *canon.Doc) (*canon.Doc, error) {
	meter := step.Meter{}
	a.SetProbe(func() step.Meter { return meter })
	if stop, ok := a.RecordedStop(); ok {
		if stop.Fuel == 0 {
			return nil, tool.ErrLost
		}
		return nil, fmt.Errorf("a stop at %d, where no check is", stop.Fuel)
	}
	for n := 0; n != l.effects; n++ {
		meter.Fuel += 10
		step.Random(ctx)
		if _, ok := a.RecordedEnd(); ok {
			return nil, tool.ErrLost
		}
	}
	return nil, fmt.Errorf("%w: its process ended", tool.ErrLost)
}

func TestACallWhoseProcessDiedEndsAfterItsLastEffect(t *testing.T) {
	for _, effects := range []int{0, 1, 3} {
		guest := &lostTool{native: native{name: "guest"}, effects: effects}
		cfg := step.Config{Tools: step.NewRegistry(guest)}
		events := recordRun(t, cfg, callOnce("guest", `{}`))
		got := outcome(t, events)
		if got.ErrorType != event.ErrorLost || got.Fuel != uint64(10*effects) || got.Error != "tool: lost: its process ended" {
			t.Errorf("%d effects: recorded %+v", effects, got)
		}
		guest.effects = 100 // in a replay no process dies
		mustReplay(t, events, cfg, callOnce("guest", `{}`))
	}
}
