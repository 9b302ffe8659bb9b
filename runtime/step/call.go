package step

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

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
	results, err := callAll(ctx, mustScope(ctx, "CallTool"), []ToolCall{call})
	if err != nil {
		return nil, err
	}
	return results[0].Result, results[0].Err
}

// plan is a call that has been checked.
type plan struct {
	ToolCall           // with Doc
	tool     tool.Tool // without its guards; nil if the tool does not exist
	guards   []tool.Guard
	attempts int // at most
	spent    int // attempts that failed and count
	snoozes  int // attempts that failed and do not count
	snoozed  time.Duration
	minted   bool // the caller did not choose the CallID
	ended    bool // the last outcome is recorded
}

// plan checks a call and completes it.
func (s *scope) plan(call ToolCall) (*plan, error) {
	p := &plan{ToolCall: call}
	p.tool, p.guards = tool.Unguard(s.c.cfg.Tools.lookup(call.Name))
	if p.TurnID == "" {
		p.TurnID = s.attempt.turnID
	}
	if p.TurnID == "" {
		return nil, fmt.Errorf("%w: the call of %q has no TurnID", ErrInvalidCall, p.Name)
	}
	for _, text := range []string{p.TurnID, p.Name, p.CallID, p.IdempKey} {
		if len(text) > maxTextBytes || !utf8.ValidString(text) {
			return nil, fmt.Errorf("%w: turn id, name and call id are UTF-8 of at most %d bytes", ErrInvalidCall, maxTextBytes)
		}
	}
	var err error
	if p.Doc == nil {
		p.Doc, err = ParseValue(p.Args)
	} else {
		err = CheckValue(p.Doc)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: arguments of %q: %w", ErrInvalidCall, p.Name, err)
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

// ParseValue parses the arguments or the result of a call, see [canon.Parse] and [CheckValue].
func ParseValue(doc []byte) (*canon.Doc, error) {
	d, err := canon.Parse(doc)
	if err == nil {
		err = CheckValue(d)
	}
	return d, err
}

// CheckValue returns an error if a document is too large for the arguments or the result of a call.
func CheckValue(d *canon.Doc) error {
	if n := max(len(d.CBOR), len(d.JSON)); n > maxValueBytes {
		return fmt.Errorf("%d bytes, at most %d are allowed", n, maxValueBytes)
	}
	return nil
}

// schedule records that an attempt is about to begin.
func (s *scope) schedule(ctx context.Context, p *plan, number uint32) error {
	scheduled := event.ToolCallScheduled{
		CallID: p.CallID, TurnID: p.TurnID, ToolName: p.Name, Args: p.Doc.CBOR,
		Attempt: number, IdempKey: p.IdempKey, ParentID: s.attempt.callID,
	}
	scheduled, err := record(ctx, s, scheduled, func(now *event.ToolCallScheduled, recorded event.ToolCallScheduled) error {
		if p.minted {
			now.CallID = recorded.CallID
		}
		now.Commitment = recorded.Commitment
		return nil
	})
	if err != nil {
		return err
	}
	s.endIfRecorded()
	p.CallID = scheduled.CallID
	if o := s.c.cfg.Observer; o != nil && !s.c.replaying() {
		o.ToolStarted(scheduled)
	}
	if number == 1 && p.minted {
		return s.c.reserve(p.CallID)
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

// carryOut makes the attempts at a call whose first one is scheduled. An error other than a
// *CallError means that the call has no outcome.
func (s *scope) carryOut(ctx context.Context, p *plan) (json.RawMessage, error) {
	for number := 1; ; number++ {
		result, err := s.attemptOnce(ctx, p, uint32(number))
		failed, ok := err.(*CallError)
		if !ok || failed.Failed.Final {
			return result, err
		}
		s.waitToRetry(ctx, p, failed)
		if err := s.schedule(ctx, p, uint32(number+1)); err != nil {
			return nil, err
		}
	}
}

// attemptOnce makes one attempt and records its outcome.
func (s *scope) attemptOnce(ctx context.Context, p *plan, number uint32) (json.RawMessage, error) {
	inner := &scope{c: s.c, root: s.root, attempt: &attempt{
		callID: p.CallID, turnID: p.TurnID, tool: p.Name, number: number, keyID: keyOf(p.CallID, p.IdempKey), input: p.Doc,
	}}
	if number == 1 && p.IdempKey != "" {
		inner.attempt.carried = s.c.carried[p.IdempKey]
	}
	toolCtx, release := inner.enter(ctx, p.tool)
	defer release()
	began := s.c.clock()
	result, err := inner.execute(toolCtx, p)
	took := max(s.c.clock().Sub(began), 0)
	if err != nil {
		return nil, inner.failed(toolCtx, p, err, took)
	}
	if err := inner.complete(ctx, p, result.CBOR, took); err != nil {
		return nil, err
	}
	inner.tell(p, result.JSON, nil)
	return result.JSON, nil
}

// keyOf returns the call id in a call's idempotency keys.
func keyOf(callID, idempKey string) string { return cmp.Or(idempKey, callID) }

// tell reports an outcome to the observer.
func (s *scope) tell(p *plan, result json.RawMessage, err *CallError) {
	if o := s.c.cfg.Observer; o != nil && !s.c.replaying() {
		o.ToolEnded(event.ToolCallScheduled{
			CallID: p.CallID, TurnID: p.TurnID, ToolName: p.Name, Args: p.Doc.CBOR, Attempt: s.attempt.number, IdempKey: p.IdempKey,
		}, result, err)
	}
}

// execute runs the tool, unless the call must not begin.
func (s *scope) execute(ctx context.Context, p *plan) (*canon.Doc, error) {
	if err := cmp.Or(s.c.Err(), s.cutOff()); err != nil {
		return nil, err
	}
	if p.Refuse != nil {
		return nil, p.Refuse
	}
	if p.tool == nil {
		return nil, fmt.Errorf("%w: %q", ErrToolNotFound, p.Name)
	}
	if err := s.notStarted(ctx); err != nil {
		return nil, err
	}
	if err := s.judge(ctx, p); err != nil {
		return nil, err
	}
	input := p.Doc.JSON
	if inner, ok := p.tool.(tool.Sandboxed); !ok || inner.Sandbox() == nil {
		if err := s.c.barrier(ctx); err != nil {
			return nil, err
		}
		input = bytes.Clone(input)
	}
	out, err := run(ctx, p.tool, input)
	if err != nil {
		return nil, err
	}
	if len(out) == 0 {
		out = json.RawMessage("null")
	}
	s.c.mu.Lock()
	result := s.attempt.output
	s.c.mu.Unlock()
	if result != nil && bytes.Equal(result.JSON, out) {
		err = CheckValue(result)
	} else {
		result, err = ParseValue(out)
	}
	if err != nil {
		return nil, fmt.Errorf("step: result of %q: %w", p.Name, err)
	}
	return result, nil
}

// run executes the tool and turns its panic into an error.
func run(ctx context.Context, t tool.Tool, input json.RawMessage) (out json.RawMessage, err error) {
	defer tool.Recover(&err)
	return t.Execute(ctx, input)
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
// All calls are scheduled, in the given order, before the first one starts. Their outcomes are
// recorded as they occur. A replay makes the calls one after another, in the recorded order of
// their outcomes.
//
// An error means that at least one call has no outcome. It is one of the errors that [CallTool]
// returns beside *[CallError]. CallTools panics outside of a run.
func CallTools(ctx context.Context, calls []ToolCall) ([]ToolResult, error) {
	return callAll(ctx, mustScope(ctx, "CallTools"), calls)
}

func callAll(ctx context.Context, s *scope, calls []ToolCall) ([]ToolResult, error) {
	plans, err := s.planAll(calls)
	if err != nil {
		return nil, err
	}
	for _, p := range plans {
		if err := s.schedule(ctx, p, 1); err != nil {
			return nil, err
		}
	}
	results := make([]ToolResult, len(plans))
	if s.c.replaying() {
		s.reenact(ctx, plans, results)
	} else {
		s.dispatch(ctx, plans, results)
	}
	return results, s.withoutOutcome(results)
}

// planAll checks all calls before anything is recorded.
func (s *scope) planAll(calls []ToolCall) ([]*plan, error) {
	plans := make([]*plan, len(calls))
	var chosen []string
	for i, call := range calls {
		p, err := s.plan(call)
		if err != nil {
			return nil, err
		}
		if !p.minted {
			chosen = append(chosen, p.CallID)
		}
		plans[i] = p
	}
	return plans, s.c.reserve(chosen...)
}

// errUnfinished is the error of a call whose tool ended its goroutine.
var errUnfinished = errors.New("step: the tool ended the goroutine that it was called on")

// dispatch makes the calls with the allowed number of workers.
func (s *scope) dispatch(ctx context.Context, plans []*plan, results []ToolResult) {
	var next atomic.Int64
	work := func() {
		for i := next.Add(1) - 1; i < int64(len(plans)); i = next.Add(1) - 1 {
			results[i] = ToolResult{CallID: plans[i].CallID, Err: errUnfinished}
			results[i].Result, results[i].Err = s.carryOut(ctx, plans[i])
		}
	}
	workers := min(len(plans), s.c.cfg.MaxParallelTools)
	var others sync.WaitGroup
	for range workers - 1 {
		others.Go(work)
	}
	work()
	others.Wait()
}

// reenact makes the calls one after another in the recorded order of their outcomes, with calls
// without one last, until the replay differs.
func (s *scope) reenact(ctx context.Context, plans []*plan, results []ToolResult) {
	for _, i := range s.recordedOrder(plans) {
		results[i].CallID = plans[i].CallID
		results[i].Result, results[i].Err = s.carryOut(ctx, plans[i])
	}
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	for _, p := range plans {
		s.c.matcher.join(s.attempt.callID, p.CallID, p.ended)
	}
}

// recordedOrder starts the streams of the calls and returns the order in which to replay them.
func (s *scope) recordedOrder(plans []*plan) []int {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	order := make([]int, len(plans))
	ends := make([]uint64, len(plans))
	for i, p := range plans {
		order[i], ends[i] = i, s.c.matcher.outcomeSeq(p.CallID)
		s.c.matcher.fork(s.attempt.callID, p.CallID)
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(ends[a], ends[b]) })
	return order
}

// withoutOutcome returns the reason why a call has no outcome, or nil if all of them have one.
func (s *scope) withoutOutcome(results []ToolResult) error {
	if err := s.c.Err(); err != nil {
		return err
	}
	for _, r := range results {
		if _, failed := r.Err.(*CallError); r.Err != nil && !failed {
			return r.Err
		}
	}
	return nil
}

const (
	// maxValueBytes bounds the arguments and the result of a call, and request and result of an
	// effect together. The rest of a payload is for the other fields.
	maxValueBytes = eventlog.MaxPayloadBytes - 64<<10

	// maxTextBytes bounds the text of a recorded error.
	maxTextBytes = 16 << 10
)

// recordable makes a text fit for the log: valid UTF-8 of bounded length.
func recordable(text string) string {
	text = strings.ToValidUTF8(cut(text), string(utf8.RuneError))
	return cut(text) // a stray byte became three
}

// cut shortens a text to maxTextBytes, between characters.
func cut(text string) string {
	if len(text) <= maxTextBytes {
		return text
	}
	end := maxTextBytes
	for end > maxTextBytes-utf8.UTFMax && !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end]
}
