package tool

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"regexp/syntax"
	"slices"

	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/internal/schema"
	"github.com/starling-host/starling/internal/work"
	"github.com/starling-host/starling/runtime/internal/validate"
)

// input is the schema of a native tool's input, and its compiled form.
type input struct {
	schema   json.RawMessage
	check    *validate.Schema
	defaults *schema.Defaults
}

// described has the name, description and input of a native tool.
type described struct {
	name, description string
	input             *input
}

func (d *described) Name() string            { return d.name }
func (d *described) Description() string     { return d.description }
func (d *described) Schema() json.RawMessage { return d.input.schema }

// newInput compiles a schema, which the program wrote.
func newInput(doc json.RawMessage) (*input, error) {
	own := work.Trusted(context.Background())
	check, err := validate.Compile(own, doc)
	if err != nil {
		return nil, err
	}
	if err := checkDefaults(own, "", doc); err != nil {
		return nil, err
	}
	defaults, err := schema.ParseDefaults(doc)
	return &input{schema: doc, check: check, defaults: defaults}, err
}

// structInput returns the input that a struct describes.
func structInput(t reflect.Type) (*input, error) {
	doc, err := schema.Input(t)
	if err != nil {
		return nil, err
	}
	return newInput(json.RawMessage(doc))
}

// decode reads an input into the struct that v points to.
func (in *input) decode(doc json.RawMessage, v any) error {
	doc, err := in.read(doc)
	if err != nil {
		return err
	}
	if err := schema.Decode(doc, v); err != nil { // beyond a schema, such as an invalid date
		return ToolDiscard(fmt.Errorf("input: %w", err))
	}
	return nil
}

// read returns an input in canonical form, with defaults filled in. A mismatch can never
// succeed, so the error is a [ToolDiscard].
func (in *input) read(doc json.RawMessage) (json.RawMessage, error) {
	clean, err := canon.JSON(doc)
	if err != nil {
		return nil, ToolDiscard(fmt.Errorf("input is not JSON: %w", err))
	}
	filled, err := in.defaults.Fill(clean)
	if err == nil {
		err = in.check.Check(filled)
	}
	if err != nil {
		return nil, ToolDiscard(fmt.Errorf("input does not match the schema: %w", err))
	}
	return filled, nil
}

// checkDefaults refuses defaults that their own schema does not allow: an input that relies
// on such a default would be refused.
func checkDefaults(b *work.Budget, place string, doc json.RawMessage) error {
	var s struct {
		Default    json.RawMessage            `json:"default"`
		Properties map[string]json.RawMessage `json:"properties"`
		Items      json.RawMessage            `json:"items"`
	}
	if err := json.Unmarshal(doc, &s); err != nil {
		return err
	}
	if s.Default != nil {
		own, err := validate.Compile(b, doc)
		if err != nil {
			return err
		}
		if err := own.Check(s.Default); err != nil {
			return fmt.Errorf("%s: default %s: %w", place, s.Default, err)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
		if err := checkDefaults(b, place+"/"+name, s.Properties[name]); err != nil {
			return err
		}
	}
	if s.Items == nil {
		return nil
	}
	return checkDefaults(b, place+"/items", s.Items)
}

// Schema is a compiled JSON Schema, and SchemaError lists the mismatches of a document.
type (
	Schema      = validate.Schema
	SchemaError = validate.Error
)

// ErrCost is the [*SchemaError] of a document that is too expensive for Schema.CheckNew.
var ErrCost = validate.ErrCost

// NewDocument is what the check of one new document may cost: about two seconds.
var NewDocument = validate.NewDocument

// CompileSchema compiles a JSON Schema. The budget pays for it, and keeps what the schema holds.
func CompileSchema(b *work.Budget, doc []byte) (*Schema, error) { return validate.Compile(b, doc) }

// ParsePattern parses a regular expression of a schema. The budget pays for it.
func ParsePattern(b *work.Budget, expr string) (*syntax.Regexp, error) {
	return validate.ParsePattern(b, expr)
}

// IsObjectSchema reports whether a schema requires an object.
func IsObjectSchema(doc []byte) bool { return validate.IsObject(doc) }
