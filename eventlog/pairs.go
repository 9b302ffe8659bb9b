package eventlog

import (
	"fmt"

	"github.com/starling-host/starling/eventlog/event"
)

// pairs tracks the open parts of a run: at most one turn, and attempts of calls
// (D6, D7, in strict mode S4, S5, S7).
type pairs struct {
	turn     string
	turnOpen bool
	open     map[attempt]struct{}
	calls    map[string]callState // strict only: all calls of the run so far
}

type attempt struct {
	call string
	n    uint32
}

type callState struct {
	last  uint32 // the last attempt that was scheduled
	open  bool   // it has no outcome yet
	files bool   // it was given files
}

// callRef is the part of the payloads about a call that names it.
type callRef struct {
	CallID   string `cbor:"call_id"`
	Attempt  uint32 `cbor:"attempt"`
	ParentID string `cbor:"parent_id"`
}

// refOf returns the call that an event names. The payload is nil if it is not decoded yet.
func refOf(e event.Event, payload any, invariant string) (c callRef, err error) {
	switch p := payload.(type) {
	case event.ToolCallScheduled:
		return callRef{p.CallID, p.Attempt, p.ParentID}, nil
	case event.ToolCallCompleted:
		return callRef{CallID: p.CallID, Attempt: p.Attempt}, nil
	case event.ToolCallFailed:
		return callRef{CallID: p.CallID, Attempt: p.Attempt}, nil
	case event.SideEffectRecorded:
		return callRef{CallID: p.CallID}, nil
	}
	return c, decodePart(e, invariant, &c)
}

func (p *pairs) add(e event.Event, payload any) error {
	switch e.Kind {
	case event.KindRunStarted:
		if started, err := e.AsRunStarted(); p.calls != nil && err == nil && started.Workspace != nil {
			if err := started.Workspace.Check(); err != nil {
				return corrupt(e, "S7", "%v", err)
			}
		}
	case event.KindTurnStarted, event.KindAssistantMessageCompleted, event.KindBudgetExceeded:
		return p.turnEvent(e)
	case event.KindToolCallScheduled, event.KindToolCallCompleted, event.KindToolCallFailed:
		return p.callEvent(e, payload)
	case event.KindSideEffectRecorded:
		if p.calls == nil { // not strict
			return nil
		}
		c, err := refOf(e, payload, "S5")
		if err == nil && c.CallID != "" && !p.calls[c.CallID].open {
			err = corrupt(e, "S5", "the effect belongs to call %q, which is not open", c.CallID)
		}
		return err
	case event.KindRunResumed: // a dead process left the turn and the calls open
		p.turnOpen = false
		for a := range p.open {
			if p.calls != nil {
				p.calls[a.call] = callState{last: a.n}
			}
			delete(p.open, a)
		}
	case event.KindRunCompleted, event.KindRunFailed, event.KindRunCancelled:
		if p.turnOpen && e.Kind == event.KindRunCompleted {
			return corrupt(e, "D6", "turn %q is still open", p.turn)
		}
		for a := range p.open {
			return corrupt(e, "D7", "attempt %d of call %q has no outcome", a.n, a.call)
		}
	}
	return nil
}

// turnEvent opens or closes a turn. A budget that trips inside of the open turn closes it. A
// trip between turns, of the wall clock for one, names none.
func (p *pairs) turnEvent(e event.Event) error {
	var t struct {
		TurnID string `cbor:"turn_id"`
	}
	if err := decodePart(e, "D6", &t); err != nil {
		return err
	}
	isOpen := p.turnOpen && t.TurnID == p.turn
	switch {
	case e.Kind == event.KindTurnStarted && p.turnOpen:
		return corrupt(e, "D6", "turn %q begins while turn %q is open", t.TurnID, p.turn)
	case e.Kind == event.KindTurnStarted:
		p.turn, p.turnOpen = t.TurnID, true
	case isOpen:
		p.turnOpen = false
	case e.Kind == event.KindAssistantMessageCompleted:
		return corrupt(e, "D6", "turn %q is answered but not open", t.TurnID)
	}
	return nil
}

