package eventlog

import (
	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/eventlog/event"
)

// pairs follows what is open in a run: at most one turn, and attempts of calls
// (D6, D7, in strict mode S4, S5).
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
	last uint32 // the last attempt that was scheduled
	open bool   // it has no outcome yet
}

func newPairs(strict bool) pairs {
	p := pairs{open: make(map[attempt]struct{})}
	if strict {
		p.calls = make(map[string]callState)
	}
	return p
}

// callRef is the part of the payloads about a call that names it.
type callRef struct {
	CallID   string `cbor:"call_id"`
	Attempt  uint32 `cbor:"attempt"`
	ParentID string `cbor:"parent_id"`
}

// turnRef is the part of the payloads about a turn that names it.
type turnRef struct {
	TurnID string `cbor:"turn_id"`
}

func (p *pairs) add(e event.Event) error {
	switch e.Kind {
	case event.KindTurnStarted:
		return p.openTurn(e)
	case event.KindAssistantMessageCompleted:
		return p.closeTurn(e)
	case event.KindBudgetExceeded:
		return p.tripTurn(e)
	case event.KindToolCallScheduled:
		return p.openCall(e)
	case event.KindToolCallCompleted, event.KindToolCallFailed:
		return p.closeCall(e)
	case event.KindSideEffectRecorded:
		return p.effect(e)
	case event.KindRunResumed:
		p.reset()
	case event.KindRunCompleted, event.KindRunFailed, event.KindRunCancelled:
		return p.end(e)
	}
	return nil
}

func (p *pairs) openTurn(e event.Event) error {
	var t turnRef
	if err := decodePart(e, "D6", &t); err != nil {
		return err
	}
	if p.turnOpen {
		return corrupt(e, "D6", "turn %q begins while turn %q is open", t.TurnID, p.turn)
	}
	p.turn, p.turnOpen = t.TurnID, true
	return nil
}

func (p *pairs) closeTurn(e event.Event) error {
	var t turnRef
	if err := decodePart(e, "D6", &t); err != nil {
		return err
	}
	if !p.turnOpen || t.TurnID != p.turn {
		return corrupt(e, "D6", "turn %q is answered but not open", t.TurnID)
	}
	p.turnOpen = false
	return nil
}

// tripTurn closes the open turn when the budget tripped inside of it. A trip
// between turns, of the wall clock for one, names none.
func (p *pairs) tripTurn(e event.Event) error {
	var t turnRef
	if err := decodePart(e, "D6", &t); err != nil {
		return err
	}
	if p.turnOpen && t.TurnID == p.turn {
		p.turnOpen = false
	}
	return nil
}

func (p *pairs) openCall(e event.Event) error {
	var c callRef
	if err := decodePart(e, "D7", &c); err != nil {
		return err
	}
	key := attempt{c.CallID, c.Attempt}
	if _, dup := p.open[key]; dup {
		return corrupt(e, "D7", "attempt %d of call %q is scheduled twice", c.Attempt, c.CallID)
	}
	p.open[key] = struct{}{}
	if p.calls == nil {
		return nil
	}
	return p.strictOpen(e, c)
}

func (p *pairs) strictOpen(e event.Event, c callRef) error {
	s := p.calls[c.CallID]
	switch {
	case s.open:
		return corrupt(e, "S4", "attempt %d of call %q begins while attempt %d is open", c.Attempt, c.CallID, s.last)
	case c.Attempt != s.last+1:
		return corrupt(e, "S4", "attempt %d of call %q follows attempt %d", c.Attempt, c.CallID, s.last)
	case c.ParentID != "" && !p.calls[c.ParentID].open:
		return corrupt(e, "S5", "parent call %q is not open", c.ParentID)
	}
	p.calls[c.CallID] = callState{last: c.Attempt, open: true}
	return nil
}

func (p *pairs) closeCall(e event.Event) error {
	var c callRef
	if err := decodePart(e, "D7", &c); err != nil {
		return err
	}
	key := attempt{c.CallID, c.Attempt}
	if _, ok := p.open[key]; !ok {
		return corrupt(e, "D7", "attempt %d of call %q has an outcome but is not open", c.Attempt, c.CallID)
	}
	delete(p.open, key)
	if p.calls != nil {
		p.calls[c.CallID] = callState{last: c.Attempt}
	}
	return nil
}

func (p *pairs) effect(e event.Event) error {
	if p.calls == nil {
		return nil
	}
	var c callRef
	if err := decodePart(e, "S5", &c); err != nil {
		return err
	}
	if c.CallID != "" && !p.calls[c.CallID].open {
		return corrupt(e, "S5", "the effect belongs to call %q, which is not open", c.CallID)
	}
	return nil
}

// reset forgets what a dead process left open.
func (p *pairs) reset() {
	p.turnOpen = false
	for a := range p.open {
		if p.calls != nil {
			p.calls[a.call] = callState{last: a.n}
		}
		delete(p.open, a)
	}
}

func (p *pairs) end(e event.Event) error {
	if p.turnOpen && e.Kind == event.KindRunCompleted {
		return corrupt(e, "D6", "turn %q is still open", p.turn)
	}
	for a := range p.open {
		return corrupt(e, "D7", "attempt %d of call %q has no outcome", a.n, a.call)
	}
	return nil
}

// decodePart decodes the fields of a payload that *part names.
func decodePart(e event.Event, invariant string, part any) error {
	if err := canon.Unmarshal(e.Payload, part); err != nil {
		return corrupt(e, invariant, "the payload does not decode: %v", err)
	}
	return nil
}
