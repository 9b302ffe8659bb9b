package step

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/starling-host/starling/abi"
	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/runtime/tool"
)

// ToolCall describes one call of a tool.
type ToolCall struct {
	// CallID identifies the call and must be unique in the run. If it is empty, a new one is
	// generated.
	CallID string

	// TurnID is the turn that planned the call. Within a call it may be empty, which means the turn
	// of that call; elsewhere it is required.
	TurnID string

	// Name of the tool.
	Name string

	// Args is the input, any JSON document. It is recorded, and passed to the tool, in canonical
	// form.
	Args json.RawMessage

	// Doc is the parsed input, in place of Args.
	Doc *canon.Doc

	// IdempKey is the id of an earlier call that this one replaces, because the process died before
	// the outcome was known. The recorded effects of that call are not repeated while this one
	// reaches the same effects; the others have the idempotency keys of that call. The tool sees
	// that call's id. It is empty for any other call.
	IdempKey string

	// Refuse, if not nil, is the error with which the call fails without running the tool: for an
	// invalid call by a model.
	Refuse error

	// Retry, if not nil, allows the call to be repeated, after any error of the tool unless the
	// error requests otherwise (see [tool.KindOf]). It replaces the three fields below.
	Retry *tool.RetryConfig

	// Idempotent allows the call to be repeated. Without it there is one attempt, for any
	// MaxAttempts.
	Idempotent bool

	// MaxAttempts bounds the attempts at an idempotent call that fails with
	// [tool.ErrTransient]. Zero means one.
	MaxAttempts int

	// Backoff returns the wait after the given failed attempt, counted from 1. Nil means
	// [DefaultBackoff] with fresh random bits. A replay does not wait.
	Backoff func(attempt int) time.Duration
}

// NewCallID returns a new call id, for a caller that must know it beforehand.
func NewCallID() string { return event.NewID() }

// CallTool calls a tool and returns its result as canonical JSON, null if the
// tool returned nothing.
//
// ToolCallScheduled is recorded before each attempt, ToolCallCompleted or
// ToolCallFailed after it. A failure is returned as a [*CallError]; it is of
// the type
//
//	panic      the tool panicked or trapped: tool.ErrPanicked
//	cancelled  the caller's context was cancelled, or tool.ErrCancelled
//	timeout    a deadline passed, or tool.ErrTimeout
//	fuel       tool.ErrFuel
//	limit      tool.ErrLimit
//	lost       tool.ErrLost
//	tool       any other error, an unknown tool (ErrToolNotFound), a result
//	           that is not JSON or is too large
//
// A failure of the type tool is retried as ToolCall.Retry allows, or else as Idempotent and
// MaxAttempts allow. Failures of other types are never retried, nor are calls of unknown tools and
// errors marked with tool.ToolCancel or tool.ToolDiscard.
//
// A call whose context has ended is scheduled and fails without being started.
//
// Any other error means that there is no outcome: [ErrInvalidCall] or [ErrEnded] if nothing was
// recorded, otherwise the error of [Context.Err], which may be the tool's own if it is a
// tool.ErrHost, or [ErrRecordingEnded]. None of them is ever recorded as a failure of the tool,
// even if a tool returns one as its own.
//
// CallTool panics outside of a run.
func CallTool(ctx context.Context, call ToolCall) (json.RawMessage, error) {
	results, err := callAll(ctx, attemptOf(ctx, "CallTool"), []ToolCall{call})
	if err != nil {
		return nil, err
	}
	return results[0].Result, results[0].Err
}

// plan is a call that has been checked.
type plan struct {
	ToolCall         // with Doc
	callee   *callee // nil if the tool does not exist
	attempts int     // at most
	spent    int     // attempts that failed and count
	snoozes  int     // attempts that failed and do not count
	snoozed  time.Duration
	minted   bool // the caller did not choose the CallID
	ended    bool // the last outcome is recorded

	workspace *event.Workspace // the files of the call, or nil
}

// plan checks a call and completes it.
func (a *Attempt) plan(call ToolCall) (*plan, error) {
	p := &plan{ToolCall: call, callee: a.c.cfg.Tools.lookup(call.Name)}
	p.TurnID = cmp.Or(p.TurnID, a.turnID)
	if p.TurnID == "" {
		return nil, fmt.Errorf("%w: the call of %q has no TurnID", ErrInvalidCall, p.Name)
	}
	for _, text := range []string{p.TurnID, p.Name, p.CallID, p.IdempKey} {
		if len(text) > maxTextBytes || !utf8.ValidString(text) {
			return nil, fmt.Errorf("%w: turn id, name and call id are UTF-8 of at most %d bytes", ErrInvalidCall, maxTextBytes)
		}
	}
	var err error
	if p.Doc, err = ParseInput(p.Args, p.Doc); err != nil {
		return nil, fmt.Errorf("%w: the call of %q: %w", ErrInvalidCall, p.Name, err)
	}
	if p.attempts, err = p.allowed(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrInvalidCall, err)
	}
	if p.CallID == "" {
		p.minted = true
		p.CallID = NewCallID()
	}
	return p, nil
}

