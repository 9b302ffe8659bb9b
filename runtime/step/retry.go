package step

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"time"
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

// waitToRetry waits before another attempt, no longer than ctx lasts: what
// follows is then an attempt that is not started. The wait leaves no trace but
// in timestamps, so a replay skips it.
func (s *scope) waitToRetry(ctx context.Context, p *plan, failed *CallError) {
	if s.c.replaying() {
		return
	}
	attempt := int(failed.Failed.Attempt)
	backoff := p.Backoff
	if backoff == nil {
		backoff = func(attempt int) time.Duration { return DefaultBackoff(attempt, rand.Uint64()) }
	}
	wait := backoff(attempt)
	s.c.logger.LogAttrs(ctx, slog.LevelWarn, "tool call will be retried",
		slog.String("tool", p.Name), slog.String("call_id", p.CallID), slog.Int("attempt", attempt),
		slog.Duration("wait", wait), slog.String("error", failed.Error()))
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
