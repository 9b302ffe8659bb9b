package eventlog

import (
	"github.com/starling-host/starling/eventlog/event"
)

// sealedMeaning is what meaning can check of an event whose payload is encrypted.
func (c *Checker) sealedMeaning(e event.Event, s event.Sealed) error {
	first := c.at.run.LastSeq == 0
	if c.opts.Strict {
		if err := strictEnvelope(e, first); err != nil {
			return err
		}
		if len(s.MerkleRoot) > 0 && !e.Kind.Terminal() {
			return corrupt(e, "S2", "an event that is not terminal carries a Merkle root")
		}
	}
	if first && e.Kind != event.KindRunStarted {
		return corrupt(e, "D5", "the first event is %v, not RunStarted", e.Kind)
	}
	if err := c.hidden.add(e); err != nil {
		return err
	}
	c.sealed++
	return c.checkRoot(e)
}

// mixed reports an event that is sealed in a run that is not, or the reverse:
// somebody has put it there who does not have the key, or hides what he wrote.
func (c *Checker) mixed(e event.Event, sealed bool) error {
	if sealed {
		return corrupt(e, "sealed", "the payload is encrypted; those before it are not")
	}
	return corrupt(e, "sealed", "the payload is not encrypted; those before it are")
}

// hiddenPairs follows what is open in a run of which only the kinds are visible.
// What it refuses, pairs would refuse; not the reverse.
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
		return p.end(e)
	}
	return nil
}

func (p *hiddenPairs) end(e event.Event) error {
	if p.turn && !p.tripped && e.Kind == event.KindRunCompleted {
		return corrupt(e, "D6", "a turn is still open")
	}
	if p.calls > 0 {
		return corrupt(e, "D7", "%d attempts of calls have no outcome", p.calls)
	}
	return nil
}