// ParseInput returns the input of a call: the parsed one, or if that is nil, the one in the text. The
// error is a [*tool.InputError], also if a log cannot record the input.
func ParseInput(text []byte, parsed *canon.Doc) (*canon.Doc, error) {
	if parsed == nil {
		var err error
		if parsed, err = canon.Parse(text); err != nil {
			return nil, &tool.InputError{Cause: err}
		}
	}
	if n := valueBytes(parsed); n > maxValueBytes {
		return nil, &tool.InputError{Bytes: n, Most: maxValueBytes}
	}
	return parsed, nil
}

// valueBytes is the size of an input or a result that counts for maxValueBytes.
func valueBytes(d *canon.Doc) int { return max(len(d.CBOR), len(d.JSON)) }

// schedule records that an attempt is about to begin.
func (a *Attempt) schedule(ctx context.Context, p *plan, number uint32) error {
	scheduled := event.ToolCallScheduled{
		CallID: p.CallID, TurnID: p.TurnID, ToolName: p.Name, Args: p.Doc.CBOR,
		Attempt: number, IdempKey: p.IdempKey, ParentID: a.callID,
	}
	if p.callee != nil && p.callee.files {
		scheduled.Workspace = a.filesOfCalls()
	}
	scheduled, err := record(ctx, a, scheduled, func(now *event.ToolCallScheduled, recorded event.ToolCallScheduled) error {
		if p.minted {
			now.CallID = recorded.CallID
		}
		now.Commitment = recorded.Commitment
		blind := p.callee != nil && p.callee.sandboxed && !p.callee.files
		if blind || a.callID != "" && recorded.Workspace == nil { // earlier commits gave files to other tools
			now.Workspace = recorded.Workspace
		}
		return nil
	})
	if err != nil {
		return err
	}
	a.endIfRecorded()
	p.CallID, p.workspace = scheduled.CallID, scheduled.Workspace
	if o := a.c.cfg.Observer; o != nil && !a.c.replaying() {
		o.ToolStarted(scheduled)
	}
	if number == 1 && p.minted {
		return a.c.reserve(p.CallID)
	}
	return nil
}

// reserve claims call ids for the run: all of them or, on an error, none.
func (c *Context) reserve(callIDs ...string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, id := range callIDs {
		if _, used := c.callIDs[id]; used || id == "" || slices.Contains(callIDs[:i], id) {
			return fmt.Errorf("%w: call id %q is used twice", ErrInvalidCall, id)
		}
	}
	for _, id := range callIDs {
		c.callIDs[id] = struct{}{}
	}
	return nil
}

// ToolResult is the outcome of one call of [CallTools].
type ToolResult struct {
	CallID string
	Result json.RawMessage // canonical JSON; nil on failure
	Err    error           // a *CallError, or nil
}

// CallTools makes several calls at the same time, at most Config.MaxParallelTools, and returns
// their outcomes in the order of calls. A failure does not affect the other calls. When ctx ends,
// calls that wait for a free worker fail without being started.
//
// All calls are scheduled, in the given order, before the first one starts; but one that can change
// files waits for the outcomes of those before it, and those after it wait for its own. Outcomes are
// recorded as they occur. A replay makes the calls one after another, in the recorded order of
// their outcomes.
//
// An error means that at least one call has no outcome. It is one of the errors that [CallTool]
// returns beside *[CallError]. CallTools panics outside of a run.
func CallTools(ctx context.Context, calls []ToolCall) ([]ToolResult, error) {
	return callAll(ctx, attemptOf(ctx, "CallTools"), calls)
}

func callAll(ctx context.Context, a *Attempt, calls []ToolCall) ([]ToolResult, error) {
	plans, err := a.planAll(calls)
	if err != nil {
		return nil, err
	}
	results := make([]ToolResult, 0, len(plans))
	for len(plans) > 0 {
		together := a.together(plans)
		for _, p := range together {
			if err := a.schedule(ctx, p, 1); err != nil {
				return nil, err
			}
		}
		part := make([]ToolResult, len(together))
		if a.c.replaying() {
			a.reenact(ctx, together, part)
		} else {
			a.dispatch(ctx, together, part)
		}
		results, plans = append(results, part...), plans[len(together):]
		if err := a.withoutOutcome(part); err != nil {
			return results, err
		}
	}
	return results, nil
}

