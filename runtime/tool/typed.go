package tool

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
)

// Typed returns the tool that calls fn. The schema of its input is derived from In, a
// struct, or struct{} for a tool without parameters; package internal/schema documents
// types and tags. It panics if In cannot be described to a model: if it is not a struct,
// contains maps, interfaces or itself, has two members of one name, or invalid tags.
//
// Execute refuses an input that does not match the schema, with an error that lists every
// mismatch, and does not call fn. Missing members get their defaults. A panic of fn is an
// error that wraps [ErrPanicked]. encoding/json marshals the result of fn.
func Typed[In, Out any](name, description string, fn func(context.Context, In) (Out, error)) Tool {
	in, err := structInput(reflect.TypeFor[In]())
	if err != nil {
		panic(fmt.Sprintf("tool: %q: input %v", name, err))
	}
	return &typed[In, Out]{described{name, description, in}, fn}
}

type typed[In, Out any] struct {
	described
	fn func(context.Context, In) (Out, error)
}

func (t *typed[In, Out]) Execute(ctx context.Context, input json.RawMessage) (output json.RawMessage, err error) {
	defer Recover(&err)
	var in In
	if err := t.input.decode(input, &in); err != nil {
		return nil, err
	}
	out, err := t.fn(ctx, in)
	if err != nil {
		return nil, err
	}
	output, err = json.Marshal(out)
	if err != nil {
		return nil, fmt.Errorf("output: %w", err)
	}
	return output, nil
}

// TextTool is a tool that describes its input with a [ToolSchema] and answers with text.
// [Adapt] makes a [Tool] of it. It suits structs with state: a connection, a key, a cache.
type TextTool interface {
	Name() string
	Description() string
	InputSchema() ToolSchema
	Execute(ctx context.Context, input json.RawMessage) (string, error)
}

// Adapt turns t into a Tool. Its result is the text, as a JSON string. It panics if t has
// no name or an invalid schema; it reads the schema once.
//
// Execute refuses an input that does not match the schema, with an error that lists every
// mismatch, and does not call t. Missing parameters get their defaults. A panic of t is an
// error that wraps [ErrPanicked].
func Adapt(t TextTool) Tool {
	return NewFuncTool(t.Name(), t.Description(), t.InputSchema(), t.Execute)
}

// NewFuncTool returns the tool that calls fn: [Adapt] for a function without state. It
// panics if fn is nil, and when Adapt does.
func NewFuncTool(name, description string, schema ToolSchema, fn func(ctx context.Context, input json.RawMessage) (string, error)) Tool {
	doc, err := schema.JSON()
	var in *input
	if err == nil {
		in, err = newInput(doc)
	}
	switch {
	case fn == nil:
		panic(fmt.Sprintf("tool: %q: the function is nil", name))
	case err != nil:
		panic(fmt.Sprintf("tool: %q: schema: %v", name, err))
	case name == "":
		panic("tool: a tool has no name")
	}
	return &adapted{described{name, description, in}, fn}
}

type adapted struct {
	described
	fn func(context.Context, json.RawMessage) (string, error)
}

func (a *adapted) Execute(ctx context.Context, input json.RawMessage) (output json.RawMessage, err error) {
	defer Recover(&err)
	if input, err = a.input.read(input); err != nil {
		return nil, err
	}
	text, err := a.fn(ctx, input)
	if err != nil {
		return nil, err
	}
	return json.Marshal(text)
}
