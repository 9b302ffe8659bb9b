package guest

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/starling-host/starling/abi"
	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/host/policy"
	"github.com/starling-host/starling/host/sandbox"
	"github.com/starling-host/starling/internal/display"
	"github.com/starling-host/starling/internal/work"
	"github.com/starling-host/starling/runtime/step"
	"github.com/starling-host/starling/runtime/tool"
)

// Tool is one tool of a loaded module. It is safe for concurrent use: every
// call has an instance of its own.
type Tool struct {
	desc   abi.ToolDescription
	input  *tool.Schema // nil for a WASI command, which takes any document
	output *tool.Schema // nil when any output will do
	module *Module

	program *program // of a WASI command with a sidecar

	imports imports
	begin   func(context.Context) error // see Begin; or nil

	contents eventlog.ModuleReader // see In; or nil
}

// Name returns the tool's name.
func (t *Tool) Name() string { return t.desc.Name }

// Description returns the tool's description, checked to be plain text.
func (t *Tool) Description() string { return t.desc.Description }

// Schema returns the JSON Schema of the input, in canonical form.
func (t *Tool) Schema() json.RawMessage { return json.RawMessage(t.desc.InputSchema) }

// OutputSchema returns the JSON Schema of the output, or nothing.
func (t *Tool) OutputSchema() json.RawMessage { return json.RawMessage(t.desc.OutputSchema) }

// Describe returns the complete description.
func (t *Tool) Describe() abi.ToolDescription { return t.desc }

// Sandbox returns everything that determines the tool's output, for RunStarted.
func (t *Tool) Sandbox() *event.Sandbox { return t.module.identity(t.imports) }

// Under returns the tool for one run, whose policies decide about its requests. The
// client's own rules, if any, must allow them too. RunStarted names these policies, but not
// those of policy.With. Under does not decide whether the tool may be called: see
// policy.Run.Guard.
func (t *Tool) Under(run *policy.Run) *Tool {
	under := *t
	under.imports.policy = run
	return &under
}

// CheckInput returns a [*tool.InputError] if the tool does not take an input. The limit counts the bytes
// of the recorded canonical document, without the ABI's wrapper.
func (t *Tool) CheckInput(input *canon.Doc) error {
	if bad := t.checkInput(input, false); bad != nil {
		return bad
	}
	return nil
}

func (t *Tool) checkInput(input *canon.Doc, replay bool) *tool.InputError {
	return tool.CheckInput(t.input, input, int(min(t.module.sandbox.Limits().InputBytes, math.MaxInt)), replay)
}

// Execute runs the tool inside a wrapper. The context must come from step.CallTool. See
// [Tool.ExecuteParsed].
func (t *Tool) Execute(ctx context.Context, input json.RawMessage) (json.RawMessage, error) {
	return step.ExecuteJSON(ctx, t, input)
}

// ExecuteParsed runs the tool once, see [step.ParsedTool]. The error is a *[Error] if the guest
// reported it, and otherwise matches one of the classes of package tool.
func (t *Tool) ExecuteParsed(ctx context.Context, a *step.Attempt, input *canon.Doc) (*canon.Doc, error) {
	info := a.Info(ctx)
	if bad := t.checkInput(input, info.Replay); bad != nil {
		return nil, bad.Outcome()
	}
	output, err := t.execute(ctx, a, input, info)
	if err != nil {
		return nil, err
	}
	err = tool.Fits(t.output, output, info.Replay)
	if errors.Is(err, tool.ErrCost) { // as with a deadline, a replay takes it from the record
		err = fmt.Errorf("%w: it %w", tool.ErrTimeout, err)
	}
	if err != nil {
		return nil, fmt.Errorf("output does not match the schema that the tool declares: %w", err)
	}
	return output, nil
}

// Begin returns the tool with a function that is called right before its guest runs, when the call
// has everything it waits for, such as a process. If begin fails, nothing runs, and the call has no
// outcome.
func (t *Tool) Begin(begin func(context.Context) error) *Tool {
	beginning := *t
	beginning.begin = begin
	return &beginning
}

