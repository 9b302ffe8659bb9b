package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/runtime/observe"
	"github.com/starling-host/starling/runtime/step"
	"github.com/starling-host/starling/runtime/tool"
)

// DirectTurn is the turn id of the call of a direct run.
const DirectTurn = "direct"

// Direct runs one call of one tool. Log and Tool are required. It is safe for
// concurrent use.
type Direct struct {
	// Log receives the events of a live run.
	Log eventlog.EventLog

	// Tool is the tool to call.
	Tool tool.Tool

	// Input is the parsed input of a run. If set, pass nil to the methods.
	Input *canon.Doc

	// Workspace are the files that the call is given, of which the log has the contents. Nil for none.
	Workspace *event.Workspace

	// Others are tools that Tool may call. Nil for none.
	Others []tool.Tool

	// AppVersion is the version of the program around this library. It is recorded for
	// information, and empty by default.
	AppVersion string

	// Logger receives messages about runs, see [step.Config]. Nil discards them.
	Logger *slog.Logger

	// ClockFn reads the wall clock; nil means time.Now. It must be safe for
	// concurrent use.
	ClockFn func() time.Time

	// Commit is as in [step.Config].
	Commit func(first, scheduled event.Event) ([]byte, error)

	// Metrics watch live runs. Nil for none.
	Metrics *observe.Metrics

	// Tracer makes the spans of live runs. Nil makes none.
	Tracer *observe.Tracer
}

// agent returns the agent that drives the run. Its only use of a tool is the requested call
// of the first tool.
func (d Direct) agent(input json.RawMessage) *Agent {
	return &Agent{
		direct: true, input: input, doc: d.Input, Workspace: d.Workspace, Tools: slices.Concat([]tool.Tool{d.Tool}, d.Others), Log: d.Log, Metrics: d.Metrics, Tracer: d.Tracer,
		Config: Config{AppVersion: d.AppVersion, Commit: d.Commit, Logger: d.Logger, ClockFn: d.ClockFn, SkipSchemaCheck: true},
	}
}

// Run makes one run under a fresh id. See [Direct.RunWithID].
func (d Direct) Run(ctx context.Context, input json.RawMessage) (*Result, error) {
	return d.RunWithID(ctx, event.NewID(), input)
}

// RunWithID makes one run. When it returns a Result, all events of the run are durable. The
// Result describes the end of the run, even if ctx ended it; an error means that the host
// failed. Nothing is recorded if the input is not JSON or too large (see
// [step.ParseInput]), or the tool's module is not in the log ([ErrModuleNotStored]). If the
// log fails, the run stays open.
func (d Direct) RunWithID(ctx context.Context, runID string, input json.RawMessage) (*Result, error) {
	return d.agent(input).run(ctx, runID, "", nil)
}

// Opening returns the first event of a run that another process will make with
// [Direct.Continue]: once it is in the log, the run exists. The event does not contain the
// input, which belongs to the call; Opening still checks it.
func (d Direct) Opening(ctx context.Context, runID string, input json.RawMessage) (event.Event, error) {
	return d.agent(input).Opening(ctx, runID, "")
}

// Continue makes a run that already exists. If it was only opened, Continue leaves no
// trace. If its process died, RunResumed marks the seam, and a call without an outcome is
// repeated: recorded effects are not repeated, and others keep their idempotency keys. The
// input is not used if the call, and with it its input, was recorded.
//
// Its results are those of [Direct.RunWithID]. Further errors: [ErrRunNotFound],
// [ErrRunAlreadyTerminal], [ErrSchemaVersionMismatch], [ErrAgentChanged] if the run was
// begun with another tool, and [ErrRunInUse].
func (d Direct) Continue(ctx context.Context, runID string, input json.RawMessage) (*Result, error) {
	return d.agent(input).Continue(ctx, runID)
}

// Replay makes the run again with the recording in place of the world, see
// [Agent.Replay]. The input is the recorded one.
func (d Direct) Replay(ctx context.Context, recorded []event.Event, o ReplayOptions) (*Result, error) {
	return d.agent(nil).Replay(ctx, recorded, o)
}

// parsedInput returns the parsed input of a direct run.
func parsedInput(input json.RawMessage, doc *canon.Doc) (_ *canon.Doc, err error) {
	if doc, err = step.ParseInput(input, doc); err != nil {
		return nil, fmt.Errorf("agent: %w", err)
	}
	return doc, nil
}

// recordedInput returns the arguments of the first call, or null if the
// recording ends before it.
func recordedInput(recorded []event.Event) (*canon.Doc, error) {
	for _, ev := range recorded {
		if ev.Kind == event.KindToolCallScheduled {
			call, err := ev.AsToolCallScheduled()
			if err != nil {
				return nil, err
			}
			return canon.DocOf(call.Args)
		}
	}
	return canon.Parse([]byte("null"))
}

// ErrModuleNotStored is returned for a run with a module that its log does not have: the
// run could not be replayed.
var ErrModuleNotStored = errors.New("starling: the module of a tool is not in the log; store it with PutModule before the run")

// modulesStored returns [ErrModuleNotStored] unless the log has the modules of the tools.
// It accepts a log that does not store modules.
func modulesStored(ctx context.Context, log eventlog.EventLog, tools []event.ToolSchemaRef) error {
	store, ok := log.(eventlog.ModuleStore)
	if !ok {
		return nil
	}
	for _, t := range tools {
		if t.Sandbox == nil || len(t.Sandbox.Module) != len(canon.Hash{}) {
			continue
		}
		digest := canon.Hash(t.Sandbox.Module)
		stored, err := store.HasModule(ctx, digest)
		if err != nil {
			return fmt.Errorf("agent: tool %q: %w", t.Name, err)
		}
		if !stored {
			return fmt.Errorf("%w: %v of the tool %q", ErrModuleNotStored, digest, t.Name)
		}
	}
	return nil
}

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
