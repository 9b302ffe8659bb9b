package tool

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
)

// Typed returns the tool that calls fn. The schema of its input is derived from
// In, a struct, or struct{} for a tool without parameters; package abi/schema
// says how types and tags become schemas. It panics when In cannot be described
// to a model: when it is no struct, holds maps, interfaces or itself, has two
// members of one name, or tags that contradict each other.
//
// Execute refuses an input that does not match the schema, with an error that
// lists every mismatch, and fn is not called. A member that is left out and has
// a default is filled in. A panic of fn is an error that wraps [ErrPanicked].
// What fn returns is marshalled by encoding/json.
func Typed[In, Out any](name, description string, fn func(context.Context, In) (Out, error)) Tool {
	in, err := structInput(reflect.TypeFor[In]())
	if err != nil {
		panic(fmt.Sprintf("tool: %q: input %v", name, err))
	}
	return &typed[In, Out]{name, description, in, fn}
}

type typed[In, Out any] struct {
	name, description string
	input             *input
	fn                func(context.Context, In) (Out, error)
}

func (t *typed[In, Out]) Name() string            { return t.name }
func (t *typed[In, Out]) Description() string     { return t.description }
func (t *typed[In, Out]) Schema() json.RawMessage { return t.input.schema }

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
