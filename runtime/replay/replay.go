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

	// Force lets an agent of another provider or model replay a run. Nothing but
	// that identity is relaxed.
	Force bool

	// Matched, unless it is nil, is told of each recorded event that the replay has
	// arrived at and found the same.
	Matched func(event.Event)
}

func (o Options) agent() agent.ReplayOptions {
	return agent.ReplayOptions{OtherModule: o.OtherModule, Force: o.Force, Matched: o.Matched}
}

// Verdict is what a replay found.
type Verdict struct {
	RunID      string
	Events     int              // recorded
	Open       bool             // the recording has no terminal event; it was followed to its end
	Divergence *Divergence      // nil if the replay is the same run
	Result     *agent.Result    // of the replay of a direct run; nil unless it came to its end
	Agent      *agent.RunResult // of the replay of an agent's run; nil unless it came to its end
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
// in order. The run may be a direct one, or that of an agent, which is made of
// what the log says of it ([agent.FromRecord]) and of the tools that resolve finds.
//
// A difference is in the verdict and not an error. Errors are: a
// [*eventlog.CorruptError] if the events are not a valid run, an
// [*UnsupportedError] for a run of a shape that nothing here writes, the error of
// resolve, and the end of ctx.
func Run(ctx context.Context, events []event.Event, resolve Resolver, o Options) (Verdict, error) {
	verdict, err := check(events)
	if err != nil {
		return Verdict{}, err
	}
	started, err := events[0].AsRunStarted()
	if err != nil {
		return Verdict{}, fmt.Errorf("replay: %w", err)
	}
	tools, err := resolveAll(ctx, verdict.RunID, started.ToolSchemas, resolve)
	if err != nil {
		return Verdict{}, err
	}
	if started.ModelID != "" {
		verdict.Agent, err = agent.FromRecord(started, tools).Replay(ctx, events, o.agent())
		return verdict.with(err)
	}
	if err := direct(events, started); err != nil {
		return Verdict{}, err
	}
	verdict.Result, err = agent.Direct{Tool: tools[0]}.Replay(ctx, events, o.agent())
	return verdict.with(err)
}

// RunAgent is [Run] for an agent as it is now, and not as the log has it: for asking
// whether what was changed about it since makes a difference. With another provider
// or model it is [agent.ErrProviderModelMismatch], unless o.Force is set.
func RunAgent(ctx context.Context, events []event.Event, a *agent.Agent, o Options) (Verdict, error) {
	verdict, err := check(events)
	if err != nil {
		return Verdict{}, err
	}
	verdict.Agent, err = a.Replay(ctx, events, o.agent())
	return verdict.with(err)
}

// check returns the verdict about a valid run that nothing has been executed of.
func check(events []event.Event) (Verdict, error) {
	report, err := eventlog.Check(events, eventlog.CheckOptions{AllowOpen: true})
	if err != nil {
		return Verdict{}, fmt.Errorf("replay: %w", err)
	}
	return Verdict{RunID: events[0].RunID, Events: len(events), Open: report.Open}, nil
}

// with completes a verdict with what the replay ended with.
func (v Verdict) with(err error) (Verdict, error) {
	var mismatch *step.MismatchError
	switch {
	case errors.As(err, &mismatch):
		v.Divergence = newDivergence(v.RunID, mismatch)
	case err != nil && !errors.Is(err, step.ErrRecordingEnded):
		return Verdict{}, fmt.Errorf("replay: %w", err)
	}
	return v, nil
}

// resolveAll finds the tools of a run.
func resolveAll(ctx context.Context, runID string, refs []event.ToolSchemaRef, resolve Resolver) ([]tool.Tool, error) {
	tools := make([]tool.Tool, len(refs))
	for i, ref := range refs {
		t, err := resolve(ctx, ref)
		if err != nil {
			return nil, fmt.Errorf("replay: tool %q of run %q: %w", ref.Name, runID, err)
		}
		tools[i] = t
	}
	return tools, nil
}

// direct returns an [*UnsupportedError] unless a run without a model is a direct
// one.
func direct(events []event.Event, started event.RunStarted) error {
	unsupported := func(ev event.Event, reason string) error {
		return &UnsupportedError{RunID: ev.RunID, Seq: ev.Seq, Reason: reason}
	}
	for _, ev := range events {
		if ev.Kind == event.KindTurnStarted {
			return unsupported(ev, "a model took part in it that RunStarted does not name")
		}
	}
	if n := len(started.ToolSchemas); n != 1 {
		return unsupported(events[0], fmt.Sprintf("it has %d tools; a direct run has one", n))
	}
	return nil
}
