package toolcase

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/starling-host/starling"
	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/eventlog/event"
)

// recorded is one call of a recorded run.
type recorded struct {
	tool    string
	outcome *starling.Failure // nil if the call completed

	args, result canon.Raw
	fuel         uint64
	effects      []event.SideEffectRecorded
	calls        map[string]*recorded // all of the run, by their ids
}

// callsOf returns the calls of a run that have ended, in the order of their ends. A call that was
// repeated stands as its last attempt made it.
func callsOf(events []event.Event) (ended []*recorded, err error) {
	open := map[string]*recorded{}
	of := func(id string, do func(*recorded)) {
		if call := open[id]; call != nil {
			do(call)
		}
	}
	for _, ev := range events {
		switch ev.Kind {
		case event.KindToolCallScheduled:
			err = event.On(ev, func(p event.ToolCallScheduled) {
				open[p.CallID] = &recorded{tool: p.ToolName, args: p.Args, calls: open}
			})
		case event.KindSideEffectRecorded:
			err = event.On(ev, func(p event.SideEffectRecorded) {
				of(p.CallID, func(r *recorded) { r.effects = append(r.effects, p) })
			})
		case event.KindToolCallCompleted:
			err = event.On(ev, func(p event.ToolCallCompleted) {
				of(p.CallID, func(r *recorded) { r.result, r.fuel, ended = p.Result, p.Fuel, append(ended, r) })
			})
		case event.KindToolCallFailed:
			err = event.On(ev, func(p event.ToolCallFailed) {
				if p.Final {
					of(p.CallID, func(r *recorded) {
						r.outcome, r.fuel, ended = &starling.Failure{Type: p.ErrorType, Message: p.Error}, p.Fuel, append(ended, r)
					})
				}
			})
		}
		if err != nil {
			return nil, err
		}
	}
	return ended, nil
}

// newCase returns a new case of the call. The failure is the text of one that did not complete.
//
// The log has no secrets: a request has placeholders, and the responses were searched for what was
// sent. So a case has none either, unless the input or a server's data are secret.
func (r *recorded) newCase(failure string) (*Case, error) {
	input, err := canon.ToJSON(r.args)
	if err != nil {
		return nil, err
	}
	c := &Case{Input: encode(json.RawMessage(input))}
	return c, c.record(r, failure)
}

// record replaces what the case has recorded: effects, outcome and fuel.
func (c *Case) record(r *recorded, failure string) error {
	if r.outcome != nil {
		switch r.outcome.Type {
		case event.ErrorCancelled, event.ErrorTimeout, event.ErrorLost:
			return fmt.Errorf("the call was interrupted (%s), which no case can repeat", r.outcome.Type)
		}
	}
	c.Effects, c.Output, c.Error, c.Fuel = nil, nil, strings.TrimSpace(failure), around(r.fuel)
	for _, effect := range r.effects {
		e, err := newEffect(effect, r.calls)
		if err != nil {
			return err
		}
		if e != nil {
			c.Effects = append(c.Effects, *e)
		}
	}
	if r.outcome == nil && c.Error == "" { // an input that the schema refuses has neither
		output, err := canon.ToJSON(r.result)
		c.Output = output
		return err
	}
	return nil
}