func (t *Tool) execute(ctx context.Context, a *step.Attempt, input *canon.Doc, info step.Call) (*canon.Doc, error) {
	files, err := t.files(ctx, info.Workspace)
	if err != nil {
		return nil, err
	}
	var left []byte // root of the files that the call leaves, once it has
	call := sandbox.Call{
		Tool:      t.Name(),
		Input:     input.JSON,
		Files:     files,
		NoTimeout: info.Replay,
		Rules:     info.Rules,
		Probe: func(meter func() sandbox.Meter) {
			a.SetProbe(func() event.Meter {
				m := meter()
				return event.Meter{Fuel: m.Fuel, PeakMemory: m.PeakMemory, Log: m.Log, Workspace: left}
			})
		},
	}
	if t.begin != nil {
		call.Begin = func() error {
			if err := t.begin(ctx); err != nil {
				return fmt.Errorf("%w: the call could not begin: %w", tool.ErrHost, err)
			}
			return nil
		}
	}
	if t.program != nil {
		if err := t.program.receive(work.For(ctx, len(input.JSON)), &call, input, info.Variables, t.module.sandbox.Limits().InputBytes); err != nil {
			return nil, err
		}
	} else if !t.module.command() {
		doc, err := envelope(t.Name(), input.JSON, info)
		if err != nil {
			return nil, err
		}
		call.Input = doc
	}
	if stop, ok := a.RecordedStop(); ok {
		call.StopAt, call.StopErr = stop.Fuel, stopError(stop)
	}
	own := t.imports
	own.attempt, own.tool = a, info.Tool
	result, err := t.module.sandbox.Call(ctx, call, own)
	if err == nil {
		err = call.StopErr // the output took too long to look at
	}
	if err == nil && files != nil {
		left, err = t.leave(ctx, info, result)
	}
	if err != nil {
		return nil, err
	}
	if t.program != nil {
		return t.program.answer(result.Output)
	}
	if t.module.command() {
		return printed(result.Output)
	}
	return openOutput(result.Output)
}

// maxMessageBytes bounds the recorded part of a guest's error message.
const maxMessageBytes = 8 << 10

// Error is a failure reported by the guest.
type Error struct {
	Kind       abi.ErrorKind
	Message    string
	RetryAfter time.Duration // for abi.ErrorSnooze; zero otherwise
}

// Error returns the guest's message.
func (e *Error) Error() string { return e.Message }

// FailureKind returns the guest's advice to tool.KindOf.
func (e *Error) FailureKind() (abi.ErrorKind, time.Duration) { return e.Kind, e.RetryAfter }

// Is makes a transient failure match tool.ErrTransient, so that an idempotent call is
// retried.
func (e *Error) Is(target error) bool {
	return target == tool.ErrTransient && e.Kind == abi.ErrorTransient
}

// envelope makes the document for starling_execute: an [abi.Input] in the form of
// json.Marshal, which escapes HTML characters. The escapes count: guests see them and spend
// fuel on them.
func envelope(name string, input []byte, call step.Call) ([]byte, error) {
	tool, err := json.Marshal(name)
	if err != nil {
		return nil, err
	}
	context, err := json.Marshal(abi.Context{RunID: call.RunID, CallID: call.CallID, Attempt: call.Attempt, Variables: abi.JSON(call.Variables)})
	if err != nil {
		return nil, err
	}
	var doc bytes.Buffer
	doc.Grow(len(input) + len(tool) + len(context) + 64)
	fmt.Fprintf(&doc, `{"tool":%s,"input":`, tool)
	json.HTMLEscape(&doc, input) // canonical, so nothing else needs escaping
	fmt.Fprintf(&doc, `,"context":%s}`, context)
	return doc.Bytes(), nil
}

// openOutput reads the document that starling_execute returned: the output, or
// the failure that the guest reports.
func openOutput(doc []byte) (*canon.Doc, error) {
	clean, err := canon.Parse(doc)
	if err != nil {
		return nil, fmt.Errorf("guest: the tool returned no JSON document: %w", err)
	}
	members, _ := clean.Members()
	output, failure := members["output"], members["error"]
	switch {
	case len(members) == 1 && output != nil:
		return output, nil
	case len(members) == 1 && failure != nil:
		return nil, reported(failure.JSON)
	}
	return nil, errors.New(`guest: the tool returned a document that is neither {"output": ...} nor {"error": ...}`)
}

// NotJSON is the prefix of the error for a command whose output is not JSON. Do not change
// it: logs contain it, and replays compare it.
const NotJSON = "guest: the command wrote no JSON document to its standard output: "

// printed reads the standard output of a command, which has no envelope.
func printed(doc []byte) (*canon.Doc, error) {
	clean, err := canon.Parse(doc)
	if err != nil {
		return nil, fmt.Errorf(NotJSON+"%w", err)
	}
	return clean, nil
}

// reported reads the guest's own error. An unknown kind is an ordinary
// failure: the caller needs the message.
func reported(doc []byte) error {
	var e abi.Error
	if err := json.Unmarshal(doc, &e); err != nil {
		return fmt.Errorf("guest: the tool returned an error that cannot be read: %w", err)
	}
	failure := &Error{Kind: abi.ErrorTool, Message: display.Clip(e.Message, maxMessageBytes)}
	switch e.Kind {
	case abi.ErrorTransient, abi.ErrorCancel, abi.ErrorDiscard:
		failure.Kind = e.Kind
	case abi.ErrorSnooze:
		failure.Kind = e.Kind
		failure.RetryAfter = time.Duration(min(max(e.RetryAfterMs, 0), int64(24*time.Hour/time.Millisecond))) * time.Millisecond
	}
	failure.Message = cmp.Or(failure.Message, "the tool failed and gave no reason")
	return failure
}
