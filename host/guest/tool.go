package guest

import (
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

// CheckInput checks a new input: the error is a [*tool.SchemaError] if it does not match the
// schema, or takes too long to check, and otherwise an error of [CheckSize].
func (t *Tool) CheckInput(input *canon.Doc) error {
	if t.input != nil {
		if err := input.Fits(t.input, checkNew(t.input)); err != nil {
			return err
		}
	}
	return CheckSize(input, t.module.sandbox.Limits().InputBytes)
}

// CheckSize returns an [*InputError] if an input exceeds the limits of a call, or an error of
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

// Error has both numbers.
func (e *InputError) Error() string {
	return fmt.Sprintf("the input has %d bytes, and the tool is given %d at most", e.Bytes, e.Most)
}

// Advice implements [hint.Hinted].
func (e *InputError) Advice() string {
	return "pass a shorter input, or raise resources.limits.input of the policy"
}

// Execute runs the tool once. The context must come from step.CallTool. The error is a
// *[Error] if the guest reported it, and otherwise matches one of the classes of package
// tool.
func (t *Tool) Execute(ctx context.Context, input json.RawMessage) (json.RawMessage, error) {
	info, ok := step.CallInfo(ctx)
	if !ok {
		panic("guest: Execute outside of step.CallTool")
	}
	doc, err := step.Input(ctx, input)
	if err == nil {
		err = check(t.input, doc, info)
	}
	if err != nil {
		return nil, tool.ToolDiscard(fmt.Errorf("input does not match the schema: %w", err))
	}
	if large, ok := errors.AsType[*InputError](CheckSize(doc, t.module.sandbox.Limits().InputBytes)); ok { // in the words of the logs
		return nil, fmt.Errorf("%w: input of %d bytes, more than %d", tool.ErrLimit, large.Bytes, large.Most)
	}
	output, err := t.execute(ctx, doc, info)
	if err != nil {
		return nil, err
	}
	if err := check(t.output, output, info); err != nil {
		return nil, fmt.Errorf("output does not match the schema that the tool declares: %w", err)
	}
	step.SetOutput(ctx, output)
	return output.JSON, nil
}

// check checks a document against a schema, which may be nil. A check that would take long
// is an interruption: as with a deadline, a replay takes it from the record, so that
// documents accepted by earlier hosts still replay.
func check(s *tool.Schema, doc *canon.Doc, info step.Call) error {
	switch {
	case s == nil:
		return nil
	case info.Replay:
		return doc.Fits(s, s.Check)
	}
	err := doc.Fits(s, checkNew(s))
	if errors.Is(err, tool.ErrCost) {
		return fmt.Errorf("%w: it %w", tool.ErrTimeout, err)
	}
	return err
}

// checkNew returns [tool.Schema.CheckNew] with the budget of one document. A check that has begun
// ends, even if the call is cancelled: whether a document matches follows from it alone.
func checkNew(s *tool.Schema) func([]byte) error {
	b := work.New(context.Background(), tool.NewDocument)
	return func(doc []byte) error { return s.CheckNew(b, doc) }
}

type beginKey struct{}

// WithBegin returns a context in which begin is called right before the guest of a
// sandboxed tool runs, when the call has everything it waits for, such as a process. If
// begin fails, nothing runs, and the call has no outcome.
func WithBegin(ctx context.Context, begin func(context.Context) error) context.Context {
	return context.WithValue(ctx, beginKey{}, begin)
}

// beginIn returns the function of WithBegin, or nil.
func beginIn(ctx context.Context) func() error {
	begin, ok := ctx.Value(beginKey{}).(func(context.Context) error)
	if !ok {
		return nil
	}
	return func() error {
		if err := begin(ctx); err != nil {
			return fmt.Errorf("%w: the call could not begin: %w", tool.ErrHost, err)
		}
		return nil
	}
}

func (t *Tool) execute(ctx context.Context, input *canon.Doc, info step.Call) (*canon.Doc, error) {
	call := sandbox.Call{
		Tool:      t.Name(),
		Input:     input.JSON,
		NoTimeout: info.Replay,
		Rules:     info.Rules,
		Begin:     beginIn(ctx),
		Probe: func(meter func() sandbox.Meter) {
			step.SetProbe(ctx, func() event.Meter { return event.Meter(meter()) })
		},
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
	if stop, ok := step.RecordedStop(ctx); ok {
		call.StopAt, call.StopErr = stop.Fuel, stopError(stop)
	}
	result, err := t.module.sandbox.Call(ctx, call, t.imports)
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
