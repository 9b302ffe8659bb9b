package guest

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/starling-host/starling/abi"
	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/host/policy"
	"github.com/starling-host/starling/host/sandbox"
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

// CheckInput checks the input of a new call: the error is a [*tool.SchemaError] if it does not match
// the schema, one that wraps [tool.ErrCost] if it takes too long to check, and otherwise an error of
// [CheckSize].
func (t *Tool) CheckInput(input *canon.Doc) error {
	return cmp.Or(fits(t.input, input, false), CheckSize(input, t.module.sandbox.Limits().InputBytes))
}

// CheckSize returns an [*InputError] if an input exceeds the limit of a call, or an error of
// [step.CheckValue]. It counts the bytes of the recorded canonical document, without the ABI's
// wrapper.
func CheckSize(input *canon.Doc, most uint64) error {
	if err := step.CheckValue(input); err != nil {
		return err
	}
	if uint64(len(input.JSON)) > most {
		return &InputError{Bytes: len(input.JSON), Most: most}
	}
	return nil
}

// InputError is returned for an input that is too large.
type InputError struct {
	Bytes int
	Most  uint64
}

// Error has both numbers. Logs have this text, too.
func (e *InputError) Error() string {
	return fmt.Sprintf("input of %d bytes, more than %d", e.Bytes, e.Most)
}

// Advice implements [hint.Hinted].
func (e *InputError) Advice() string {
	return "pass a shorter input, or raise resources.limits.input of the policy"
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
	if err := fits(t.input, input, info.Replay); err != nil {
		return nil, tool.ToolDiscard(fmt.Errorf("input does not match the schema: %w", inTime(err)))
	}
	if err := CheckSize(input, t.module.sandbox.Limits().InputBytes); err != nil {
		return nil, fmt.Errorf("%w: %w", tool.ErrLimit, err)
	}
	output, err := t.execute(ctx, a, input, info)
	if err != nil {
		return nil, err
	}
	if err := fits(t.output, output, info.Replay); err != nil {
		return nil, fmt.Errorf("output does not match the schema that the tool declares: %w", inTime(err))
	}
	return output, nil
}

// fits checks a document against a schema, which may be nil. A replay has no budget, so that documents
// accepted by earlier hosts still replay. Otherwise the budget is that of one document, and a check that
// has begun ends, even if the call is cancelled: whether a document matches follows from it alone.
func fits(s *tool.Schema, doc *canon.Doc, replay bool) error {
	switch {
	case s == nil:
		return nil
	case replay:
		return doc.Fits(s, s.Check)
	}
	b := work.New(context.Background(), tool.NewDocument)
	return doc.Fits(s, func(doc []byte) error { return s.CheckNew(b, doc) })
}

// inTime makes a check that took too long an interruption: as with a deadline, a replay takes it from
// the record.
func inTime(err error) error {
	if errors.Is(err, tool.ErrCost) {
		return fmt.Errorf("%w: it %w", tool.ErrTimeout, err)
	}
	return err
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
	call := sandbox.Call{
		Tool:      t.Name(),
		Input:     input.JSON,
		NoTimeout: info.Replay,
		Rules:     info.Rules,
		Probe: func(meter func() sandbox.Meter) {
			a.SetProbe(func() event.Meter { return event.Meter(meter()) })
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
