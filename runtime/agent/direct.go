package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/chain"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/runtime/observe"
	"github.com/starling-host/starling/runtime/step"
	"github.com/starling-host/starling/runtime/tool"
)

// DirectTurn is the turn id of the call of a direct run.
const DirectTurn = "direct"

// Direct runs one call of one tool. Log and Tool are required. It is safe for
// concurrent use.
type Direct struct {
	// Log receives the events of a live run.
	Log eventlog.EventLog

	// Tool is called.
	Tool tool.Tool

	// AppVersion is the version of the program around this library. It is
	// recorded for the reader, and empty by default.
	AppVersion string

	// Logger is told what runs do, see [step.Config]. Nil discards.
	Logger *slog.Logger

	// ClockFn reads the wall clock; nil means time.Now. It must be safe for
	// concurrent use.
	ClockFn func() time.Time

	// Metrics watch live runs. Nil for none.
	Metrics *observe.Metrics

	// Tracer makes the spans of live runs. Nil makes none.
	Tracer *observe.Tracer
}

// Result is a run that ended, in whatever way.
type Result struct {
	RunID      string
	Output     json.RawMessage // canonical JSON; nil unless the run completed
	Terminal   event.Kind      // RunCompleted, RunFailed or RunCancelled
	Error      string          // why the run did not complete, or empty
	ErrorType  string          // an Error constant of package event, or empty
	Meter      event.Meter     // what sandboxed tools consumed
	Effects    int             // crossings of the boundary
	BytesIn    int             // of encoded values that effects returned
	BytesOut   int             // of the requests that effects sent
	Duration   time.Duration   // of the run; a replay gives the recorded one, in whole milliseconds
	MerkleRoot []byte          // of the terminal event
	Events     uint64          // of the run, the terminal event included
}

// Run makes one run under a fresh id. See [Direct.RunWithID].
func (d Direct) Run(ctx context.Context, input json.RawMessage) (*Result, error) {
	return d.RunWithID(ctx, event.NewID(), input)
}

// RunWithID makes one run. When it returns a Result, all events of the run are
// durable. How the run ended is in the Result, including that ctx ended it; an
// error means that the host could not do its part: the input is no arguments
// (see [step.CheckArgs]), or the tool's module is not in the log ([ErrModuleNotStored]),
// and nothing was recorded; or the log failed and the run stays open.
func (d Direct) RunWithID(ctx context.Context, runID string, input json.RawMessage) (*Result, error) {
	if err := step.CheckArgs(input); err != nil {
		return nil, fmt.Errorf("agent: input: %w", err)
	}
	started := d.started()
	if err := modulesStored(ctx, d.Log, started.ToolSchemas); err != nil {
		return nil, err
	}
	return d.live(ctx, runID, directPart{started: started, input: input})
}

// ErrModuleNotStored: a run was to begin with a module that its log does not have. It
// could not be replayed from the log.
var ErrModuleNotStored = errors.New("starling: the module of a tool is not in the log; store it with PutModule before the run")

// modulesStored is [ErrModuleNotStored] unless the log has the modules of the tools. A log
// that keeps no modules has them elsewhere.
func modulesStored(ctx context.Context, log eventlog.EventLog, tools []event.ToolSchemaRef) error {
	store, ok := log.(eventlog.ModuleStore)
	if !ok {
		return nil
	}
	for _, t := range tools {
		if t.Sandbox == nil || len(t.Sandbox.Module) != len(chain.Hash{}) {
			continue
		}
		digest := chain.Hash(t.Sandbox.Module)
		stored, err := store.HasModule(ctx, digest)
		if err != nil {
			return fmt.Errorf("agent: tool %q: %w", t.Name, err)
		}
		if !stored {
			return fmt.Errorf("%w: %v of the tool %q", ErrModuleNotStored, digest, t.Name)
		}
	}
	return nil
}

// live makes a part of a run, in a span of its own.
func (d Direct) live(ctx context.Context, runID string, part directPart) (*Result, error) {
	ctx, endSpan := d.Tracer.StartRun(ctx, observe.Run{RunID: runID})
	result, err := d.measured(ctx, runID, part)
	end := observe.RunEnd{}
	if result != nil {
		end.Terminal, end.ErrorType = result.Terminal, result.ErrorType
	}
	endSpan(end)
	return result, err
}

