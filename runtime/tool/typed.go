package tool

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"

	"github.com/starling-host/starling/abi/schema"
)

// Typed returns the tool that calls fn. The schema of its input is derived from
// In, a struct, or struct{} for a tool without parameters; package abi/schema
// says how types and tags become schemas. It panics when In cannot be described
// to a model: when it is no struct, holds maps, interfaces or itself, or has two
// members of one name.
//
// Execute decodes strictly: members that In does not have are an error, and fn
// is not called. A panic of fn is an error that wraps [ErrPanicked]. What fn
// returns is marshalled by encoding/json.
func Typed[In, Out any](name, description string, fn func(context.Context, In) (Out, error)) Tool {
	input, err := schema.Input(reflect.TypeFor[In]())
	if err != nil {
		panic(fmt.Sprintf("tool: %q: input %v", name, err))
	}
	return &typed[In, Out]{name, description, json.RawMessage(input), fn}
}

type typed[In, Out any] struct {
	name, description string
	schema            json.RawMessage
	fn                func(context.Context, In) (Out, error)
}

func (t *typed[In, Out]) Name() string            { return t.name }
func (t *typed[In, Out]) Description() string     { return t.description }
func (t *typed[In, Out]) Schema() json.RawMessage { return t.schema }

func (t *typed[In, Out]) Execute(ctx context.Context, input json.RawMessage) (output json.RawMessage, err error) {
	defer Recover(&err)
	var in In
	if err := schema.Decode(input, &in); err != nil {
		return nil, fmt.Errorf("input: %w", err)
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
