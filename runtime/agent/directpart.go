package agent

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/runtime/step"
)

// Opening returns the first event of a run that somebody else will make, with
// [Direct.Continue]: once it is in the log, the run is known. The input is not in
// it, because it belongs to the call; Opening checks it all the same.
func (d Direct) Opening(ctx context.Context, runID string, input json.RawMessage) (event.Event, error) {
	if err := step.CheckArgs(input); err != nil {
		return event.Event{}, fmt.Errorf("agent: input: %w", err)
	}
	return step.Opening(ctx, runID, d.started(), d.clock())
}

// Continue makes a run that is there already: one that was opened and not begun,
// which leaves no trace in it, or one whose process died. Then RunResumed marks the
// seam, and a call without an outcome is made again: what was recorded of its
// effects is not done twice, and the others have the idempotency keys that they
// had. If the call was recorded, so is its input, and input is not used.
//
// What is returned is as with [Direct.RunWithID]. Errors besides: [ErrRunNotFound],
// [ErrRunAlreadyTerminal], [ErrSchemaVersionMismatch], [ErrAgentChanged] if the run
// was begun with another tool, and [ErrRunInUse].
func (d Direct) Continue(ctx context.Context, runID string, input json.RawMessage) (*Result, error) {
	events, started, err := openRun(ctx, d.Log, runID)
	if err != nil {
		return nil, err
	}
	if err := sameStart(d.started(), started); err != nil {
		return nil, err
	}
	part, err := takeUp(started, events, input)
	if err != nil {
		return nil, err
	}
	part.seam = len(events) > 1
	if err := step.CheckArgs(part.input); err != nil {
		return nil, fmt.Errorf("agent: input: %w", err)
	}
	result, err := d.live(ctx, runID, part)
	return result, inUse(err)
}

// directPart is what one process does of a direct run.
type directPart struct {
	started event.RunStarted
	earlier []event.Event // of other processes
	seam    bool          // a process died behind them
	input   json.RawMessage

	// What the earlier events say of the call.
	callID string // of the first one that was made; empty for none
	again  string // of the last one that was made in its place, or the first
	done   bool   // its outcome is known: output or failed
	output json.RawMessage
	failed *step.CallError
}

// takeUp returns the part that follows earlier events. The input is that of the
// call, if it is among them.
func takeUp(started event.RunStarted, earlier []event.Event, input json.RawMessage) (directPart, error) {
	p := directPart{started: started, earlier: earlier, input: input}
	for _, ev := range earlier {
		if err := p.read(ev); err != nil {
			return p, fmt.Errorf("agent: seq %d: %w", ev.Seq, err)
		}
	}
	return p, nil
}

// read takes note of an earlier event. Calls that the tool made itself are its own
// affair.
func (p *directPart) read(ev event.Event) (err error) {
	switch ev.Kind {
	case event.KindToolCallScheduled:
		call, err := ev.AsToolCallScheduled()
		if err != nil || call.ParentID != "" {
			return err
		}
		p.callID, p.again = cmp.Or(p.callID, call.CallID), call.CallID
		p.input, err = canon.ToJSON(call.Args)
		return err
	case event.KindToolCallCompleted:
		outcome, err := ev.AsToolCallCompleted()
		if err != nil || outcome.CallID != p.again {
			return err
		}
		p.done = true
		p.output, err = canon.ToJSON(outcome.Result)
		return err
	case event.KindToolCallFailed:
		outcome, err := ev.AsToolCallFailed()
		if err == nil && outcome.CallID == p.again && outcome.Final {
			p.done, p.failed = true, &step.CallError{Tool: p.started.Goal, Failed: outcome}
		}
		return err
	}
	return nil
}

// open records that the run begins, or goes on.
func (p *directPart) open(ctx context.Context, c *step.Context) error {
	switch {
	case p.seam:
		resumed := event.RunResumed{AtSeq: uint64(len(p.earlier)), ReissueTools: true}
		if p.callID != "" && !p.done {
			resumed.PendingCalls = 1
		}
		return step.Emit(ctx, c, event.KindRunResumed, resumed)
	case len(p.earlier) > 0:
		c.LogStarted(ctx, p.started)
		return nil
	}
	return step.Emit(ctx, c, event.KindRunStarted, p.started)
}

// call makes the call, unless its outcome is known. An error means that it has no
// outcome.
func (p *directPart) call(ctx context.Context, name string) (json.RawMessage, *step.CallError, error) {
	if p.done {
		return p.output, p.failed, nil
	}
	output, err := step.CallTool(ctx, step.ToolCall{TurnID: DirectTurn, Name: name, Args: p.input, IdempKey: p.callID})
	var failed *step.CallError
	if err != nil && !errors.As(err, &failed) {
		return nil, nil, err
	}
	return output, failed, nil
}

// recordedInput returns the arguments of the first call, or null if the
// recording ends before it.
func recordedInput(recorded []event.Event) (json.RawMessage, error) {
	for _, ev := range recorded {
		if ev.Kind == event.KindToolCallScheduled {
			call, err := ev.AsToolCallScheduled()
			if err != nil {
				return nil, err
			}
			return canon.ToJSON(call.Args)
		}
	}
	return json.RawMessage("null"), nil
}