// callEvent opens or closes an attempt of a call.
func (p *pairs) callEvent(e event.Event, payload any) error {
	c, err := refOf(e, payload, "D7")
	if err != nil {
		return err
	}
	key, begins := attempt{c.CallID, c.Attempt}, e.Kind == event.KindToolCallScheduled
	_, isOpen := p.open[key]
	switch last := p.calls[c.CallID]; {
	case begins && isOpen:
		return corrupt(e, "D7", "attempt %d of call %q is scheduled twice", c.Attempt, c.CallID)
	case !begins && !isOpen:
		return corrupt(e, "D7", "attempt %d of call %q has an outcome but is not open", c.Attempt, c.CallID)
	case !begins || p.calls == nil:
	case last.open:
		return corrupt(e, "S4", "attempt %d of call %q begins while attempt %d is open", c.Attempt, c.CallID, last.last)
	case c.Attempt != last.last+1:
		return corrupt(e, "S4", "attempt %d of call %q follows attempt %d", c.Attempt, c.CallID, last.last)
	case c.ParentID != "" && !p.calls[c.ParentID].open:
		return corrupt(e, "S5", "parent call %q is not open", c.ParentID)
	}
	if begins {
		p.open[key] = struct{}{}
	} else {
		delete(p.open, key)
	}
	if p.calls != nil {
		files, err := checkFiles(payload, p.calls[c.CallID].files)
		if err != nil {
			return corrupt(e, "S7", "call %q: %v", c.CallID, err)
		}
		p.calls[c.CallID] = callState{last: c.Attempt, open: begins, files: files}
	}
	return nil
}

// checkFiles checks the files that an event of a call names, and returns whether the attempt was given
// some.
func checkFiles(payload any, given bool) (bool, error) {
	var left []byte
	want := 0
	switch p := payload.(type) {
	case event.ToolCallScheduled:
		if p.Workspace == nil {
			return false, nil
		}
		return true, p.Workspace.Check()
	case event.ToolCallCompleted:
		if left = p.Workspace; given {
			want = event.HashSize
		}
	case event.ToolCallFailed:
		left = p.Workspace
	}
	if len(left) != want {
		return given, fmt.Errorf("the root of the files that it left has %d bytes, not %d", len(left), want)
	}
	return given, nil
}

// hiddenPairs tracks the open parts of a run by its visible kinds alone. It refuses
// a subset of the runs that pairs refuses.
type hiddenPairs struct {
	turn    bool // a turn is open
	tripped bool // the budget tripped since it began, so that it may be closed
	calls   uint64
}

func (p *hiddenPairs) add(e event.Event) error {
	switch e.Kind {
	case event.KindTurnStarted:
		if p.turn && !p.tripped {
			return corrupt(e, "D6", "a turn begins while another is open")
		}
		p.turn, p.tripped = true, false
	case event.KindAssistantMessageCompleted:
		if !p.turn {
			return corrupt(e, "D6", "a turn is answered but none is open")
		}
		p.turn = false
	case event.KindBudgetExceeded:
		p.tripped = true
	case event.KindToolCallScheduled:
		p.calls++
	case event.KindToolCallCompleted, event.KindToolCallFailed:
		if p.calls == 0 {
			return corrupt(e, "D7", "an attempt of a call has an outcome but none is open")
		}
		p.calls--
	case event.KindRunResumed:
		*p = hiddenPairs{}
	case event.KindRunCompleted, event.KindRunFailed, event.KindRunCancelled:
		if p.turn && !p.tripped && e.Kind == event.KindRunCompleted {
			return corrupt(e, "D6", "a turn is still open")
		}
		if p.calls > 0 {
			return corrupt(e, "D7", "%d attempts of calls have no outcome", p.calls)
		}
	}
	return nil
}
