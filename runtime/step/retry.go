package step

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/starling-host/starling/abi"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/runtime/tool"
)

// The default wait between attempts.
const (
	backoffBase = 100 * time.Millisecond
	backoffCap  = 10 * time.Second
)

// DefaultBackoff returns how long to wait after the given failed attempt, from
// 1: 100 ms, doubled for each further attempt up to 10 s, and on top of it a
// share of up to a quarter that is proportional to bits. Random bits keep
// callers that failed together from coming back together.
func DefaultBackoff(attempt int, bits uint64) time.Duration {
	wait := backoffBase
	for i := 1; i < attempt && wait < backoffCap; i++ {
		wait *= 2
	}
	wait = min(wait, backoffCap)
	share := float64(bits>>11) / (1 << 53) // in [0, 1)
	return wait + time.Duration(share*float64(wait/4))
}

// minSnooze is the shortest snooze. A tool that asks for less, or for nothing,
// would fill the log.
const minSnooze = time.Second

// allowed returns how many attempts a call may have.
func (call *ToolCall) allowed() (int, error) {
	switch {
	case call.Retry != nil:
		return call.Retry.Attempts(), call.Retry.Check()
	case call.Idempotent:
		return max(call.MaxAttempts, 1), nil
	}
	return 1, nil
}

// again decides whether another attempt follows one that failed, which it counts
// unless the tool snoozes. It is a function of how the attempts failed, so that a
// replay decides the same; but whether a snooze was one too many the replay takes
// from the recording, because the bounds are those of the program that made the run.
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

// wait returns how long to wait after an attempt that another one follows.
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

// waitToRetry waits before another attempt as long as was recorded, and no longer
// than ctx lasts: what follows is then an attempt that is not started. A replay
// does not wait.
func (s *scope) waitToRetry(ctx context.Context, p *plan, failed *CallError) {
	if s.c.replaying() {
		return
	}
	wait := time.Duration(failed.Failed.WaitMs) * time.Millisecond
	s.c.logRetry(ctx, p, failed, wait)
	pause(ctx, wait)
}

// pause waits, no longer than ctx lasts.
func pause(ctx context.Context, wait time.Duration) {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
