package step

import (
	"bytes"
	"context"
	"encoding/json"
	"time"

	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/runtime/tool"
)

// scope is the state that this package keeps in a context.Context: the run, and the attempt of a
// call that is acting.
type scope struct {
	c       *Context
	attempt *attempt
	root    context.Context // the context given to WithContext; its end aborts a replay
}

// attempt is one attempt of one call, or, with an empty callID, the run itself.
// Its mutable fields are guarded by Context.mu.
type attempt struct {
	callID string
	turnID string
	tool   string // its name in the run
	number uint32 // from 1
	keyID  string // the call id in its idempotency keys
	input  *canon.Doc

	carried []event.SideEffectRecorded // recorded effects of a replaced call that remain
	strayed bool                       // the call has differed from the recorded effects

	ended   bool         // its outcome is recorded; nothing may follow
	output  *canon.Doc   // nil unless SetOutput was called
	effects uint64       // begun with Do
	took    int64        // microseconds of the last effect, as recorded
	probe   func() Meter // nil unless SetProbe was called

	// recordedEnd is the context of a native tool in a replay. It ends where the recording shows an
	// interruption. It is nil otherwise, and never reassigned.
	recordedEnd *recordedContext
}

type scopeKey struct{}

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
	return context.WithValue(ctx, scopeKey{}, &scope{c: c, attempt: &attempt{}, root: parent})
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
	s, ok := ctx.Value(scopeKey{}).(*scope)
	if !ok || s == nil {
		return nil, false
	}
	return s.c, true
}

// mustScope returns the scope of ctx for the exported function with this name.
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
	ID      string // of the call, in the log
	CallID  string // of the first call, if this one replaces another
	Attempt uint32 // from 1
	Replay  bool   // results come from the recording, including those of the clock
	Rules   uint32 // [event.RulesVersion] of a new run, and the recorded version of another one

	// Variables are the variables of the run, a canonical JSON object, or nil.
	Variables json.RawMessage
}

// CallInfo returns the attempt that ctx belongs to, or false outside of a call.
func CallInfo(ctx context.Context) (Call, bool) {
	s, ok := ctx.Value(scopeKey{}).(*scope)
	if !ok || s == nil || s.attempt.callID == "" {
		return Call{}, false
	}
	return Call{
		RunID: s.c.cfg.RunID, Tool: s.attempt.tool, ID: s.attempt.callID, CallID: s.attempt.keyID, Attempt: s.attempt.number, Replay: s.c.replaying(),
		Rules: s.rules(), Variables: tool.VariablesJSON(ctx),
	}, true
}

// rules returns the version of the rules for the tool of the attempt.
func (s *scope) rules() uint32 {
	if recorded, ok := s.c.rules[s.attempt.tool]; ok {
		return recorded
	}
	return event.RulesVersion
}

// Input returns the parsed input of a tool. doc is its JSON, which is parsed again only if a tool
// around this one has changed it.
func Input(ctx context.Context, doc json.RawMessage) (*canon.Doc, error) {
	if s, ok := ctx.Value(scopeKey{}).(*scope); ok && s != nil && s.attempt.input != nil && bytes.Equal(s.attempt.input.JSON, doc) {
		return s.attempt.input, nil
	}
	return canon.Parse(doc)
}

// SetOutput sets the parsed form of the JSON that Execute returns, so that it is not parsed again.
// It panics outside of a run.
func SetOutput(ctx context.Context, output *canon.Doc) {
	s := mustScope(ctx, "SetOutput")
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	s.attempt.output = output
}

// Meter is the consumption of a sandboxed call.
type Meter = event.Meter

// SetProbe sets the function that reads the meter of the attempt of ctx. From then on every effect
// of the attempt records the fuel spent so far, and its outcome records the whole meter. The probe
// must be fast, must not call this package, and must work until Execute has returned and its
// outcome is recorded. It panics outside of a run.
func SetProbe(ctx context.Context, probe func() Meter) {
	s := mustScope(ctx, "SetProbe")
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	s.attempt.probe = probe
}

// Took returns how long the last effect of the attempt that ctx belongs to took, as it is recorded.
// It is the same in a replay. It is zero outside of an attempt, and under rules by which effects take
// no time (see [event.RulesVersion]).
func Took(ctx context.Context) time.Duration {
	s, ok := ctx.Value(scopeKey{}).(*scope)
	if !ok || s == nil || s.rules() == 0 {
		return 0
	}
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	return time.Duration(max(s.attempt.took, 0)) * time.Microsecond
}

// Consumed returns the consumption so far of the attempt that ctx belongs to. It is zero outside of
// an attempt, and for a tool without a meter.
func Consumed(ctx context.Context) Meter {
	s, ok := ctx.Value(scopeKey{}).(*scope)
	if !ok || s == nil {
		return Meter{}
	}
	return s.meter()
}

// meter reads the attempt's meter, which is zero for a tool without one.
func (s *scope) meter() Meter {
	s.c.mu.Lock()
	probe := s.attempt.probe
	s.c.mu.Unlock()
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
// effect returned, see [RecordedEnd].
//
// A native tool has no counter to stop at. Its context ends with the recorded cause as soon as the
// tool has done everything that the attempt recorded. A tool that watches its context then fails as
// it did before.
func RecordedStop(ctx context.Context) (event.ToolCallFailed, bool) {
	s := mustScope(ctx, "RecordedStop")
	if !s.c.replaying() {
		return event.ToolCallFailed{}, false
	}
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	return s.c.matcher.stop(s.attempt.callID, s.attempt.number)
}

// RecordedEnd returns, for a sandboxed tool in a replay, the outcome of an attempt that was
// interrupted as its last effect returned. The process of the tool was lost some time after that
// effect, and its later work is unknown, so the tool ends here. It returns false in live mode.
func RecordedEnd(ctx context.Context) (event.ToolCallFailed, bool) {
	s := mustScope(ctx, "RecordedEnd")
	if !s.c.replaying() {
		return event.ToolCallFailed{}, false
	}
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	return s.c.matcher.end(s.attempt.callID, s.attempt.number)
}
