package agent

import (
	"context"
	"errors"
	"fmt"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/runtime/step"
	"github.com/starling-host/starling/runtime/tool"
)

// Resolver finds the tool of a recorded run. For a sandboxed tool ref.Sandbox has the
// digest of its module and its limits. An error ends the replay before it begins.
type Resolver func(ctx context.Context, ref event.ToolSchemaRef) (tool.Tool, error)

// Verdict is the outcome of a replay.
type Verdict struct {
	RunID      string
	Events     int         // recorded
	Open       bool        // the recording has no terminal event; it was followed to its end
	Divergence *Divergence // nil if the replay is identical
	Result     *Result     // of the replay; nil unless it came to its end
}

// Identical reports whether the replay reproduced every recorded event byte for byte.
func (v Verdict) Identical() bool { return v.Divergence == nil }

// UnsupportedError is returned for a run that this version cannot replay.
type UnsupportedError struct {
	RunID  string
	Seq    uint64 // of the event that shows it
	Reason string
}

// Error names the run and the reason.
func (e *UnsupportedError) Error() string {
	return fmt.Sprintf("replay: run %q cannot be replayed by this version: %s (event %d)", e.RunID, e.Reason, e.Seq)
}

// Replay makes a recorded run again and compares. The events belong to one run, in order.
// The run may be a direct one, or the run of an agent, which is reconstructed from the log
// ([FromRecord]) with the tools that resolve finds.
//
// The verdict reports a difference. Errors are: a [*eventlog.CorruptError] if the events
// are not a valid run, an [*UnsupportedError] for a run of an unknown shape, the error of
// resolve, and the end of ctx.
func Replay(ctx context.Context, events []event.Event, resolve Resolver, o ReplayOptions) (Verdict, error) {
	verdict, err := checkRecorded(events)
	if err != nil {
		return Verdict{}, err
	}
	started, err := events[0].AsRunStarted()
	if err != nil {
		return Verdict{}, fmt.Errorf("replay: %w", err)
	}
	tools := make([]tool.Tool, len(started.ToolSchemas))
	for i, ref := range started.ToolSchemas {
		if tools[i], err = resolve(ctx, ref); err != nil {
			return Verdict{}, fmt.Errorf("replay: tool %q of run %q: %w", ref.Name, verdict.RunID, err)
		}
	}
	if started.ModelID != "" {
		verdict.Result, err = FromRecord(started, tools).Replay(ctx, events, o)
		return verdict.with(err)
	}
	if err := checkDirect(events, started); err != nil {
		return Verdict{}, err
	}
	verdict.Result, err = Direct{Tool: tools[0], Others: tools[1:]}.Replay(ctx, events, o)
	return verdict.with(err)
}

// ReplayAs is [Replay] with the current agent instead of the recorded one, to check whether
// changes to it make a difference. With another provider or model the error is
// [ErrProviderModelMismatch], unless o.Force is set.
func ReplayAs(ctx context.Context, events []event.Event, a *Agent, o ReplayOptions) (Verdict, error) {
	verdict, err := checkRecorded(events)
	if err != nil {
		return Verdict{}, err
	}
	verdict.Result, err = a.Replay(ctx, events, o)
	return verdict.with(err)
}

// checkRecorded checks that the events are a valid run, and returns its verdict before
// execution.
func checkRecorded(events []event.Event) (Verdict, error) {
	report, err := eventlog.Check(events, eventlog.CheckOptions{AllowOpen: true})
	if err != nil {
		return Verdict{}, fmt.Errorf("replay: %w", err)
	}
	return Verdict{RunID: events[0].RunID, Events: len(events), Open: report.Open}, nil
}

// with completes a verdict with the outcome of the replay.
func (v Verdict) with(err error) (Verdict, error) {
	var mismatch *step.MismatchError
	switch {
	case errors.As(err, &mismatch):
		v.Divergence = &Divergence{v.RunID, *mismatch}
	case err != nil && !errors.Is(err, step.ErrRecordingEnded):
		return Verdict{}, fmt.Errorf("replay: %w", err)
	}
	return v, nil
}

// checkDirect returns an [*UnsupportedError] unless a run without a model is a direct run.
func checkDirect(events []event.Event, started event.RunStarted) error {
	unsupported := func(ev event.Event, reason string) error {
		return &UnsupportedError{RunID: ev.RunID, Seq: ev.Seq, Reason: reason}
	}
	for _, ev := range events {
		if ev.Kind == event.KindTurnStarted {
			return unsupported(ev, "a model took part in it that RunStarted does not name")
		}
	}
	switch n := len(started.ToolSchemas); {
	case n == 0:
		return unsupported(events[0], "it has no tools; a direct run has one, and those that it calls")
	case n > 1 && started.ToolSchemas[0].Name != started.Goal: // of several, the first calls the others
		return unsupported(events[0], fmt.Sprintf("it is to call %q, and that is not the first of its tools", started.Goal))
	}
	return nil
}

// ErrNonDeterminism matches every [*Divergence].
var ErrNonDeterminism = errors.New("replay: the run is not the recorded one")

// Divergence is the first difference between a run and its recording. As an
// error it is [ErrNonDeterminism] and unwraps to the [*step.MismatchError].
type Divergence struct {
	RunID string
	step.MismatchError
}

// Error names the run and the difference.
func (d *Divergence) Error() string {
	return fmt.Sprintf("%v: run %q: %v", ErrNonDeterminism, d.RunID, &d.MismatchError)
}