// measured makes a part of a run and counts it.
func (d Direct) measured(ctx context.Context, runID string, part directPart) (*Result, error) {
	if part.seam {
		d.Metrics.RunResumed()
	} else {
		d.Metrics.RunStarted()
	}
	began := time.Now() // and not ClockFn, which has an effect on what is recorded
	result, err := d.durable(ctx, runID, part)
	if result == nil {
		d.Metrics.RunEnded(0, "", 0)
		return nil, err
	}
	d.Metrics.RunEnded(result.Terminal, result.ErrorType, time.Since(began))
	return result, err
}

// durable makes a part of a run and sees to it that it is durable.
func (d Direct) durable(ctx context.Context, runID string, part directPart) (*Result, error) {
	config := step.Config{
		Log: d.Log, RunID: runID, Tools: step.NewRegistry(tracedTools(d.Tracer, []tool.Tool{d.Tool})...),
		ClockFn: d.ClockFn, Logger: d.Logger, Earlier: part.earlier,
	}
	if d.Metrics != nil {
		config.Metrics = d.Metrics
	}
	c, err := step.NewContext(config)
	if err != nil {
		return nil, fmt.Errorf("agent: %w", err)
	}
	began := d.clock()
	result, err := d.drive(step.WithContext(ctx, c), c, part, began)
	if err == nil {
		if err = d.Log.Sync(context.WithoutCancel(ctx), runID); err != nil {
			err = fmt.Errorf("agent: make run %s durable: %w", runID, err)
		}
	}
	if err != nil {
		c.LogEnded(ctx, 0, "", max(d.clock().Sub(began), 0))
		return nil, err
	}
	c.LogEnded(ctx, result.Terminal, result.ErrorType, result.Duration)
	return result, nil
}

// ReplayOptions says how a recording is followed. The zero value compares
// everything.
type ReplayOptions struct {
	// OtherModule takes RunStarted from the recording and ignores fuel and
	// peak memory: for asking whether another version of a tool does the same.
	OtherModule bool

	// Force lets a run be replayed by an agent of another provider or model: that
	// identity, and nothing else, is taken from the recording.
	Force bool

	// Matched, unless it is nil, is told of each recorded event that the replay has
	// arrived at and found the same.
	Matched func(event.Event)
}

// Replay makes the run again with the recording in place of the world. The
// input is the recorded one. Log, ClockFn and Metrics are not used. A run that was
// continued is followed through all of its processes.
//
// The error is a *[step.MismatchError] if the run is not the recorded one, and
// [step.ErrRecordingEnded] if the recording ended first and the run was the same
// until then. With an error, Result is nil unless the run came to its end.
func (d Direct) Replay(ctx context.Context, recorded []event.Event, o ReplayOptions) (result *Result, err error) {
	if len(recorded) == 0 {
		return nil, errors.New("agent: nothing is recorded")
	}
	started := d.started()
	if o.OtherModule {
		if started, err = recorded[0].AsRunStarted(); err != nil {
			return nil, fmt.Errorf("agent: %w", err)
		}
	}
	err = step.ErrRecordingEnded
	for _, s := range sessions(recorded) {
		if !errors.Is(err, step.ErrRecordingEnded) {
			return result, err
		}
		if result, err = d.replaySession(ctx, started, recorded[:s.from], recorded[s.from:s.to], o); err != nil && result != nil {
			return result, err
		}
	}
	return result, err
}

// replaySession follows the recording through one process.
func (d Direct) replaySession(ctx context.Context, started event.RunStarted, earlier, recorded []event.Event, o ReplayOptions) (*Result, error) {
	cfg := step.Config{
		Mode: step.ModeReplay, RunID: recorded[0].RunID, Earlier: earlier, Recorded: recorded,
		Tools: d.registry(), Logger: d.Logger, IgnoreMeter: o.OtherModule, Matched: o.Matched,
	}
	if reason, ok := abandoned(recorded); ok {
		return d.replayAbandoned(ctx, cfg, started, reason)
	}
	c, err := step.NewContext(cfg)
	if err != nil {
		return nil, fmt.Errorf("agent: %w", err)
	}
	input, err := recordedInput(recorded)
	if err != nil {
		return nil, fmt.Errorf("agent: %w", err)
	}
	part, err := takeUp(started, earlier, input)
	if err != nil {
		return nil, err
	}
	part.seam = len(earlier) > 0
	result, err := d.drive(step.WithContext(ctx, c), c, part, time.Time{})
	if wrong := c.Finish(); wrong != nil {
		return result, wrong
	}
	return result, err
}

