package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/runtime/step"
	"github.com/starling-host/starling/runtime/tool"
)

// AsTool returns an agent as a tool of another agent: its input is {"goal": "..."}, its
// result the answer.
//
// Each call is a separate run in the agent's log, with the session and the variables of the
// outer run, and one effect of the outer run. So each of the two runs replays from its own
// log without the other.
func AsTool(a *Agent, name, description string) tool.Tool {
	return tool.WithSource(subagent{a, name, description}, SourceAgent+name)
}

// SourceAgent begins the recorded source of agents that are tools, see
// [tool.Sourced].
const SourceAgent = "agent:"

type subagent struct {
	agent             *Agent
	name, description string
}

// Name implements [tool.Tool].
func (s subagent) Name() string { return s.name }

// Description implements [tool.Tool].
func (s subagent) Description() string { return s.description }

// subagentSchema is the schema of every agent's input.
const subagentSchema = `{"type":"object","properties":{"goal":{"type":"string","description":"What is to be done, with everything that one has to know for it"}},"required":["goal"],"additionalProperties":false}`

// Schema implements [tool.Tool].
func (s subagent) Schema() json.RawMessage { return json.RawMessage(subagentSchema) }

// innerRun is the outer run's record of the inner one.
type innerRun struct {
	RunID  string `cbor:"run_id"`
	Answer string `cbor:"answer"`
	Error  string `cbor:"error,omitempty"` // why it has no answer
}

// Execute implements [tool.Tool].
func (s subagent) Execute(ctx context.Context, input json.RawMessage) (json.RawMessage, error) {
	var in struct {
		Goal *string `json:"goal"`
	}
	if err := json.Unmarshal(input, &in); err != nil || in.Goal == nil {
		return nil, tool.ToolDiscard(errors.New(`the input must be {"goal": "..."}`))
	}
	effect := step.Effect{Name: SourceAgent + s.name, Request: []byte(*in.Goal)}
	inner, err := step.Do(ctx, effect, func(ctx context.Context, _ string) (innerRun, error) { return s.run(ctx, *in.Goal) })
	switch {
	case err != nil:
		return nil, err
	case inner.Error != "":
		return nil, fmt.Errorf("the run %s has no answer: %s", inner.RunID, inner.Error)
	}
	return json.Marshal(inner.Answer)
}

// run makes the inner run. A run that ends without an answer is a value like any other; a
// run that was cancelled or stays open is an error.
func (s subagent) run(ctx context.Context, goal string) (innerRun, error) {
	r, err := s.agent.Run(ctx, goal)
	switch {
	case r == nil || r.TerminalKind == event.KindRunCancelled:
		return innerRun{}, err
	case err != nil:
		return innerRun{RunID: r.RunID, Error: r.Error}, nil
	}
	return innerRun{RunID: r.RunID, Answer: r.FinalText}, nil
}