// Is reports whether target is [ErrNonDeterminism].
func (d *Divergence) Is(target error) bool { return target == ErrNonDeterminism }

// Unwrap returns a [*step.MismatchError].
func (d *Divergence) Unwrap() error { return &d.MismatchError }

// The verdicts of a [ReplayDocument].
const (
	Identical   = "identical"
	Diverged    = "diverged"
	Invalid     = "invalid"      // the log is not valid; nothing was executed
	NotReplayed = "not_replayed" // the run cannot be executed
	NotDecided  = "not_decided"  // the engine's call stack is too small for the run; another engine decides
)

// ReplayDocument is the outcome of a replay in JSON, for the command line and the HTTP API.
type ReplayDocument struct {
	RunID      string              `json:"run_id"`
	Verdict    string              `json:"verdict"`
	Events     int                 `json:"events,omitempty"`
	Open       bool                `json:"open,omitempty"`
	Divergence *DivergenceDocument `json:"divergence,omitempty"`
	Error      string              `json:"error,omitempty"` // if invalid, not replayed or not decided
}

// DivergenceDocument is a [Divergence] in JSON, its kinds by [KindName].
type DivergenceDocument struct {
	Seq          uint64 `json:"seq"`
	Kind         string `json:"kind"`
	ExpectedKind string `json:"expected_kind"`
	Class        string `json:"class"`
	Field        string `json:"field,omitempty"`
	Expected     string `json:"expected,omitempty"`
	Got          string `json:"got,omitempty"`
	Reason       string `json:"reason,omitempty"`
}

// Document returns the verdict as a document. The caller names the run, because a tenant's
// id for it differs from the log's.
func (v Verdict) Document(runID string) ReplayDocument {
	doc := ReplayDocument{RunID: runID, Verdict: Identical, Events: v.Events, Open: v.Open}
	if d := v.Divergence; d != nil {
		doc.Verdict = Diverged
		doc.Divergence = &DivergenceDocument{
			Seq: d.Seq, Kind: KindName(d.Kind), ExpectedKind: KindName(d.ExpectedKind), Class: string(d.Class),
			Field: d.Field, Expected: d.Expected, Got: d.Got, Reason: d.Reason,
		}
	}
	return doc
}

// KindName names a kind of a [Divergence]; zero is the end of the run.
func KindName(k event.Kind) string {
	if k == 0 {
		return "end of the run"
	}
	return k.String()
}

// VerifyOption changes how a run is verified.
type VerifyOption func(*ReplayOptions)

// WithForceProvider lets an agent of another provider or model verify a run. Without it the
// error is [ErrProviderModelMismatch].
func WithForceProvider() VerifyOption { return func(o *ReplayOptions) { o.Force = true } }

// Verify makes a recorded run again with an agent, and returns nil if it is identical, byte
// for byte, whatever its outcome. A difference is [ErrNonDeterminism], and errors.As finds
// the [*Divergence] in it. An open run is followed to its end. Verify uses neither the
// agent's provider nor its log.
func Verify(ctx context.Context, log eventlog.EventLog, runID string, a *Agent, opts ...VerifyOption) error {
	var o ReplayOptions
	for _, option := range opts {
		option(&o)
	}
	events, err := readRecorded(ctx, log, runID)
	if err != nil {
		return err
	}
	return verify(ctx, events, a, o)
}

func readRecorded(ctx context.Context, log eventlog.EventLog, runID string) ([]event.Event, error) {
	events, err := log.Read(ctx, runID)
	if err != nil {
		return nil, fmt.Errorf("replay: %w", err)
	}
	if len(events) == 0 {
		return nil, fmt.Errorf("replay: %w: %q", ErrRunNotFound, runID)
	}
	_, err = checkRecorded(events)
	return events, err
}

func verify(ctx context.Context, events []event.Event, a *Agent, o ReplayOptions) error {
	_, err := a.Replay(ctx, events, o)
	verdict, err := Verdict{RunID: events[0].RunID}.with(err)
	if err != nil || verdict.Identical() {
		return err
	}
	return verdict.Divergence
}

// AgentFactory makes an agent for a replay.
type AgentFactory func(ctx context.Context) (*Agent, error)

// ReplayStep is one step of a [ReplayStream].
type ReplayStep struct {
	// Event is the recorded event that the replay has reproduced. It is zero in a last step
	// without an event.
	Event event.Event

	// Diverged is set in the last step of a replay that differs from the record.
	Diverged bool

	// Err is the [*Divergence], or another error that ended the replay.
	Err error
}

// ReplayStream verifies a run and yields a [ReplayStep] for each event, in the order in which
// the replay arrives at them, and one more if the replay differs or fails. The channel is
// closed after that, and when ctx ends. The replay proceeds at the reader's pace.
func ReplayStream(ctx context.Context, factory AgentFactory, log eventlog.EventLog, runID string) (<-chan ReplayStep, error) {
	events, err := readRecorded(ctx, log, runID)
	if err != nil {
		return nil, err
	}
	a, err := factory(ctx)
	if err != nil {
		return nil, fmt.Errorf("replay: %w", err)
	}
	steps := make(chan ReplayStep)
	send := func(s ReplayStep) {
		select {
		case steps <- s:
		case <-ctx.Done():
		}
	}
	go func() {
		defer close(steps)
		o := ReplayOptions{Matched: func(ev event.Event) { send(ReplayStep{Event: ev}) }}
		if err := verify(ctx, events, a, o); err != nil {
			send(ReplayStep{Diverged: errors.Is(err, ErrNonDeterminism), Err: err})
		}
	}()
	return steps, nil
}