// drive is the run, or what one process does of it, live and in a replay: open it,
// call the tool, end it.
func (d Direct) drive(ctx context.Context, c *step.Context, part directPart, began time.Time) (*Result, error) {
	if err := part.open(ctx, c); err != nil {
		return nil, err
	}
	output, failed, err := part.call(ctx, d.Tool.Name())
	if err != nil {
		return nil, err
	}
	result := &Result{RunID: c.RunID(), Output: output}
	result.classify(failed)
	result.Duration = d.since(ctx, began)
	if err := result.end(ctx, c); err != nil {
		return nil, err
	}
	result.complete(c)
	return result, nil
}

// complete fills in what the run has come to.
func (r *Result) complete(c *step.Context) {
	totals := c.Totals()
	r.Meter, r.Effects = totals.Meter, totals.Effects
	r.BytesIn, r.BytesOut = totals.BytesIn, totals.BytesOut
	r.MerkleRoot, r.Events = totals.MerkleRoot, totals.Events
}

// classify decides from the failure of the call, nil if it succeeded, how the
// run ends. It is a function of what is recorded, so that a replay decides the
// same.
func (r *Result) classify(failed *step.CallError) {
	if failed == nil {
		r.Terminal = event.KindRunCompleted
		return
	}
	r.Terminal, r.Error, r.ErrorType = event.KindRunFailed, failed.Error(), failed.Failed.ErrorType
	if r.ErrorType == event.ErrorCancelled {
		r.Terminal, r.Error = event.KindRunCancelled, step.CancelReason(context.Canceled)
	}
}

// end records the terminal event.
func (r *Result) end(ctx context.Context, c *step.Context) error {
	ms := r.Duration.Milliseconds()
	switch r.Terminal {
	case event.KindRunCompleted:
		return step.Emit(ctx, c, r.Terminal, event.RunCompleted{FinalText: string(r.Output), ToolCallCount: uint32(c.Totals().ToolCalls), DurationMs: ms})
	case event.KindRunCancelled:
		return step.Emit(ctx, c, r.Terminal, event.RunCancelled{Reason: r.Error, DurationMs: ms})
	default:
		return step.Emit(ctx, c, r.Terminal, event.RunFailed{Error: r.Error, ErrorType: r.ErrorType, DurationMs: ms})
	}
}

// since returns how long the run took; a replay takes that from the recording.
func (d Direct) since(ctx context.Context, began time.Time) time.Duration {
	if began.IsZero() {
		return time.Duration(step.ReplayDurationMs(ctx, 0)) * time.Millisecond
	}
	return max(d.clock().Sub(began), 0)
}

func (d Direct) clock() time.Time {
	if d.ClockFn == nil {
		return time.Now()
	}
	return d.ClockFn()
}

// registry returns the one tool, by name.
func (d Direct) registry() *step.Registry { return step.NewRegistry(d.Tool) }

// started is the first event of a run of d.
func (d Direct) started() event.RunStarted {
	refs := []event.ToolSchemaRef{ToolRef(d.Tool)}
	return event.RunStarted{
		SchemaVersion:    event.SchemaVersion,
		Goal:             d.Tool.Name(),
		ToolSchemas:      refs,
		ToolRegistryHash: event.RegistryHash(refs),
		StarlingVersion:  version(),
		AppVersion:       d.AppVersion,
	}
}

// ToolRef returns how RunStarted identifies a tool.
func ToolRef(t tool.Tool) event.ToolSchemaRef {
	schema, description := chain.Sum(t.Schema()), chain.Sum([]byte(t.Description()))
	return event.ToolSchemaRef{
		Name:            t.Name(),
		SchemaHash:      schema[:],
		DescriptionHash: description[:],
		Sandbox:         tool.SandboxOf(t),
	}
}
