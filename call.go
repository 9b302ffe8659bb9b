package starling

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/starling-host/starling/abi"
	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/eventlog/span"
	"github.com/starling-host/starling/host/policy"
	"github.com/starling-host/starling/runtime/agent"
	"github.com/starling-host/starling/runtime/egress"
	"github.com/starling-host/starling/runtime/tool"
)

// Run is the record of one call of a tool. Its JSON is the output of "starling-host run -o
// json", with the members of a [span.Document].
type Run struct {
	ID         string          `json:"run_id"`
	Database   string          `json:"database"`
	Tool       string          `json:"tool"`
	Module     string          `json:"module"` // the digest, in hexadecimal; empty for a tool of a server
	Status     string          `json:"status"` // eventlog.StatusCompleted, StatusFailed or StatusCancelled
	Result     json.RawMessage `json:"result,omitempty"`
	Failure    *Failure        `json:"error,omitempty"`
	Meter      Meter           `json:"meter"`
	DurationMs int64           `json:"duration_ms"`
	Log        string          `json:"log,omitempty"`       // the tool's output on standard error
	Workspace  string          `json:"workspace,omitempty"` // the root of the files that the call left, in hexadecimal
	Changed    []string        `json:"changed,omitempty"`   // what [Files.WriteBack] returned, for the caller to set
	Events     uint64          `json:"events"`
	MerkleRoot string          `json:"merkle_root"` // over all events, in hexadecimal

	wall time.Duration
}

// Output returns the result of a run as canonical JSON, or nothing if the run has none.
func (r *Run) Output() string { return string(r.Result) }

// Wall returns the wall-clock time of the call.
func (r *Run) Wall() time.Duration { return r.wall }

// Failure is the recorded reason of a run that did not complete.
type Failure = span.Failure

// Meter is the consumption of a call.
type Meter = span.Meter

// NewRunID returns the id of a new run, for [Tool.CallAs]: a ULID.
func NewRunID() string { return event.NewID() }

// Call makes a run of one call. The input is a JSON document.
//
// If the input is refused, the error is one of [Tool.Input] and nothing is recorded. If the
// call did not complete, the run is not nil and the error is a [*CallError]. Any other
// error means that the host failed; the run stays open if it had begun.
func (t *Tool) Call(ctx context.Context, input string) (*Run, error) {
	doc, err := t.Input([]byte(input))
	if err != nil {
		return nil, err
	}
	return t.CallAs(ctx, NewRunID(), doc)
}

// CallAs is [Tool.Call] with a run id chosen by the caller and an input of [Tool.Input]. It
// stores the module before the run begins, so that the run can be replayed however it ends.
func (t *Tool) CallAs(ctx context.Context, runID string, input *canon.Doc) (*Run, error) {
	if err := t.checkInput(input); err != nil { // it may come from another tool
		return nil, err
	}
	return t.record(ctx, runID, input)
}

// Continue goes on with a run of [Tool.CallAs] whose program ended before the run: recorded effects
// are not repeated, and others keep their idempotency keys. Its results are those of CallAs. The tool
// must be as it was: further errors are those of [agent.Direct.Continue].
func (t *Tool) Continue(ctx context.Context, runID string) (*Run, error) {
	return t.record(ctx, runID, nil)
}

