package step

import (
	"context"
	"encoding/json"
	"time"

	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/runtime/tool"
)

// Attempt is one attempt at a call, as a tool sees it that implements [ParsedTool]. This package
// keeps it in the context.Context of the attempt. With an empty callID it stands for the run itself.
// The mutable fields are guarded by Context.mu.
type Attempt struct {
	c    *Context
	root context.Context // the context given to WithContext; its end aborts a replay

	callID string
	turnID string
	tool   string // its name in the run
	number uint32 // from 1
	keyID  string // the call id in its idempotency keys

	carried []event.SideEffectRecorded // recorded effects of a replaced call that remain
	strayed bool                       // the call has differed from the recorded effects

	workspace *event.Workspace // the files of the call, or nil

	ended   bool         // its outcome is recorded; nothing may follow
	effects uint64       // begun with Do
	took    int64        // microseconds of the last effect, as recorded
	probe   func() Meter // nil unless SetProbe was called

	// ending is the context of a native tool in a replay. It ends where the recording shows an
	// interruption. It is nil otherwise, and never reassigned.
	ending *recordedContext
}

// ParsedTool is a tool that takes its input parsed, and returns its output parsed. [CallTool] calls
// ExecuteParsed in place of Execute, with the attempt that it makes, so that no document is parsed
// twice. A wrapper that changes Execute must not pass on ExecuteParsed.
type ParsedTool interface {
	tool.Tool

	// ExecuteParsed runs the tool once. It does not modify the input, which is recorded. A nil
	// output stands for null.
	ExecuteParsed(ctx context.Context, a *Attempt, input *canon.Doc) (*canon.Doc, error)
}

// ExecuteJSON implements Execute for a [ParsedTool], which a wrapper calls. It panics outside of a
// call.
func ExecuteJSON(ctx context.Context, t ParsedTool, input json.RawMessage) (json.RawMessage, error) {
	a := attemptOf(ctx, "ExecuteJSON")
	if a.callID == "" {
		panic("step: ExecuteJSON outside of a call")
	}
	doc, err := canon.Parse(input)
	if err != nil {
		return nil, (&tool.InputError{Cause: err, Was: "input does not match the schema: " + err.Error()}).Outcome()
	}
	output, err := t.ExecuteParsed(ctx, a, doc)
	if err != nil || output == nil {
		return nil, err
	}
	return output.JSON, nil
}

type attemptKey struct{}

// WithContext returns a context whose use of this package belongs to the run of c. A replay is
// abandoned when parent ends.
//
// Tools see the run's identity, and the session and variables of parent (see [tool.WithVariables]),
// which [Emit] writes into RunStarted. In a replay or a resumed run they see the recorded ones.
func WithContext(parent context.Context, c *Context) context.Context {
	ctx := tool.WithRunID(parent, c.cfg.RunID)
	if first := c.first(); first != nil {
		ctx = withRecorded(ctx, *first)
	}
	return context.WithValue(ctx, attemptKey{}, &Attempt{c: c, root: parent})
}

// withRecorded adds the session and the variables of a recorded run. If they cannot be read it adds
// none, and then RunStarted differs.
func withRecorded(ctx context.Context, first event.Event) context.Context {
	started, err := first.AsRunStarted()
	if err != nil {
		return ctx
	}
	var doc json.RawMessage
	if len(started.Variables) > 0 {
		if doc, err = canon.ToJSON(started.Variables); err != nil {
			return ctx
		}
	}
	with, err := tool.WithVariablesJSON(tool.WithSessionID(ctx, started.SessionID), doc)
	if err != nil {
		return ctx
	}
	return with
}

// From returns the Context of the run that ctx belongs to, or false outside of a run.
func From(ctx context.Context) (*Context, bool) {
	a, ok := ctx.Value(attemptKey{}).(*Attempt)
	if !ok || a == nil {
		return nil, false
	}
	return a.c, true
}

// attemptOf returns the attempt of ctx for the exported function with this name.
func attemptOf(ctx context.Context, function string) *Attempt {
	a, ok := ctx.Value(attemptKey{}).(*Attempt)
	if !ok || a == nil {
		panic("step: " + function + " outside of a run: its ctx must come from the run, and must not be the one inside an effect")
	}
	return a
}

