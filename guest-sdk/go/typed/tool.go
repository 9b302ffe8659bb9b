package typed

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"

	starling "github.com/starling-host/starling/guest-sdk/go"
)

// Tool returns the tool that calls fn. Effects, Idempotent and Limits are left
// for the caller to set before it registers the tool. It panics when In or Out
// cannot be described, see the package comment; In is a struct, struct{} for a
// tool without parameters.
//
// Input that does not fit In, with members that In does not have included, is a
// [starling.KindDiscard] failure and fn is not called. That required members
// are there is the host's check.
func Tool[In, Out any](name, description string, fn func(call *starling.Call, in In) (Out, error)) starling.Tool {
	input, err := inputSchema(reflect.TypeFor[In]())
	if err != nil {
		panic(fmt.Sprintf("typed: tool %q: input %v", name, err))
	}
	output, err := outputSchema(reflect.TypeFor[Out]())
	if err != nil {
		panic(fmt.Sprintf("typed: tool %q: output %v", name, err))
	}
	return starling.Tool{
		Name:         name,
		Description:  description,
		InputSchema:  input,
		OutputSchema: output,
		Execute:      executor(fn),
	}
}

func executor[In, Out any](fn func(*starling.Call, In) (Out, error)) func(*starling.Call, []byte) ([]byte, error) {
	return func(call *starling.Call, input []byte) ([]byte, error) {
		var in In
		if err := decode(input, &in); err != nil {
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

// decode reads one JSON object into the struct that in points to.
func decode(input []byte, in any) error {
	if !bytes.HasPrefix(bytes.TrimLeft(input, " \t\r\n"), []byte("{")) {
		return errors.New("want an object")
	}
	d := json.NewDecoder(bytes.NewReader(input))
	d.DisallowUnknownFields()
	if err := d.Decode(in); err != nil {
		return explain(err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("text after the object")
	}
	return nil
}

// explain says in terms of JSON what encoding/json says in terms of Go.
func explain(err error) error {
	var mismatch *json.UnmarshalTypeError
	if !errors.As(err, &mismatch) {
		return errors.New(strings.TrimPrefix(err.Error(), "json: "))
	}
	want := "a value of type " + mismatch.Type.String()
	if s, err := (deriver{}).schema(mismatch.Type); err == nil {
		if name, ok := s.Type.(string); ok {
			want = article(name)
		}
	}
	return fmt.Errorf("%s: want %s, got %s at byte %d", mismatch.Field, want, article(mismatch.Value), mismatch.Offset)
}

func article(noun string) string {
	if strings.ContainsAny(noun[:1], "aeiou") {
		return "an " + noun
	}
	return "a " + noun
}
