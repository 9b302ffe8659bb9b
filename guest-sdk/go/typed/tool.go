package typed

import (
	"encoding/json"
	"fmt"
	"reflect"

	starling "github.com/starling-host/starling/guest-sdk/go"
	"github.com/starling-host/starling/guest-sdk/go/internal/schema"
)

// Tool returns the tool that calls fn. Effects, Idempotent and Limits are left
// for the caller to set before it registers the tool. It panics when In or Out
// cannot be described, see the package comment; In is a struct, struct{} for a
// tool without parameters.
//
// Input that does not fit In, or has unknown members, is a
// [starling.KindDiscard] failure and fn is not called. The host checks that
// required members exist.
func Tool[In, Out any](name, description string, fn func(call *starling.Call, in In) (Out, error)) starling.Tool {
	input, err := schema.Input(reflect.TypeFor[In]())
	if err != nil {
		panic(fmt.Sprintf("typed: tool %q: input %v", name, err))
	}
	defaults, err := schema.ParseDefaults([]byte(input))
	if err != nil {
		panic(err) // the schema was made here
	}
	output, err := schema.Output(reflect.TypeFor[Out]())
	if err != nil {
		panic(fmt.Sprintf("typed: tool %q: output %v", name, err))
	}
	return starling.Tool{
		Name:         name,
		Description:  description,
		InputSchema:  input,
		OutputSchema: output,
		Execute:      executor(defaults, fn),
	}
}

func executor[In, Out any](defaults *schema.Defaults, fn func(*starling.Call, In) (Out, error)) func(*starling.Call, []byte) ([]byte, error) {
	return func(call *starling.Call, input []byte) ([]byte, error) {
		var in In
		filled, err := defaults.Fill(input)
		if err == nil {
			err = schema.Decode(filled, &in)
		}
		if err != nil {
			return nil, starling.Discard(fmt.Errorf("input: %w", err))
		}
		out, err := fn(call, in)
		if err != nil {
			return nil, err
		}
		doc, err := json.Marshal(out)
		if err != nil {
			return nil, fmt.Errorf("output: %w", err)
		}
		return doc, nil
	}
}
