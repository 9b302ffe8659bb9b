package tool

import (
	"context"
	"encoding/json"
	"fmt"
)

// TextTool is a tool that describes its input with a [ToolSchema] and answers
// with text. [Adapt] makes a [Tool] of it. It suits a struct that has something
// to keep: a connection, a key, a cache.
type TextTool interface {
	Name() string
	Description() string
	InputSchema() ToolSchema
	Execute(ctx context.Context, input json.RawMessage) (string, error)
}

// Adapt returns the Tool that t is. Its result is the text, as a JSON string. It
// panics when t has no name, or a schema that is not one; the schema is asked
// for once.
//
// Execute refuses an input that does not match the schema, with an error that
// lists every mismatch, and t is not called. Parameters that are left out and
// have a default are filled in. A panic of t is an error that wraps
// [ErrPanicked].
func Adapt(t TextTool) Tool {
	doc, err := t.InputSchema().JSON()
	if err != nil {
		panic(fmt.Sprintf("tool: %q: schema: %v", t.Name(), err))
	}
	in, err := newInput(doc)
	if err != nil {
		panic(fmt.Sprintf("tool: %q: schema: %v", t.Name(), err))
	}
	if t.Name() == "" {
		panic("tool: a tool has no name")
	}
	return &adapted{t, in}
}

type adapted struct {
	tool  TextTool
	input *input
}

func (a *adapted) Name() string            { return a.tool.Name() }
func (a *adapted) Description() string     { return a.tool.Description() }
func (a *adapted) Schema() json.RawMessage { return a.input.schema }

func (a *adapted) Execute(ctx context.Context, input json.RawMessage) (output json.RawMessage, err error) {
	defer Recover(&err)
	if input, err = a.input.read(input); err != nil {
		return nil, err
	}
	text, err := a.tool.Execute(ctx, input)
	if err != nil {
		return nil, err
	}
	return json.Marshal(text)
}

// NewFuncTool returns the tool that calls fn. It is [Adapt] for a function that
// keeps nothing. It panics when fn is nil, and when Adapt does.
func NewFuncTool(name, description string, schema ToolSchema, fn func(ctx context.Context, input json.RawMessage) (string, error)) Tool {
	if fn == nil {
		panic(fmt.Sprintf("tool: %q: the function is nil", name))
	}
	return Adapt(&funcTool{name, description, schema, fn})
}

type funcTool struct {
	name, description string
	schema            ToolSchema
	fn                func(context.Context, json.RawMessage) (string, error)
}

func (t *funcTool) Name() string            { return t.name }
func (t *funcTool) Description() string     { return t.description }
func (t *funcTool) InputSchema() ToolSchema { return t.schema }
func (t *funcTool) Execute(ctx context.Context, input json.RawMessage) (string, error) {
	return t.fn(ctx, input)
}