// Call identifies the attempt that is acting.
type Call struct {
	RunID   string
	Tool    string // its name in the run
	ID      string // of the call, in the log
	CallID  string // of the first call, if this one replaces another
	Attempt uint32 // from 1
	Replay  bool   // results come from the recording, including those of the clock
	Rules   uint32 // [event.RulesVersion] of a new run, and the recorded version of another one

	// Variables are the variables of the run, a canonical JSON object, or nil.
	Variables json.RawMessage

	// Workspace are the files that the call is given, or nil.
	Workspace *event.Workspace
}

// CallInfo returns the attempt that ctx belongs to, or false outside of a call.
func CallInfo(ctx context.Context) (Call, bool) {
	a, ok := ctx.Value(attemptKey{}).(*Attempt)
	if !ok || a == nil || a.callID == "" {
		return Call{}, false
	}
	return a.Info(ctx), true
}

// Info identifies the attempt. Its context has the variables.
func (a *Attempt) Info(ctx context.Context) Call {
	return Call{
		RunID: a.c.cfg.RunID, Tool: a.tool, ID: a.callID, CallID: a.keyID, Attempt: a.number, Replay: a.c.replaying(),
		Rules: a.rules(), Variables: tool.VariablesJSON(ctx), Workspace: a.workspace,
	}
}

// rules returns the version of the rules for the tool of the attempt.
func (a *Attempt) rules() uint32 {
	if recorded, ok := a.c.rules[a.tool]; ok {
		return recorded
	}
	return event.RulesVersion
}

// Meter is the consumption of a sandboxed call.
type Meter = event.Meter

// SetProbe sets the function that reads the meter of the attempt. From then on every effect of the
// attempt records the fuel spent so far, and its outcome records the whole meter. The probe must be
// fast, must not call this package, and must work until the tool has returned and its outcome is
// recorded.
func (a *Attempt) SetProbe(probe func() Meter) {
	a.c.mu.Lock()
	defer a.c.mu.Unlock()
	a.probe = probe
}

// Took returns how long the last effect of the attempt took, as it is recorded. It is the same in a
// replay. It is zero under rules by which effects take no time (see [event.RulesVersion]).
func (a *Attempt) Took() time.Duration {
	if a.rules() == 0 {
		return 0
	}
	a.c.mu.Lock()
	defer a.c.mu.Unlock()
	return time.Duration(max(a.took, 0)) * time.Microsecond
}

// meter reads the attempt's meter, which is zero for a tool without one.
func (a *Attempt) meter() Meter {
	a.c.mu.Lock()
	probe := a.probe
	a.c.mu.Unlock()
	if probe == nil {
		return Meter{}
	}
	return probe()
}

// RecordedStop returns, for a sandboxed tool in a replay, the outcome of an attempt that was
// interrupted while the tool was computing. The outcome's Fuel is the value of the counter. The
// tool stops at the same check with an error of the same type. It returns false in live mode, for
// attempts that ended in any other way, and for attempts whose last effect was itself interrupted,
// because the recorded failure of that effect ends the tool again. For attempts that ended as an
// effect returned, see [Attempt.RecordedEnd].
//
// A native tool has no counter to stop at. Its context ends with the recorded cause as soon as the
// tool has done everything that the attempt recorded. A tool that watches its context then fails as
// it did before.
func (a *Attempt) RecordedStop() (event.ToolCallFailed, bool) { return a.recorded((*matcher).stop) }

// RecordedEnd returns, for a sandboxed tool in a replay, the outcome of an attempt that was
// interrupted as its last effect returned. The process of the tool was lost some time after that
// effect, and its later work is unknown, so the tool ends here. It returns false in live mode.
func (a *Attempt) RecordedEnd() (event.ToolCallFailed, bool) { return a.recorded((*matcher).end) }

// recorded finds an outcome of the attempt in a recording.
func (a *Attempt) recorded(find func(m *matcher, call string, attempt uint32) (event.ToolCallFailed, bool)) (failed event.ToolCallFailed, ok bool) {
	if a.c.replaying() {
		a.c.mu.Lock()
		defer a.c.mu.Unlock()
		failed, ok = find(a.c.matcher, a.callID, a.number)
	}
	return failed, ok
}
