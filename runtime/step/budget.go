package step

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/runtime/internal/budget"
	"github.com/starling-host/starling/runtime/provider"
)

// ErrWallClock is the cause of the end of a run's context when the run's time is spent, see
// [context.WithDeadlineCause] and [Context.TimeLeft].
var ErrWallClock = errors.New("step: the run's time is spent")

// Checkpoint is called between the steps of a run. It returns nil, or the reason why the run must
// end here: [context.Canceled] or [context.DeadlineExceeded] if the caller ended it, and
// [ErrBudgetExceeded] if its time is spent or its tools have exceeded a cap. In the latter case it
// records BudgetExceeded.
//
// A replay has neither a clock nor a caller and ends where the recording does. It computes the
// consumption of the tools and compares it.
func Checkpoint(ctx context.Context) error {
	a := attemptOf(ctx, "Checkpoint")
	if err := a.c.Err(); err != nil {
		return err
	}
	a.c.mu.Lock()
	exceeded := a.c.meter.Tools() // sums, so the order of parallel calls does not matter
	a.c.mu.Unlock()
	if exceeded != nil {
		return a.trip(ctx, exceeded, event.BudgetExceeded{})
	}
	if a.c.replaying() {
		return a.recordedEnd(ctx)
	}
	if exceeded := a.c.outOfTime(ctx); exceeded != nil {
		return a.trip(ctx, exceeded, event.BudgetExceeded{})
	}
	return ctx.Err()
}

const reasonDeadline = "the deadline passed"

// CancelReason returns the reason in RunCancelled for a run whose context ended with err.
func CancelReason(err error) string {
	if errors.Is(err, context.DeadlineExceeded) {
		return reasonDeadline
	}
	return "cancelled"
}

// recordedEnd returns the error of the interruption that ended the run, if the next recorded event
// is that end.
func (a *Attempt) recordedEnd(ctx context.Context) error {
	ev := a.c.peek("")
	if ev == nil {
		return nil
	}
	if cancelled, err := ev.AsRunCancelled(); err == nil {
		switch cancelled.Reason {
		case reasonDeadline, context.DeadlineExceeded.Error(): // the latter in logs of the Starling runtime, and older ones
			return context.DeadlineExceeded
		}
		return context.Canceled
	}
	if trip, err := ev.AsBudgetExceeded(); err == nil && trip.Limit == budget.WallClock {
		return a.recallTrip(ctx, *ev, "")
	}
	return nil
}

// outOfTime returns the trip of a run whose context ended with [ErrWallClock], or nil. A run
// without a cap on time may be part of a run with one; for the former, that is the caller's
// deadline.
func (c *Context) outOfTime(ctx context.Context) error {
	if !errors.Is(context.Cause(ctx), ErrWallClock) {
		return nil
	}
	return c.meter.Elapsed(max(c.elapsed(), c.cfg.Budget.MaxWallClock))
}

// trip records that a cap was exceeded. The argument more has the location. The returned error is
// [ErrBudgetExceeded].
func (a *Attempt) trip(ctx context.Context, err error, more event.BudgetExceeded) error {
	var e *budget.Exceeded
	if !errors.As(err, &e) {
		return err
	}
	p := e.Event()
	p.TurnID, p.PartialText, p.PartialTokens = more.TurnID, more.PartialText, more.PartialTokens
	if _, err := record(ctx, a, p, func(*event.BudgetExceeded, event.BudgetExceeded) error { return nil }); err != nil {
		return err
	}
	if m := a.c.cfg.Metrics; m != nil && !a.c.replaying() {
		m.ObserveBudgetExceeded(e.Limit)
	}
	return fmt.Errorf("%w: %w", ErrBudgetExceeded, e)
}

// recallTrip follows a recorded trip whose moment is known only from the log: in the middle of a
// response, or by the clock.
func (a *Attempt) recallTrip(ctx context.Context, ev event.Event, turnID string) error {
	recorded, err := ev.AsBudgetExceeded()
	if err != nil {
		return err
	}
	a.c.mu.Lock()
	err = a.c.meter.Recorded(recorded)
	a.c.mu.Unlock()
	var e *budget.Exceeded
	if !errors.As(err, &e) {
		return a.c.stop(unreadable(&ev, err))
	}
	return a.trip(ctx, e, event.BudgetExceeded{TurnID: turnID, PartialText: recorded.PartialText, PartialTokens: recorded.PartialTokens})
}

// cost returns the price of tokens. It is zero for an unknown model, which is logged once.
func (c *Context) cost(ctx context.Context, model string, u provider.Usage) float64 {
	if c.cfg.Prices != nil {
		usd, _ := c.cfg.Prices.Cost(model, u)
		return usd
	}
	usd, known := budget.Cost(model, u)
	if !known && c.cfg.Budget.MaxUSD > 0 && budget.Missing(model) {
		c.log(ctx, slog.LevelWarn, "model has no price: the dollar budget is not enforced", named("model", model))
	}
	return usd
}

// elapsed returns the working time of the run in all its processes.
func (c *Context) elapsed() time.Duration { return c.earlierTime + c.clock().Sub(c.began) }

// TimeLeft returns the remaining time of the run under Budget.MaxWallClock, or false without such a
// cap. The run's working time in earlier processes counts; the time between them does not.
func (c *Context) TimeLeft() (time.Duration, bool) {
	if c.cfg.Budget.MaxWallClock == 0 || c.replaying() {
		return 0, false
	}
	return c.cfg.Budget.MaxWallClock - c.elapsed(), true
}

// Spent returns the spending of the run.
func (c *Context) Spent() budget.Spent {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.meter.Spent()
}
