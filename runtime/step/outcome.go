package step

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/starling-host/starling/abi"
	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/internal/await"
	"github.com/starling-host/starling/runtime/tool"
)

// carryOut makes the attempts at a call whose first one is scheduled. An error other than a
// *CallError means that the call has no outcome.
func (a *Attempt) carryOut(ctx context.Context, p *plan) (json.RawMessage, error) {
	for number := uint32(1); ; number++ {
		next := &Attempt{c: a.c, root: a.root, callID: p.CallID, turnID: p.TurnID, tool: p.Name, number: number, keyID: keyOf(p.CallID, p.IdempKey), workspace: p.workspace}
		if number == 1 && p.IdempKey != "" {
			next.carried = a.c.carried[p.IdempKey]
		}
		result, err := next.runOnce(ctx, p)
		failed, ok := err.(*CallError)
		if !ok || failed.Failed.Final {
			return result, err
		}
		a.waitToRetry(ctx, p, failed)
		if err := a.schedule(ctx, p, number+1); err != nil {
			return nil, err
		}
	}
}

// keyOf returns the call id in a call's idempotency keys.
func keyOf(callID, idempKey string) string { return cmp.Or(idempKey, callID) }

// runOnce makes the attempt and records its outcome.
func (a *Attempt) runOnce(ctx context.Context, p *plan) (json.RawMessage, error) {
	toolCtx, release := a.enter(ctx, p.callee)
	defer release()
	began := a.c.clock()
	result, err := a.execute(toolCtx, p)
	took := max(a.c.clock().Sub(began), 0)
	if err != nil {
		return nil, a.failed(toolCtx, p, err, took)
	}
	if err := a.complete(ctx, p, result.CBOR, took); err != nil {
		return nil, err
	}
	a.report(ctx, p, result.JSON, nil, took)
	return result.JSON, nil
}

// execute runs the tool, unless the call must not begin.
func (a *Attempt) execute(ctx context.Context, p *plan) (*canon.Doc, error) {
	if err := cmp.Or(a.c.Err(), a.cutOff(), p.Refuse); err != nil {
		return nil, err
	}
	if p.callee == nil {
		return nil, fmt.Errorf("%w: %q", ErrToolNotFound, p.Name)
	}
	if err := a.notStarted(ctx); err != nil {
		return nil, err
	}
	if err := a.judge(ctx, p); err != nil {
		return nil, err
	}
	if !p.callee.confined {
		if err := a.c.barrier(ctx); err != nil {
			return nil, err
		}
	}
	result, err := a.run(ctx, p)
	if err == nil {
		if n := valueBytes(result); n > maxValueBytes {
			err = fmt.Errorf("step: result of %q: %d bytes, at most %d are allowed", p.Name, n, maxValueBytes)
		}
	}
	return result, err
}

// run calls the tool and turns its panic into an error.
func (a *Attempt) run(ctx context.Context, p *plan) (result *canon.Doc, err error) {
	defer tool.Recover(&err)
	var output json.RawMessage
	if t := p.callee.parsed; t != nil {
		result, err = t.ExecuteParsed(ctx, a, p.Doc)
	} else {
		output, err = p.callee.tool.Execute(ctx, bytes.Clone(p.Doc.JSON))
	}
	if err != nil || result != nil {
		return result, err
	}
	if len(output) == 0 {
		output = json.RawMessage("null")
	}
	if result, err = canon.Parse(output); err != nil {
		err = fmt.Errorf("step: result of %q: %w", p.Name, err)
	}
	return result, err
}

// notStartedPrefix begins the recorded error of a call that was interrupted before it began. With
// the error type it makes a replay skip the call too.
const notStartedPrefix = "not started: "

// notStartedError is the failure of a call whose context had ended before it
// began.
type notStartedError struct{ cause error }

func (e notStartedError) Error() string { return notStartedPrefix + e.cause.Error() }
func (e notStartedError) Unwrap() error { return e.cause }