// together returns the first of the calls that are made at the same time: one that can change files
// waits for the calls before it, and the calls after it wait for it.
func (a *Attempt) together(plans []*plan) []*plan {
	files := a.filesOfCalls()
	if files == nil || !slices.ContainsFunc(files.Mounts, func(m event.Mount) bool { return m.Writable }) {
		return plans
	}
	i := slices.IndexFunc(plans, func(p *plan) bool { return p.callee != nil && p.callee.files })
	if i < 0 {
		return plans
	}
	return plans[:max(i, 1)]
}

// filesOfCalls returns the files that the next call of a is given, or nil.
func (a *Attempt) filesOfCalls() *event.Workspace {
	if a.callID == "" {
		a.c.mu.Lock()
		defer a.c.mu.Unlock()
		return a.c.files
	}
	if a.workspace == nil {
		return nil
	}
	read := &event.Workspace{Root: a.workspace.Root}
	for _, m := range a.workspace.Mounts {
		read.Mounts = append(read.Mounts, event.Mount{At: m.At})
	}
	return read
}

// planAll checks all calls before anything is recorded.
func (a *Attempt) planAll(calls []ToolCall) ([]*plan, error) {
	plans := make([]*plan, len(calls))
	var chosen []string
	for i, call := range calls {
		p, err := a.plan(call)
		if err != nil {
			return nil, err
		}
		if !p.minted {
			chosen = append(chosen, p.CallID)
		}
		plans[i] = p
	}
	return plans, a.c.reserve(chosen...)
}

// errUnfinished is the error of a call whose tool ended its goroutine.
var errUnfinished = errors.New("step: the tool ended the goroutine that it was called on")

// dispatch makes the calls with the allowed number of workers.
func (a *Attempt) dispatch(ctx context.Context, plans []*plan, results []ToolResult) {
	var next atomic.Int64
	work := func() {
		for i := next.Add(1) - 1; i < int64(len(plans)); i = next.Add(1) - 1 {
			results[i] = ToolResult{CallID: plans[i].CallID, Err: errUnfinished}
			results[i].Result, results[i].Err = a.carryOut(ctx, plans[i])
		}
	}
	workers := min(len(plans), a.c.cfg.MaxParallelTools)
	var others sync.WaitGroup
	for range workers - 1 {
		others.Go(work)
	}
	work()
	others.Wait()
}

// reenact makes the calls one after another in the recorded order of their outcomes, with calls
// without one last, until the replay differs.
func (a *Attempt) reenact(ctx context.Context, plans []*plan, results []ToolResult) {
	order, ends := make([]int, len(plans)), make([]uint64, len(plans))
	a.c.mu.Lock()
	for i, p := range plans {
		order[i], ends[i] = i, a.c.matcher.outcomeSeq(p.CallID)
		a.c.matcher.fork(a.callID, p.CallID)
	}
	a.c.mu.Unlock()
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(ends[a], ends[b]) })
	for _, i := range order {
		results[i].CallID = plans[i].CallID
		results[i].Result, results[i].Err = a.carryOut(ctx, plans[i])
	}
	a.c.mu.Lock()
	defer a.c.mu.Unlock()
	for _, p := range plans {
		a.c.matcher.join(a.callID, p.CallID, p.ended)
	}
}

// withoutOutcome returns the reason why a call has no outcome, or nil if all of them have one.
func (a *Attempt) withoutOutcome(results []ToolResult) error {
	if err := a.c.Err(); err != nil {
		return err
	}
	for _, r := range results {
		if _, failed := r.Err.(*CallError); r.Err != nil && !failed {
			return r.Err
		}
	}
	return nil
}

// maxValueBytes bounds the arguments and the result of a call, and request and result of an
// effect together. The rest of a payload is for the other fields.
const maxValueBytes = eventlog.MaxPayloadBytes - 64<<10

var (
	// ErrInvalidConfig is returned by [NewContext] for a Config that lacks a field required in its
	// mode.
	ErrInvalidConfig = errors.New("step: invalid Config")

	// ErrToolNotFound is wrapped by the failure of a call to a tool that the
	// [Registry] does not have. The failure is in the log like any other.
	ErrToolNotFound = errors.New("step: tool not found")

	// ErrReplayMismatch matches every [*MismatchError].
	ErrReplayMismatch = errors.New("step: replay mismatch")

	// ErrRecordingEnded ends the replay of a run whose recording was cut off, by a crash or because
	// the run continues, when the code reaches an event that was never recorded. It is not a
	// divergence.
	ErrRecordingEnded = errors.New("step: the recording ends here")

	// ErrEnded is returned, or thrown by functions without an error result, when a call or a run
	// acts after its outcome.
	ErrEnded = errors.New("step: already ended")

	// ErrInvalidCall is returned by [CallTool] and [CallTools] for a call that cannot be recorded:
	// without a turn, with a call id used before, or with arguments that are not JSON or too large.
	// Nothing is recorded.
	ErrInvalidCall = errors.New("step: invalid call")

	// ErrInvalidEffect is returned by [SideEffect] and [Do] for an effect that cannot be recorded:
	// with an empty, reserved or overlong name, or a request that is too large. Nothing is recorded
	// or done.
	ErrInvalidEffect = errors.New("step: invalid effect")
)

