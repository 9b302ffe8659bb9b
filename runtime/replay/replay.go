package replay

import (
	"context"
	"errors"
	"fmt"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/runtime/agent"
	"github.com/starling-host/starling/runtime/step"
	"github.com/starling-host/starling/runtime/tool"
)

// Resolver finds the tool that a run was recorded with. For a sandboxed tool
// ref.Sandbox has the digest of its module and its limits. An error ends the
// replay before it begins.
type Resolver func(ctx context.Context, ref event.ToolSchemaRef) (tool.Tool, error)

// Options says how a recording is compared. The zero value compares everything.
type Options struct {
	// OtherModule is for replaying with another version of the tool: the
	// identity in RunStarted is not compared, nor are fuel and peak memory.
	// Effects, result and outcome still are.
	OtherModule bool
}

// Verdict is what a replay found.
type Verdict struct {
	RunID      string
	Events     int           // recorded
	Open       bool          // the recording has no terminal event; it was followed to its end
	Divergence *Divergence   // nil if the replay is the same run
	Result     *agent.Result // of the replay; nil unless it came to its end
}

// Identical reports whether the replay is the same run, byte for byte, as far
// as it was recorded.
func (v Verdict) Identical() bool { return v.Divergence == nil }

// UnsupportedError is returned for a run that this version cannot replay.
type UnsupportedError struct {
	RunID  string
	Seq    uint64 // of the event that says so
	Reason string
}

// Error says which run, and why.
func (e *UnsupportedError) Error() string {
	return fmt.Sprintf("replay: run %q cannot be replayed by this version: %s (event %d)", e.RunID, e.Reason, e.Seq)
}

// Run makes a recorded run again and compares. The events are those of one run,
// in order.
//
// A difference is in the verdict and not an error. Errors are: a
// [*eventlog.CorruptError] if the events are not a valid run, an
// [*UnsupportedError] for a run of another shape than a direct one, the error
// of resolve, and the end of ctx.
func Run(ctx context.Context, events []event.Event, resolve Resolver, o Options) (Verdict, error) {
	report, err := eventlog.Check(events, eventlog.CheckOptions{AllowOpen: true})
	if err != nil {
		return Verdict{}, fmt.Errorf("replay: %w", err)
	}
	ref, err := directTool(events)
	if err != nil {
		return Verdict{}, err
	}
	t, err := resolve(ctx, ref)
	if err != nil {
		return Verdict{}, fmt.Errorf("replay: tool %q of run %q: %w", ref.Name, events[0].RunID, err)
	}
	verdict := Verdict{RunID: events[0].RunID, Events: len(events), Open: report.Open}
	verdict.Result, err = agent.Direct{Tool: t}.Replay(ctx, events, agent.ReplayOptions{OtherModule: o.OtherModule})
	var mismatch *step.MismatchError
	switch {
	case errors.As(err, &mismatch):
		verdict.Divergence = newDivergence(verdict.RunID, mismatch)
	case err != nil && !errors.Is(err, step.ErrRecordingEnded):
		return Verdict{}, fmt.Errorf("replay: %w", err)
	}
	return verdict, nil
}

// directTool returns the tool of a direct run, or an [*UnsupportedError].
func directTool(events []event.Event) (event.ToolSchemaRef, error) {
	unsupported := func(ev event.Event, reason string) (event.ToolSchemaRef, error) {
		return event.ToolSchemaRef{}, &UnsupportedError{RunID: ev.RunID, Seq: ev.Seq, Reason: reason}
	}
	for _, ev := range events {
		switch ev.Kind {
		case event.KindTurnStarted:
			return unsupported(ev, "a model took part in it; only direct runs of one tool can be replayed")
		case event.KindRunResumed:
			return unsupported(ev, "it was resumed; only runs of one process can be replayed")
		}
	}
	started, err := events[0].AsRunStarted()
	if err != nil {
		return event.ToolSchemaRef{}, fmt.Errorf("replay: %w", err)
	}
	if n := len(started.ToolSchemas); n != 1 {
		return unsupported(events[0], fmt.Sprintf("it has %d tools; a direct run has one", n))
	}
	return started.ToolSchemas[0], nil
}
