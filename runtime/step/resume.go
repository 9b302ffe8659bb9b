package step

import (
	"bytes"
	"fmt"
	"time"

	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/runtime/internal/budget"
)

// continueFrom puts the Context behind the earlier events of the run.
func (c *Context) continueFrom(earlier []event.Event) error {
	var err error
	if c.meter, err = budget.Resume(c.cfg.Budget, earlier); err != nil {
		return err
	}
	if c.replaying() {
		return c.takeUp(earlier)
	}
	if c.carried, err = carry(earlier); err != nil {
		return err
	}
	c.began = c.clock()
	c.earlierTime = worked(earlier)
	for _, ev := range earlier {
		hash := ev.Hash()
		c.seq, c.prevHash = ev.Seq, hash[:]
		c.leaves.Add(hash)
	}
	return c.takeUp(earlier)
}

// takeUp counts the earlier events.
func (c *Context) takeUp(earlier []event.Event) error {
	keys := map[string]string{}
	c.nested = map[string]*nestedCall{}
	for i, ev := range earlier {
		if ev.RunID != c.cfg.RunID || ev.Seq != uint64(i)+1 {
			return fmt.Errorf("event %d is seq %d of run %q", i, ev.Seq, ev.RunID)
		}
		c.totals.Events++
		if err := c.takeNested(ev, keys); err != nil {
			return err
		}
		switch ev.Kind {
		case event.KindTurnStarted:
			c.totals.Turns++
		case event.KindToolCallScheduled:
			p, err := ev.AsToolCallScheduled()
			if err != nil {
				return err
			}
			c.callIDs[p.CallID] = struct{}{}
			if p.Attempt <= 1 {
				c.totals.ToolCalls++
			}
		case event.KindToolCallCompleted, event.KindToolCallFailed, event.KindSideEffectRecorded:
			if err := c.recount(ev); err != nil {
				return err
			}
		}
	}
	return nil
}

// recount adds what tools used to the totals; the meter of the budget has it.
func (c *Context) recount(ev event.Event) error {
	switch ev.Kind {
	case event.KindToolCallCompleted:
		p, err := ev.AsToolCallCompleted()
		c.totals.addMeter(p.Meter)
		return err
	case event.KindToolCallFailed:
		p, err := ev.AsToolCallFailed()
		c.totals.addMeter(p.Meter)
		return err
	default:
		p, err := ev.AsSideEffectRecorded()
		c.totals.addEffect(&p)
		return err
	}
}

// worked is how long processes have been at work on a run: from the first event
// of each to its last.
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

// first is the first event of a run that is recorded already, or nil.
func (c *Context) first() *event.Event {
	switch {
	case len(c.cfg.Earlier) > 0:
		return &c.cfg.Earlier[0]
	case c.replaying():
		return &c.cfg.Recorded[0]
	}
	return nil
}

// peek returns what the recording holds next for a call, or for the run, or nil.
func (c *Context) peek(call string) *event.Event {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.matcher.peek(call)
}

// freeCallID reports whether the run has had no such call.
func (c *Context) freeCallID(id string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, used := c.callIDs[id]
	return !used
}

// carried has, by the id that idempotency keys are made of, what was recorded of
// calls that have no outcome: the effects of their last attempt, in order. A call
// that is made in the place of such a one begins with these answers, so that
// what is known to have happened does not happen again.
type carried map[string][]event.SideEffectRecorded

// openCall is a call of the earlier events that has no outcome yet.
type openCall struct {
	key     string // what idempotency keys are made of
	effects []event.SideEffectRecorded
}

// carry collects what earlier events recorded of calls without an outcome.
func carry(earlier []event.Event) (carried, error) {
	open := map[string]*openCall{}
	for _, ev := range earlier {
		if err := follow(open, ev); err != nil {
			return nil, err
		}
	}
	c := carried{}
	for _, call := range open {
		// A call may have been made again by one process after the other. Each
		// began with what the one before it had, so the longest record is the last.
		if len(call.effects) > len(c[call.key]) {
			c[call.key] = call.effects
		}
	}
	return c, nil
}

// follow takes note of one earlier event.
func follow(open map[string]*openCall, ev event.Event) error {
	switch ev.Kind {
	case event.KindToolCallScheduled:
		p, err := ev.AsToolCallScheduled()
		open[p.CallID] = &openCall{key: keyOf(p.CallID, p.IdempKey)}
		return err
	case event.KindSideEffectRecorded:
		p, err := ev.AsSideEffectRecorded()
		// Whether the call may be made is asked anew, for the policy may be another.
		if call := open[p.CallID]; call != nil && p.Name != event.EffectIntent && p.Name != event.EffectPolicy {
			call.effects = append(call.effects, p)
		}
		return err
	case event.KindToolCallCompleted:
		p, err := ev.AsToolCallCompleted()
		settle(open, p.CallID)
		return err
	case event.KindToolCallFailed:
		p, err := ev.AsToolCallFailed()
		if p.Final {
			settle(open, p.CallID)
		}
		return err
	}
	return nil
}

// settle forgets a call that has its outcome, with those in whose place it was
// made.
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

// recordedEffect returns the next effect that was recorded of the call in whose place the
// attempt is made, if the attempt has arrived at the same one. From the first difference
// on, and from an interrupted effect on, the attempt is on its own.
func (s *scope) recordedEffect(name string, request []byte) (event.SideEffectRecorded, bool) {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	rest := s.attempt.carried
	if len(rest) == 0 || s.c.replaying() {
		return event.SideEffectRecorded{}, false
	}
	next := rest[0]
	same := next.Name == name && bytes.Equal(next.Request, request)
	if !same || next.Error != nil && isInterruption(next.Error.Type) {
		s.stray()
		return event.SideEffectRecorded{}, false
	}
	s.attempt.carried = rest[1:]
	return next, true
}

// stray notes that the attempt is not where the one was in whose place it is made: from
// here on it is on its own. The caller holds mu.
func (s *scope) stray() { s.attempt.carried, s.attempt.strayed = nil, true }