// MismatchClass is the kind of difference between a replay and the recording.
type MismatchClass string

const (
	// MismatchExhausted: the code did more than was recorded, or less.
	MismatchExhausted MismatchClass = "exhausted"
	// MismatchKind: an event of one kind was recorded, another one happened.
	MismatchKind MismatchClass = "kind"
	// MismatchPayload: the kinds agree, the bytes or the order of events do not.
	MismatchPayload MismatchClass = "payload"
	// MismatchTurnID: the payloads differ first in their turn id.
	MismatchTurnID MismatchClass = "turn_id"
)

// MismatchError is the first difference between a replay and its recording.
type MismatchError struct {
	Seq          uint64     // of the recorded event; past the end, one more than the last
	Kind         event.Kind // of the replay's event; zero if it had no more
	ExpectedKind event.Kind // of the recorded event; zero if there were no more
	Class        MismatchClass
	Reason       string // one sentence
	Field        string // dotted path of the first payload field that differs, or empty
	Expected     string // the recorded value of Field
	Got          string // the replayed value of Field
}

// Error describes the position of the difference and its reason.
func (e *MismatchError) Error() string {
	text := fmt.Sprintf("%v at seq %d (%s): %s", ErrReplayMismatch, e.Seq, e.Class, e.Reason)
	if e.Field != "" {
		text += fmt.Sprintf(": %s: recorded %s, got %s", e.Field, e.Expected, e.Got)
	}
	return text
}

// Is reports whether target is [ErrReplayMismatch].
func (e *MismatchError) Is(target error) bool { return target == ErrReplayMismatch }

// EffectTransient is the type of a failed effect whose error wrapped
// [tool.ErrTransient].
const EffectTransient = string(abi.ErrorTransient)

// EffectError is a failed effect as recorded in the log. The recorded run and every replay of it
// get the same error, so it has the text and the class of the original, but not the original
// itself.
type EffectError struct {
	Name    string        // of the effect
	Type    string        // an Error constant of package event, or an abi.ErrorKind that requests an action
	Message string        // the text of the original error
	After   time.Duration // of a snooze
}

// Error returns the text of the original error.
func (e *EffectError) Error() string { return e.Message }

// FailureKind passes the action that the effect's error requested to [tool.KindOf], so that it also
// applies to a tool that returns e.
func (e *EffectError) FailureKind() (abi.ErrorKind, time.Duration) {
	switch kind := abi.ErrorKind(e.Type); kind {
	case abi.ErrorTransient, abi.ErrorCancel, abi.ErrorDiscard, abi.ErrorSnooze:
		return kind, e.After
	}
	return abi.ErrorTool, 0
}

// Is reports whether target is the sentinel of e's class. Timeouts and cancellations also match the
// errors of package context.
func (e *EffectError) Is(target error) bool {
	return slices.Contains(recordedClasses, class{e.Type, target})
}

// CallError is a failed call of a tool as recorded in the log. It unwraps to the error of the tool.
type CallError struct {
	Tool   string
	Failed event.ToolCallFailed // the last attempt
	Err    error
}

// Error returns the recorded text.
func (e *CallError) Error() string { return e.Failed.Error }

// Unwrap returns the tool's own error.
func (e *CallError) Unwrap() error { return e.Err }

// Is reports whether target is the sentinel of the failure's class.
func (e *CallError) Is(target error) bool {
	return slices.Contains(recordedClasses, class{e.Failed.ErrorType, target})
}

// class is a class of failure: its name in the log, and a sentinel.
type class struct {
	name     string
	sentinel error
}

// callClasses are the classes of failed attempts. The first whose sentinel an error wraps
// is recorded.
var callClasses = []class{
	{event.ErrorPanic, tool.ErrPanicked},
	{event.ErrorTimeout, tool.ErrTimeout},
	{event.ErrorCancelled, tool.ErrCancelled},
	{event.ErrorFuel, tool.ErrFuel},
	{event.ErrorLimit, tool.ErrLimit},
	{event.ErrorLost, tool.ErrLost},
}

// recordedClasses are the classes that define the sentinels of a recorded failure.
var recordedClasses = append(slices.Clone(callClasses),
	class{event.ErrorCancelled, context.Canceled}, class{event.ErrorTimeout, context.DeadlineExceeded}, class{EffectTransient, tool.ErrTransient})
