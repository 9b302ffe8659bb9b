package step

import (
	"fmt"
	"time"

	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/runtime/budget"
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
	for i, ev := range earlier {
		if ev.RunID != c.cfg.RunID || ev.Seq != uint64(i)+1 {
			return fmt.Errorf("event %d is seq %d of run %q", i, ev.Seq, ev.RunID)
		}
		c.totals.Events++
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
