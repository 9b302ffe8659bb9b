package step

import (
	"context"
	"errors"
	"slices"

	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/runtime/tool"
)

// judge asks the guards of a tool whether an attempt may be made, and records what
// they say before anything of it happens. A replay takes it from the recording,
// whether its tool has guards or not: the policy may be another one by then.
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

// ask returns what the guards say, up to the first that does not allow the call.
func (p *plan) ask(ctx context.Context) event.Verdicts {
	var all event.Verdicts
	for _, guard := range p.guards {
		said := guard(ctx, p.Name, slices.Clone(p.input))
		all = append(all, said...)
		if len(said) > 0 && !said.Allowed() {
			break
		}
	}
	return all
}

// judged reports whether the recording holds a decision of a policy next.
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