// notStarted returns the error of an attempt that must not begin, or nil.
func (a *Attempt) notStarted(ctx context.Context) error {
	if !a.c.replaying() {
		if err := ctx.Err(); err != nil {
			return notStartedError{err}
		}
		return nil
	}
	failed, ok := a.recorded((*matcher).nextFailure)
	if !ok || !isInterruption(failed.ErrorType) {
		return nil
	}
	if err := (notStartedError{interruptionError(failed.ErrorType)}); failed.Error == err.Error() {
		return err
	}
	return nil
}

// enter returns the context of the tool.
func (a *Attempt) enter(ctx context.Context, t *callee) (context.Context, func()) {
	native := t != nil && !t.sandboxed
	if !a.c.replaying() {
		ctx = context.WithValue(ctx, attemptKey{}, a)
		if tracer := a.c.cfg.Tracer; tracer != nil {
			ctx = tracer.Within(ctx, a.callID)
		}
		if native && a.c.cfg.ToolTimeout > 0 {
			return context.WithTimeout(ctx, a.c.cfg.ToolTimeout)
		}
		return ctx, func() {}
	}
	recorded := &recordedContext{Context: context.WithoutCancel(context.WithValue(ctx, attemptKey{}, a)), done: make(chan struct{})}
	stop := context.AfterFunc(a.root, func() { recorded.end(a.root.Err()) })
	if native {
		a.ending = recorded
		a.endIfRecorded()
	}
	return recorded, func() { stop() }
}

// endIfRecorded ends the context of a native tool in a replay if the attempt has done everything
// that it did before it was interrupted.
func (a *Attempt) endIfRecorded() {
	if a.ending == nil {
		return
	}
	a.c.mu.Lock()
	errorType := a.c.matcher.interruption(a.callID, a.number)
	a.c.mu.Unlock()
	if errorType != "" {
		a.ending.end(interruptionError(errorType))
	}
}

// cutOff returns ErrRecordingEnded if a replay has no more events to compare with the call.
// Otherwise the call could compute up to its limits, or wait for ever, because no deadline reaches
// it in a replay.
func (a *Attempt) cutOff() error {
	if !a.c.replaying() || a.callID == "" {
		return nil
	}
	a.c.mu.Lock()
	defer a.c.mu.Unlock()
	if m := a.c.matcher; m.open && m.peek(a.callID) == nil {
		return ErrRecordingEnded
	}
	return nil
}

// complete records the success of an attempt.
func (a *Attempt) complete(ctx context.Context, p *plan, result canon.Raw, took time.Duration) error {
	completed := event.ToolCallCompleted{
		CallID: p.CallID, Result: result, DurationMs: took.Milliseconds(),
		Attempt: a.number, Meter: a.meter(),
	}
	_, err := record(ctx, a, completed, func(now *event.ToolCallCompleted, recorded event.ToolCallCompleted) error {
		now.DurationMs = recorded.DurationMs
		a.c.takeMeter(&now.Meter, recorded.Meter)
		return nil
	})
	p.ended = err == nil
	return err
}

// failed records the failure of an attempt and returns it as a *CallError. If nothing more can be
// recorded, it returns the reason. That may be the cause itself: mismatches and failures of the log
// arrive here as errors of the tool.
func (a *Attempt) failed(ctx context.Context, p *plan, cause error, took time.Duration) error {
	if errors.Is(cause, tool.ErrHost) {
		return a.c.stop(cause)
	}
	errorType := ErrorType(ctx, cause)
	more := p.again(errorType, cause)
	var wait time.Duration
	if more && !a.c.replaying() {
		wait = p.wait(cause)
	}
	failed := event.ToolCallFailed{
		WaitMs: wait.Milliseconds(), CallID: p.CallID, Error: recordable(cause.Error()), ErrorType: errorType,
		DurationMs: took.Milliseconds(), Attempt: a.number, Final: !more, Meter: a.meter(),
	}
	failed.Meter.Workspace = nil // a call that fails changes no files
	kind, _ := tool.KindOf(cause)
	snoozed := errorType == event.ErrorTool && p.Retry != nil && p.callee != nil && kind == abi.ErrorSnooze
	failed, err := record(ctx, a, failed, func(now *event.ToolCallFailed, recorded event.ToolCallFailed) error {
		if snoozed {
			now.Final = recorded.Final
		}
		now.DurationMs, now.WaitMs = recorded.DurationMs, recorded.WaitMs
		if isInterruption(now.ErrorType) && now.ErrorType == recorded.ErrorType {
			now.Error = recorded.Error // the caller may have chosen the text
		}
		if bad, ok := errors.AsType[*tool.InputError](cause); ok && bad.Was != "" && recorded.Error == recordable(bad.Was) {
			now.Error = recorded.Error
		}
		a.c.takeMeter(&now.Meter, recorded.Meter)
		return nil
	})
	if err != nil {
		return err
	}
	p.ended = failed.Final
	callErr := &CallError{Tool: p.Name, Failed: failed, Err: cause}
	a.report(ctx, p, nil, callErr, took)
	return callErr
}

