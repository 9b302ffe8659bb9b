package step

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/starling-host/starling/abi"
	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/runtime/tool"
)

// notStartedPrefix begins the recorded error of a call that was interrupted before it began. With
// the error type it makes a replay skip the call too.
const notStartedPrefix = "not started: "

// notStartedError is the failure of a call whose context had ended before it
// began.
type notStartedError struct{ cause error }

func (e notStartedError) Error() string { return notStartedPrefix + e.cause.Error() }
func (e notStartedError) Unwrap() error { return e.cause }

// notStarted returns the error of an attempt that must not begin, or nil.
func (s *scope) notStarted(ctx context.Context) error {
	if !s.c.replaying() {
		if err := ctx.Err(); err != nil {
			return notStartedError{err}
		}
		return nil
	}
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	failed, ok := s.c.matcher.nextFailure(s.attempt.callID, s.attempt.number)
	if !ok || !isInterruption(failed.ErrorType) {
		return nil
	}
	if err := (notStartedError{interruptionError(failed.ErrorType)}); failed.Error == err.Error() {
		return err
	}
	return nil
}

// enter returns the context of the tool.
func (s *scope) enter(ctx context.Context, t tool.Tool) (context.Context, func()) {
	native := t != nil && tool.SandboxOf(t) == nil
	if !s.c.replaying() {
		ctx = context.WithValue(ctx, scopeKey{}, s)
		if tracer := s.c.cfg.Tracer; tracer != nil {
			ctx = tracer.Within(ctx, s.attempt.callID)
		}
		if native && s.c.cfg.ToolTimeout > 0 {
			return context.WithTimeout(ctx, s.c.cfg.ToolTimeout)
		}
		return ctx, func() {}
	}
	recorded := &recordedContext{Context: context.WithoutCancel(context.WithValue(ctx, scopeKey{}, s)), done: make(chan struct{})}
	stop := context.AfterFunc(s.root, func() { recorded.end(s.root.Err()) })
	if native {
		s.attempt.recordedEnd = recorded
		s.endIfRecorded()
	}
	return recorded, func() { stop() }
}

// endIfRecorded ends the context of a native tool in a replay if the attempt has done everything
// that it did before it was interrupted.
func (s *scope) endIfRecorded() {
	if s.attempt.recordedEnd == nil {
		return
	}
	s.c.mu.Lock()
	errorType := s.c.matcher.interruption(s.attempt.callID, s.attempt.number)
	s.c.mu.Unlock()
	if errorType != "" {
		s.attempt.recordedEnd.end(interruptionError(errorType))
	}
}

// cutOff returns ErrRecordingEnded if a replay has no more events to compare with the call.
// Otherwise the call could compute up to its limits, or wait for ever, because no deadline reaches
// it in a replay.
func (s *scope) cutOff() error {
	if !s.c.replaying() || s.attempt.callID == "" {
		return nil
	}
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	if s.c.matcher.over(s.attempt.callID) {
		return ErrRecordingEnded
	}
	return nil
}

// complete records the success of an attempt.
func (s *scope) complete(ctx context.Context, p *plan, result canon.Raw, took time.Duration) error {
	completed := event.ToolCallCompleted{
		CallID: p.CallID, Result: result, DurationMs: took.Milliseconds(),
		Attempt: s.attempt.number, Meter: s.meter(),
	}
	_, err := record(ctx, s, completed, func(now *event.ToolCallCompleted, recorded event.ToolCallCompleted) error {
		now.DurationMs = recorded.DurationMs
		s.c.takeMeter(&now.Meter, recorded.Meter)
		return nil
	})
	if err != nil {
		return err
	}
	p.ended = true
	s.observe(ctx, p, "", took)
	return nil
}

