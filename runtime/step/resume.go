package step

import (
	"bytes"
	"context"
	"fmt"
	"time"

	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/runtime/internal/budget"
)

// continueFrom positions the Context after the earlier events of the run.
func (c *Context) continueFrom(earlier []event.Event) error {
	var err error
	if c.meter, err = budget.Resume(c.cfg.Budget, earlier); err != nil {
		return err
	}
	if !c.replaying() {
		c.began = c.clock()
		c.earlierTime = worked(earlier)
		for _, ev := range earlier {
			hash := ev.Hash()
			c.seq, c.prevHash = ev.Seq, hash[:]
			c.leaves.Add(hash)
		}
	}
	keys, open := map[string]string{}, map[string]*openCall{}
	c.nested = map[string]*nestedCall{}
	for i, ev := range earlier {
		if ev.RunID != c.cfg.RunID || ev.Seq != uint64(i)+1 {
			return fmt.Errorf("event %d is seq %d of run %q", i, ev.Seq, ev.RunID)
		}
		payload, err := event.OfCall(ev)
		if err == nil {
			err = c.takeNested(payload, keys)
		}
		if err != nil {
			return err
		}
		c.totals.Events++
		if ev.Kind == event.KindTurnStarted {
			c.totals.Turns++
		}
		switch p := payload.(type) { // the meter of the budget has the consumption already
		case event.ToolCallScheduled:
			c.callIDs[p.CallID] = struct{}{}
			if p.Workspace != nil && p.ParentID == "" {
				c.files = p.Workspace
			}
			if p.Attempt <= 1 {
				c.totals.ToolCalls++
			}
			open[p.CallID] = &openCall{key: keyOf(p.CallID, p.IdempKey)}
		case event.ToolCallCompleted:
			c.totals.addMeter(p.Meter)
			c.leave(p.Workspace)
			settle(open, p.CallID)
		case event.ToolCallFailed:
			c.totals.addMeter(p.Meter)
			if p.Final {
				settle(open, p.CallID)
			}
		case event.SideEffectRecorded:
			c.totals.addEffect(&p)
			// The policy is asked again, because it may have changed.
			if call := open[p.CallID]; call != nil && p.Name != event.EffectIntent && p.Name != event.EffectPolicy {
				call.effects = append(call.effects, p)
			}
		}
	}
	c.carried = carried{}
	for _, call := range open {
		// Several processes may have tried the call, one after the other. Each began with the
		// record of the one before, so the longest record is the last.
		if len(call.effects) > len(c.carried[call.key]) {
			c.carried[call.key] = call.effects
		}
	}
	return nil
}

// worked returns the time that processes have worked on a run: for each process, from its first
// event to its last.
func worked(events []event.Event) time.Duration {
	var sum, from int64
	for i, ev := range events {
		if i == 0 || ev.Kind == event.KindRunResumed {
			from = ev.Timestamp
		} else {
			sum += max(ev.Timestamp-from, 0)
			from = ev.Timestamp
		}
	}
	return time.Duration(sum)
}

// first returns the first event of a run that has one, or nil.
func (c *Context) first() *event.Event {
	switch {
	case len(c.cfg.Earlier) > 0:
		return &c.cfg.Earlier[0]
	case c.replaying() && len(c.cfg.Recorded) > 0:
		return &c.cfg.Recorded[0]
	}
	return nil
}

// peek returns the next recorded event of a call or of the run, or nil.
func (c *Context) peek(call string) *event.Event {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.matcher.peek(call)
}

// carried has the recorded effects of the last attempt of each call without an outcome, in order,
// by the id in its idempotency keys. A call that replaces such a call takes its first results from
// them, so that these effects are not repeated.
type carried map[string][]event.SideEffectRecorded

// openCall is a call in the earlier events without an outcome.
type openCall struct {
	key     string // the id in its idempotency keys
	effects []event.SideEffectRecorded
}

// settle removes a call that has its outcome, and the calls that it replaced.
func settle(open map[string]*openCall, callID string) {
	done := open[callID]
	if done == nil {
		return
	}
	for id, call := range open {
		if call.key == done.key {
			delete(open, id)
		}
	}
}

// Answer answers an effect in place of the world, see [WithAnswers]. The effect took some time.
type Answer func(name string, request []byte) (value canon.Raw, took time.Duration, err error)

type answerKey struct{}

// WithAnswers returns a context for a live run whose effects are not performed: answer is called
// with the name and the request of each, and returns the value to record. Its error is final: the
// run ends there without an outcome, and [Context.Err] returns the error. Calls of answer follow the
// calls of the tool. A call of another tool is made, and then answer returns only the time that it
// took. WithAnswers has no influence on a replay.
func WithAnswers(ctx context.Context, answer Answer) context.Context {
	return context.WithValue(ctx, answerKey{}, answer)
}

// recordedEffect returns an effect that is not to be performed: the answer of [WithAnswers], or the
// next recorded effect of the call that the attempt replaces, if the attempt has reached the same
// effect. After the first difference, and from an interrupted effect on, the attempt uses no more
// records.
func (a *Attempt) recordedEffect(ctx context.Context, name string, request []byte) (event.SideEffectRecorded, bool, error) {
	if answer, ok := ctx.Value(answerKey{}).(Answer); ok && !a.c.replaying() {
		value, took, err := answer(name, request)
		if err != nil {
			err = a.c.stop(err)
		}
		return event.SideEffectRecorded{Value: value, DurationUs: took.Microseconds()}, true, err
	}
	a.c.mu.Lock()
	defer a.c.mu.Unlock()
	rest := a.carried
	if len(rest) == 0 || a.c.replaying() {
		return event.SideEffectRecorded{}, false, nil
	}
	next := rest[0]
	same := next.Name == name && bytes.Equal(next.Request, request)
	if !same || next.Error != nil && isInterruption(next.Error.Type) {
		a.stray()
		return event.SideEffectRecorded{}, false, nil
	}
	a.carried = rest[1:]
	return next, true, nil
}

// stray marks the attempt as different from the call that it replaces: it uses no more records. The
// caller holds mu.
func (a *Attempt) stray() { a.carried, a.strayed = nil, true }
