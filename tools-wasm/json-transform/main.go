// Json-transform is a tool that runs a jq program over JSON. It shows a pure
// tool on a real library: it makes no host call, so its module imports nothing
// from the host.
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	starling "github.com/starling-host/starling/guest-sdk/go"
)

// inputSchema is written by hand because data may be any value and the members
// of args are the caller's.
const inputSchema = `{
	"type": "object",
	"properties": {
		"query": {"type": "string", "minLength": 1, "maxLength": 16384, "description": "A jq program, for instance .items | map(.price) | add"},
		"data": {"description": "The JSON value that the program runs on"},
		"args": {"type": "object", "description": "Values for variables of the program: {\"limit\": 3} becomes $limit"}
	},
	"required": ["query", "data"],
	"additionalProperties": false
}`

const outputSchema = `{
	"type": "object",
	"properties": {"results": {"type": "array", "description": "Everything that the program put out, in order"}},
	"required": ["results"],
	"additionalProperties": false
}`

func init() {
	starling.Register(starling.Tool{
		Name:         "json_transform",
		Description:  "Run a jq program over a JSON value: select, reshape, filter, sort, group, compute. Answers with the list of all its results.",
		InputSchema:  inputSchema,
		OutputSchema: outputSchema,
		Idempotent:   true,
		Execute:      execute,
	})
}

func main() {}

type input struct {
	Query string
	Data  any
	Args  map[string]any
}

// execute fails with a discard whatever goes wrong: the same input will never
// do better.
func execute(_ *starling.Call, doc []byte) ([]byte, error) {
	in, err := decode(doc)
	if err != nil {
		return nil, starling.Discard(fmt.Errorf("input: %w", err))
	}
	results, err := transform(in)
	if err != nil {
		return nil, starling.Discard(err)
	}
	return results, nil
}

// decode keeps numbers as they are written, so that a program which only moves
// a number about does not change it.
func decode(doc []byte) (input, error) {
	var in input
	d := json.NewDecoder(bytes.NewReader(doc))
	d.UseNumber()
	d.DisallowUnknownFields()
	if err := d.Decode(&in); err != nil {
		return input{}, err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return input{}, errors.New("text after the object")
	}
	return in, nil
}