// record makes a run, or goes on with it if there is no input.
func (t *Tool) record(ctx context.Context, runID string, input *canon.Doc) (*Run, error) {
	db := t.db
	log, err := db.Log(ctx)
	if err != nil {
		return nil, err
	}
	var earlier []event.Event
	if input == nil {
		if earlier, err = log.Read(ctx, runID); err != nil {
			return nil, err
		}
	}
	d := agent.Direct{Log: log, Input: input, AppVersion: db.o.AppVersion, Logger: db.o.Logger, Metrics: db.o.Metrics, Tracer: db.o.Tracer, Commit: db.o.Receipts.Committing()}
	if d.Tool, err = t.ForRun(ctx, log, earlier); err != nil {
		return nil, err
	}
	if t.files != nil {
		d.Workspace = &t.files.given
	}
	for _, other := range t.others {
		ready, err := other.ForRun(ctx, log, earlier)
		if err != nil {
			return nil, err
		}
		d.Others = append(d.Others, ready)
	}
	proceed := d.RunWithID
	if input == nil {
		proceed = d.Continue
	}
	result, err := proceed(ctx, runID, nil)
	if err != nil {
		return nil, err
	}
	run := t.document(result)
	if result.TerminalKind == event.KindRunCompleted {
		return run, nil
	}
	failed := result.Err
	if ctx.Err() != nil && errors.Is(failed, tool.ErrCancelled) { // by a deadline, or by a caller with a cause
		failed = errors.Join(failed, ctx.Err(), context.Cause(ctx))
	}
	// The run has ended, even if ctx was cancelled to end it.
	return run, &CallError{
		Run: run, Denied: lastDenied(context.WithoutCancel(ctx), log, runID),
		Unnamed: t.policy != nil && !policy.NamesTool(t.policy, nil, t.Name()), err: failed,
	}
}

// rulesOf returns the rules of a policy for one run, or nil without a policy.
func rulesOf(p *policy.Policy, secrets policy.Secrets) *policy.Run {
	if p == nil {
		return nil
	}
	if secrets == nil {
		secrets = EnvSecrets{}
	}
	return policy.NewRun(p, nil, secrets)
}

func (t *Tool) document(r *agent.Result) *Run {
	run := &Run{
		ID: r.RunID, Database: t.db.Name(), Tool: t.Name(),
		Status: eventlog.RunSummary{TerminalKind: r.TerminalKind}.Status(),
		Meter: Meter{
			Fuel: r.Meter.Fuel, PeakMemoryBytes: r.Meter.PeakMemory, Effects: r.Effects, BytesIn: r.BytesIn, BytesOut: r.BytesOut,
		},
		DurationMs: r.Duration.Milliseconds(), wall: r.Duration,
		Log: r.Meter.Log, Events: r.Events, MerkleRoot: fmt.Sprintf("%x", r.MerkleRoot),
	}
	if identity := t.Sandbox(); identity != nil {
		run.Module = fmt.Sprintf("%x", identity.Module)
	}
	if r.TerminalKind == event.KindRunCompleted {
		run.Result, run.Workspace = r.Output, hex.EncodeToString(r.Meter.Workspace)
	} else {
		run.Failure = &Failure{Type: r.ErrorType, Message: r.Error}
	}
	return run
}

// Denied is a refused request or call.
type Denied struct {
	Host        string // HOST[:PORT] of the request; empty when the call was refused
	Method, URL string // of the request
	Reason      string

	// Request is the request, with placeholders where secrets would stand; nil for one of the
	// built-in fetch.
	Request *egress.Request
}

// lastDenied returns the last request of a run, or its call, if it was refused: that is the
// likely reason of a tool's failure. It returns nil if the log cannot be read.
func lastDenied(ctx context.Context, log eventlog.EventLog, runID string) *Denied {
	events, err := log.Read(ctx, runID)
	if err != nil {
		return nil
	}
	for _, ev := range slices.Backward(events) {
		effect, err := ev.AsSideEffectRecorded()
		var verdicts event.Verdicts
		if err == nil && effect.Name == event.EffectPolicy && canon.Unmarshal(effect.Value, &verdicts) == nil && !verdicts.Allowed() {
			return &Denied{Reason: verdicts.Reason()}
		}
		if err != nil || len(effect.Request) == 0 {
			continue
		}
		var v event.Exchange
		if canon.Unmarshal(effect.Value, &v) != nil || v.Status != abi.StatusDenied {
			return nil
		}
		method, target, _ := strings.Cut(event.DescribeRequest(effect.Request), " ")
		if u, err := url.Parse(target); err == nil && u.Host != "" {
			denied := &Denied{Host: u.Host, Method: method, URL: target, Reason: v.Text}
			denied.Request, _ = egress.ParseRequest(effect.Request)
			return denied
		}
		return nil
	}
	return nil
}
