package toolcase

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/starling-host/starling"
	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/internal/display"
	"github.com/starling-host/starling/runtime/tool"
)

// failures are the types of the failures of calls that a case can repeat.
var failures = []string{event.ErrorTool, event.ErrorPanic, event.ErrorFuel, event.ErrorLimit}

// newCall returns the recorded call of another tool.
func newCall(value canon.Raw, calls map[string]*recorded) (*Effect, error) {
	var named event.NestedCall
	if err := canon.Unmarshal(value, &named); err != nil {
		return nil, err
	}
	call := calls[named.CallID]
	if call == nil {
		return nil, fmt.Errorf("the run has no call %s", named.CallID)
	}
	input, err := canon.ToJSON(call.args)
	if err != nil {
		return nil, err
	}
	e := &Effect{Call: &Nested{call.tool, json.RawMessage(input)}}
	if call.outcome == nil {
		output, err := canon.ToJSON(call.result)
		e.Output = json.RawMessage(output)
		return e, err
	}
	if !slices.Contains(failures, call.outcome.Type) {
		return nil, fmt.Errorf("the call of the tool %q was interrupted (%s), which no case can repeat", call.tool, call.outcome.Type)
	}
	e.Failure = &Failure{call.outcome.Type, call.outcome.Message}
	return e, nil
}

// others returns the tools that the case answers for.
func (a *answers) others() (all []*starling.Tool) {
	named := map[string]bool{}
	for _, e := range a.left {
		if e.Call != nil && !named[e.Call.Tool] {
			named[e.Call.Tool] = true
			all = append(all, &starling.Tool{Tool: other{a, e.Call.Tool}})
		}
	}
	return all
}

// other is a tool for which a case answers.
type other struct {
	*answers
	name string
}

func (o other) Name() string          { return o.name }
func (other) Description() string     { return "" }
func (other) Schema() json.RawMessage { return json.RawMessage("{}") }

// Execute implements [tool.Tool]. The first call that the case does not answer is the verdict, even
// if the tool handles its failure.
func (o other) Execute(_ context.Context, input json.RawMessage) (json.RawMessage, error) {
	next, made := o.take(func(e *Effect) bool { return e.Call != nil }), &Nested{o.name, input}
	var problem *Problem
	if next == nil {
		problem = &Problem{What: fmt.Sprintf("the tool calls %s, and the case records no more calls", o.name)}
	} else if diff := display.LineDifference(pretty(next.Call), pretty(made)); diff != nil {
		problem = &Problem{"the tool makes another call than the case records", diff}
	}
	if problem != nil {
		if o.wrong == nil {
			o.wrong = problem
		}
		return nil, &unanswered{*problem}
	}
	o.took, _ = next.duration() // which was checked
	if next.Failure != nil {
		return nil, failed(*next.Failure)
	}
	return next.Output, nil
}

// failed is a recorded failure of a call.
type failed Failure

func (f failed) Error() string { return f.Text }

// Unwrap returns the class of the failure.
func (f failed) Unwrap() error {
	return map[string]error{event.ErrorPanic: tool.ErrPanicked, event.ErrorFuel: tool.ErrFuel, event.ErrorLimit: tool.ErrLimit}[f.Status]
}