// takeMeter copies the recorded fuel and peak memory if the meter is ignored.
func (c *Context) takeMeter(now *Meter, recorded Meter) {
	if c.cfg.IgnoreMeter {
		now.Fuel, now.PeakMemory = recorded.Fuel, recorded.PeakMemory
	}
}

// report passes a live outcome to the log, the metrics and the observer; failed is nil for a success.
func (a *Attempt) report(ctx context.Context, p *plan, result json.RawMessage, failed *CallError, took time.Duration) {
	status, errorType := "ok", ""
	if failed != nil {
		status, errorType = "error", failed.Failed.ErrorType
	}
	a.c.logCall(ctx, slog.LevelDebug, "tool ended", p, a.number, named("error_type", errorType), slog.Duration("duration", took))
	if a.c.replaying() {
		return
	}
	if m := a.c.cfg.Metrics; m != nil {
		m.ObserveToolCall(p.Name, status, errorType, took)
	}
	if o := a.c.cfg.Observer; o != nil {
		o.ToolEnded(event.ToolCallScheduled{
			CallID: p.CallID, TurnID: p.TurnID, ToolName: p.Name, Args: p.Doc.CBOR, Attempt: a.number, IdempKey: p.IdempKey,
		}, result, failed)
	}
}

// ErrorType returns the class of an attempt's error, an Error constant of package event. An error
// that ended the context is an interruption. The same error from elsewhere is not, because a tool
// may set its own deadlines.
func ErrorType(ctx context.Context, err error) string {
	if never, ok := err.(notStartedError); ok {
		return interruptionType(never.cause) // in a replay ctx may not have ended
	}
	for _, c := range callClasses {
		if errors.Is(err, c.sentinel) {
			return c.name
		}
	}
	if ctx.Err() != nil && (errors.Is(err, ctx.Err()) || errors.Is(err, context.Cause(ctx))) {
		return interruptionType(ctx.Err())
	}
	return event.ErrorTool
}

// judge asks the guards of a tool whether an attempt is allowed, and records their verdicts first.
// A replay takes them from the recording, whether or not its tool has guards: the policy may have
// changed.
func (a *Attempt) judge(ctx context.Context, p *plan) error {
	effect := event.SideEffectRecorded{Name: event.EffectPolicy, CallID: a.callID}
	if a.c.replaying() {
		next := a.c.peek(a.callID)
		if next == nil {
			return nil
		}
		if recorded, err := next.AsSideEffectRecorded(); err != nil || recorded.Name != event.EffectPolicy {
			return nil
		}
	} else {
		verdicts := p.ask(ctx)
		if len(verdicts) == 0 {
			return nil
		}
		value, err := canon.Marshal(verdicts)
		if err != nil {
			return err
		}
		effect.Value = value
	}
	effect, err := a.recordEffect(ctx, effect, readable[event.Verdicts])
	if err != nil {
		return err
	}
	var verdicts event.Verdicts
	if err := canon.Unmarshal(effect.Value, &verdicts); err != nil {
		return err
	}
	if !verdicts.Allowed() {
		return tool.ToolDiscard(errors.New(verdicts.Reason()))
	}
	return nil
}