// failed records the failure of an attempt and returns it as a *CallError. If nothing more can be
// recorded, it returns the reason. That may be the cause itself: mismatches and failures of the log
// arrive here as errors of the tool.
func (s *scope) failed(ctx context.Context, p *plan, cause error, took time.Duration) error {
	if errors.Is(cause, tool.ErrHost) {
		return s.c.stop(cause)
	}
	errorType := ErrorType(ctx, cause)
	more := p.again(errorType, cause)
	var wait time.Duration
	if more && !s.c.replaying() {
		wait = p.wait(cause)
	}
	failed := event.ToolCallFailed{
		WaitMs: wait.Milliseconds(), CallID: p.CallID, Error: recordable(cause.Error()), ErrorType: errorType,
		DurationMs: took.Milliseconds(), Attempt: s.attempt.number, Final: !more, Meter: s.meter(),
	}
	kind, _ := tool.KindOf(cause)
	snoozed := errorType == event.ErrorTool && p.Retry != nil && p.tool != nil && kind == abi.ErrorSnooze
	failed, err := record(ctx, s, failed, func(now *event.ToolCallFailed, recorded event.ToolCallFailed) error {
		if snoozed {
			now.Final = recorded.Final
		}
		now.DurationMs, now.WaitMs = recorded.DurationMs, recorded.WaitMs
		if isInterruption(now.ErrorType) && now.ErrorType == recorded.ErrorType {
			now.Error = recorded.Error // the caller may have chosen the text
		}
		s.c.takeMeter(&now.Meter, recorded.Meter)
		return nil
	})
	if err != nil {
		return err
	}
	p.ended = failed.Final
	s.observe(ctx, p, errorType, took)
	callErr := &CallError{Tool: p.Name, Failed: failed, Err: cause}
	s.tell(p, nil, callErr)
	return callErr
}

// takeMeter copies the recorded fuel and peak memory if the meter is ignored.
func (c *Context) takeMeter(now *Meter, recorded Meter) {
	if c.cfg.IgnoreMeter {
		now.Fuel, now.PeakMemory = recorded.Fuel, recorded.PeakMemory
	}
}

// observe reports a live attempt to the log and the metrics; errorType is empty for a success.
func (s *scope) observe(ctx context.Context, p *plan, errorType string, took time.Duration) {
	s.c.logCall(ctx, slog.LevelDebug, "tool ended", p, s.attempt.number, named("error_type", errorType), slog.Duration("duration", took))
	m := s.c.cfg.Metrics
	if m == nil || s.c.replaying() {
		return
	}
	status := "ok"
	if errorType != "" {
		status = "error"
	}
	m.ObserveToolCall(p.Name, status, errorType, took)
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
func (s *scope) judge(ctx context.Context, p *plan) error {
	effect := event.SideEffectRecorded{Name: event.EffectPolicy, CallID: s.attempt.callID}
	if s.c.replaying() {
		if !s.judged() {
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
	effect, err := s.recordEffect(ctx, effect, readable[event.Verdicts])
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
	for _, guard := range p.guards {
		said := guard(ctx, p.Name, p.Doc.JSON)
		all = append(all, said...)
		if len(said) > 0 && !said.Allowed() {
			break
		}
	}
	return all
}

// judged reports whether the next recorded event is a decision of a policy.
func (s *scope) judged() bool {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	next := s.c.matcher.peek(s.attempt.callID)
	if next == nil {
		return false
	}
	effect, err := next.AsSideEffectRecorded()
	return err == nil && effect.Name == event.EffectPolicy
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
	case errorType != event.ErrorTool, p.tool == nil, kind == abi.ErrorCancel, kind == abi.ErrorDiscard:
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
func (s *scope) waitToRetry(ctx context.Context, p *plan, failed *CallError) {
	if s.c.replaying() {
		return
	}
	wait := time.Duration(failed.Failed.WaitMs) * time.Millisecond
	kind, _ := tool.KindOf(failed.Err)
	s.c.logCall(ctx, slog.LevelWarn, "tool call will be retried", p, failed.Failed.Attempt,
		named("error_type", failed.Failed.ErrorType), named("kind", string(kind)), slog.Duration("wait", wait))
	pause(ctx, wait)
}

// pause waits until the time has passed or ctx ends.
func pause(ctx context.Context, wait time.Duration) {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
