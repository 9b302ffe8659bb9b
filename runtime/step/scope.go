package step

import (
	"bytes"
	"context"
	"encoding/json"

	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/runtime/tool"
)

// scope is what this package keeps in a context.Context: which run it belongs
// to and which attempt of which call is acting.
type scope struct {
	c       *Context
	attempt *attempt
	root    context.Context // what WithContext was given; its end aborts a replay
}

// attempt is one attempt of one call, or, with an empty callID, the run itself.
// Its mutable fields are guarded by Context.mu.
type attempt struct {
	callID string
	turnID string
	tool   string // its name in the run
	number uint32 // from 1
	keyID  string // the call id that idempotency keys are made of
	input  *canon.Doc

	carried []event.SideEffectRecorded // what is known of the call before its first effect here
	strayed bool                       // the call has done something else than is known

	ended   bool         // its outcome is recorded; nothing may follow
	output  *canon.Doc   // nil unless SetOutput was called
	effects uint64       // how many were begun with Do
	probe   func() Meter // nil unless SetProbe was called

	// recordedEnd is the context of a native tool in a replay. It ends where the
	// recording says that the tool was interrupted. Nil otherwise; never reassigned.
	recordedEnd *recordedContext
}

// scopeKey is the key under which a context.Context holds its *scope.
type scopeKey struct{}

// WithContext returns a context in which the functions of this package act for
// the run of c. A replay is abandoned when parent ends.
//
// Tools see the run's identity, and the session and variables of parent (see
// [tool.WithVariables]), which [Emit] writes into RunStarted; in a replay they
// see the recorded ones, and so they do when the run is resumed.
func WithContext(parent context.Context, c *Context) context.Context {
	ctx := tool.WithRunID(parent, c.cfg.RunID)
	if first := c.first(); first != nil {
		ctx = withRecorded(ctx, *first)
	}
	return context.WithValue(ctx, scopeKey{}, &scope{c: c, attempt: &attempt{}, root: parent})
}

// withRecorded adds the session and the variables of a recorded run. What cannot
// be read leaves none, and then RunStarted differs.
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

// From returns the Context of the run that ctx belongs to, or false when it
// belongs to none.
func From(ctx context.Context) (*Context, bool) {
	s, ok := ctx.Value(scopeKey{}).(*scope)
	if !ok || s == nil {
		return nil, false
	}
	return s.c, true
}

// mustScope returns the scope of ctx for the exported function of that name.
func mustScope(ctx context.Context, function string) *scope {
	s, ok := ctx.Value(scopeKey{}).(*scope)
	if !ok || s == nil {
		panic("step: " + function + " outside of a run: its ctx must come from the run, and must not be the one inside an effect")
	}
	return s
}

// Call identifies the attempt that is acting.
type Call struct {
	RunID   string
	Tool    string // its name in the run
	CallID  string // that of the first, if the call is made in the place of another one
	Attempt uint32 // from 1
	Replay  bool   // the record stands in for the world, the clock included

	// Variables are those of the run, a canonical JSON object, or nil.
	Variables json.RawMessage
}

// CallInfo returns the attempt that ctx belongs to, or false outside of a call.
func CallInfo(ctx context.Context) (Call, bool) {
	s, ok := ctx.Value(scopeKey{}).(*scope)
	if !ok || s == nil || s.attempt.callID == "" {
		return Call{}, false
	}
	return Call{
		RunID: s.c.cfg.RunID, Tool: s.attempt.tool, CallID: s.attempt.keyID, Attempt: s.attempt.number, Replay: s.c.replaying(),
		Variables: tool.VariablesJSON(ctx),
	}, true
}

// Input returns the document that a tool is executed with, of which doc is the JSON. It is not
// parsed again, unless a tool around this one has changed it.
func Input(ctx context.Context, doc json.RawMessage) (*canon.Doc, error) {
	if s, ok := ctx.Value(scopeKey{}).(*scope); ok && s != nil && s.attempt.input != nil && bytes.Equal(s.attempt.input.JSON, doc) {
		return s.attempt.input, nil
	}
	return canon.Parse(doc)
}

// SetOutput tells which document it is that Execute returns the JSON of, so that it is not
// parsed again. It panics outside of a run.
func SetOutput(ctx context.Context, output *canon.Doc) {
	s := mustScope(ctx, "SetOutput")
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	s.attempt.output = output
}

// Meter is what a sandboxed call has consumed.
type Meter = event.Meter

// SetProbe tells how to read the meter of the attempt that ctx belongs to. From
// then on every effect of the attempt records the fuel spent so far, and its
// outcome records the whole meter. The probe must be fast, must not call this
// package, and must work until Execute has returned and its outcome is
// recorded. It panics outside of a run.
func SetProbe(ctx context.Context, probe func() Meter) {
	s := mustScope(ctx, "SetProbe")
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	s.attempt.probe = probe
}

// Consumed returns what the attempt that ctx belongs to has consumed so far. It is
// zero outside of one, and for a tool without a meter.
func Consumed(ctx context.Context) Meter {
	s, ok := ctx.Value(scopeKey{}).(*scope)
	if !ok || s == nil {
		return Meter{}
	}
	return s.meter()
}

// meter reads the attempt's meter, which is zero for a tool that has none.
func (s *scope) meter() Meter {
	s.c.mu.Lock()
	probe := s.attempt.probe
	s.c.mu.Unlock()
	if probe == nil {
		return Meter{}
	}
	return probe()
}

// RecordedStop tells a sandboxed tool, in a replay, that this attempt was
// interrupted while the tool was computing, and where: the outcome's Fuel is the
// value of the counter. The tool stops at the same check with an error of the
// same type. It is false in live mode, for an attempt that ended in any other
// way, and for one whose last effect was itself interrupted, because then the
// recorded failure of that effect ends the tool again.
//
// An attempt that ended as an effect returned is the matter of [RecordedEnd].
//
// A native tool has no counter to stop at. It gets a context that ends, with
// the recorded cause, as soon as it has done all that the attempt was recorded
// to do; a tool that looks at its context then fails again as it did.
func RecordedStop(ctx context.Context) (event.ToolCallFailed, bool) {
	s := mustScope(ctx, "RecordedStop")
	if !s.c.replaying() {
		return event.ToolCallFailed{}, false
	}
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	return s.c.matcher.stop(s.attempt.callID, s.attempt.number)
}

// RecordedEnd tells a sandboxed tool, in a replay, that this attempt was
// interrupted as the effect returned that the tool has just made, with the recorded
// outcome. The process that the tool ran in was lost some time after that, and
// nothing is known of what it did meanwhile; so the tool ends here. It is false
// in live mode.
func RecordedEnd(ctx context.Context) (event.ToolCallFailed, bool) {
	s := mustScope(ctx, "RecordedEnd")
	if !s.c.replaying() {
		return event.ToolCallFailed{}, false
	}
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	return s.c.matcher.end(s.attempt.callID, s.attempt.number)
}