// ask returns the verdicts of the guards, up to the first that does not allow the call.
func (p *plan) ask(ctx context.Context) event.Verdicts {
	var all event.Verdicts
	for _, guard := range p.callee.guards {
		said := guard(ctx, p.Name, p.Doc.JSON)
		all = append(all, said...)
		if len(said) > 0 && !said.Allowed() {
			break
		}
	}
	return all
}

// The default wait between attempts.
const (
	backoffBase = 100 * time.Millisecond
	backoffCap  = 10 * time.Second
)

// DefaultBackoff returns the wait after the given failed attempt, counted from 1: 100 ms, doubled
// for each further attempt up to 10 s, plus a share of up to a quarter that is proportional to
// bits. Random bits keep callers that failed together from retrying together.
func DefaultBackoff(attempt int, bits uint64) time.Duration {
	wait := backoffBase
	for i := 1; i < attempt && wait < backoffCap; i++ {
		wait *= 2
	}
	wait = min(wait, backoffCap)
	share := float64(bits>>11) / (1 << 53) // in [0, 1)
	return wait + time.Duration(share*float64(wait/4))
}

// minSnooze is the shortest snooze. A tool that asks for less would fill the log.
const minSnooze = time.Second

// allowed returns the maximum number of attempts at a call.
func (call *ToolCall) allowed() (int, error) {
	switch {
	case call.Retry != nil:
		return call.Retry.Attempts(), call.Retry.Check()
	case call.Idempotent:
		return max(call.MaxAttempts, 1), nil
	}
	return 1, nil
}

// again decides whether another attempt follows a failed one, which it counts unless the tool
// snoozes. It is a function of the failures, so that a replay decides the same. Only whether there
// was one snooze too many comes from the recording, because the bounds are those of the program
// that made the run.
func (p *plan) again(errorType string, cause error) bool {
	kind, after := tool.KindOf(cause)
	switch {
	case errorType != event.ErrorTool, p.callee == nil, kind == abi.ErrorCancel, kind == abi.ErrorDiscard:
		return false
	case p.Retry == nil && kind != abi.ErrorTransient:
		return false
	case kind == abi.ErrorSnooze:
		after = max(after, minSnooze)
		if !p.Retry.Snooze(p.snoozes, p.snoozed, after) {
			return false
		}
		p.snoozes++
		p.snoozed += after
		return true
	}
	p.spent++
	return p.spent < p.attempts
}

// wait returns the wait before the attempt after a failed one.
func (p *plan) wait(cause error) time.Duration {
	kind, after := tool.KindOf(cause)
	switch {
	case kind == abi.ErrorSnooze:
		return max(after, minSnooze)
	case p.Retry != nil:
		return p.Retry.Delay(p.spent, rand.Uint64())
	case p.Backoff != nil:
		return p.Backoff(p.spent)
	}
	return DefaultBackoff(p.spent, rand.Uint64())
}

// waitToRetry waits before another attempt for the recorded time, or until ctx ends; then the next
// attempt is not started. A replay does not wait.
func (a *Attempt) waitToRetry(ctx context.Context, p *plan, failed *CallError) {
	if a.c.replaying() {
		return
	}
	wait := time.Duration(failed.Failed.WaitMs) * time.Millisecond
	kind, _ := tool.KindOf(failed.Err)
	a.c.logCall(ctx, slog.LevelWarn, "tool call will be retried", p, failed.Failed.Attempt,
		named("error_type", failed.Failed.ErrorType), named("kind", string(kind)), slog.Duration("wait", wait))
	await.Pause(ctx, wait)
}

// logCall logs the outcome of an attempt at a call. It omits the name of an unknown tool, because a
// model made it up.
func (c *Context) logCall(ctx context.Context, level slog.Level, msg string, p *plan, attempt uint32, more ...slog.Attr) {
	name := "other"
	if p.callee != nil {
		name = p.Name
	}
	attrs := []slog.Attr{named("tool", name), named("call_id", p.CallID), slog.Uint64("attempt", uint64(attempt))}
	c.log(ctx, level, msg, append(attrs, more...)...)
}

// maxTextBytes bounds the text of a recorded error.
const maxTextBytes = 16 << 10

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
