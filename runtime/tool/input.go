package tool

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"reflect"
	"regexp/syntax"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/internal/display"
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

// InputError is why a tool does not take an input. Every surface gives its text: programs in Go, the
// command, the HTTP API, MCP, agents, programs of a model, and logs, which a replay must repeat.
type InputError struct {
	Cause       error  // a [*canon.SyntaxError] or a [*SchemaError]; nil if the input is too large
	Bytes, Most int    // of an input that is too large, in canonical form
	Was         string // its text in logs of earlier commits, if it was another
}

// Error returns the one text.
func (e *InputError) Error() string {
	switch cause := e.Cause.(type) {
	case nil:
		return fmt.Sprintf("input of %d bytes, more than %d", e.Bytes, e.Most)
	case *canon.SyntaxError:
		at := ""
		if cause.Pointer != "" {
			at = " at " + strconv.Quote(display.Clip(cause.Pointer, 80))
		}
		return fmt.Sprintf("input is not JSON: line %d, column %d%s: %s", cause.Line, cause.Column, at, cause.Msg)
	case *SchemaError:
		return noMatch + strings.Join(cause.Brief(), "; ")
	}
	return noMatch + e.Cause.Error()
}

const noMatch = "input does not match the schema: "

// mismatch is the error of an input that does not match its schema. Logs of earlier commits name all
// members that are not allowed.
func mismatch(cause error) *InputError {
	return &InputError{Cause: cause, Was: noMatch + cause.Error()}
}

// Unwrap returns the cause.
func (e *InputError) Unwrap() error { return e.Cause }

// Advice implements [hint.Hinted].
func (e *InputError) Advice() string {
	switch cause := e.Cause.(type) {
	case nil:
		return "pass a shorter input, or raise resources.limits.input of the policy"
	case *canon.SyntaxError:
		return cause.Hint
	}
	return "show the schema with: starling-host tool describe TOOL"
}

// Outcome returns the error with the class that ends a call.
func (e *InputError) Outcome() error {
	switch {
	case e.Cause == nil:
		return fmt.Errorf("%w: %w", ErrLimit, e)
	case errors.Is(e, ErrCost): // as with a deadline, a replay takes it from the record
		return fmt.Errorf("%w: %w", ErrTimeout, e)
	}
	return ToolDiscard(e)
}

// CheckInput decides whether a tool takes an input, or returns nil: it must match the schema, if there
// is one, and have at most so many bytes of canonical JSON. It decides when a call is accepted, and again
// when it begins, because the limits may be lower by then, and another host may have accepted it.
func CheckInput(s *Schema, input *canon.Doc, most int, replay bool) *InputError {
	if err := Fits(s, input, replay); err != nil {
		return mismatch(err)
	}
	if len(input.JSON) > most {
		return &InputError{Bytes: len(input.JSON), Most: most}
	}
	return nil
}

var objectSchema = sync.OnceValues(func() (*Schema, error) {
	return CompileSchema(work.Trusted(context.Background()), []byte(`{"type":"object"}`))
})

// CheckObject is [CheckInput] for a tool with any schema of objects.
func CheckObject(input *canon.Doc) *InputError {
	object, err := objectSchema()
	if err != nil {
		panic(err) // the schema is right
	}
	return CheckInput(object, input, math.MaxInt, false)
}

// Fits checks a document against a schema, which may be nil. A replay has no budget, so that documents
// accepted by earlier hosts still replay. Otherwise the budget is that of one document, and a check that
// has begun ends, even if the call is cancelled: whether a document matches follows from it alone.
func Fits(s *Schema, doc *canon.Doc, replay bool) error {
	switch {
	case s == nil:
		return nil
	case replay:
		return doc.Fits(s, s.Check)
	}
	b := work.New(context.Background(), NewDocument)
	return doc.Fits(s, func(text []byte) error { return s.CheckNew(b, text) })
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
	clean, err := canon.Parse(doc)
	if err != nil {
		return nil, ToolDiscard(&InputError{Cause: err})
	}
	filled, err := in.defaults.Fill(clean.JSON)
	if err == nil {
		err = in.check.Check(filled)
	}
	if err != nil {
		return nil, ToolDiscard(mismatch(err))
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

// ToolSchema describes the input of a tool whose parameters are not a Go struct, in the
// part of JSON Schema that models understand.
type ToolSchema struct {
	Type        string                 `json:"type"`                  // "object"
	Description string                 `json:"description,omitempty"` // for the model; may be empty
	Properties  map[string]PropertyDef `json:"properties"`            // the parameters by name; nil for none
	Required    []string               `json:"required"`              // names among Properties
}

// PropertyDef describes a parameter or a part of it. A constraint for a different type has
// no effect.
type PropertyDef struct {
	Type        string `json:"type"`                  // string, number, integer, boolean, array or object
	Description string `json:"description,omitempty"` // for the model; may be empty

	// For strings. Lengths are in characters. Pattern is a regular expression in the syntax
	// of package regexp, which matches anywhere in the string unless it is anchored.
	Enum      []string `json:"enum,omitempty"`
	MinLength *int     `json:"minLength,omitempty"`
	MaxLength *int     `json:"maxLength,omitempty"`
	Pattern   string   `json:"pattern,omitempty"`

	// For numbers and integers. Both are inclusive.
	Minimum *float64 `json:"minimum,omitempty"`
	Maximum *float64 `json:"maximum,omitempty"`

	// For arrays. Without Items the elements may be anything.
	Items    *PropertyDef `json:"items,omitempty"`
	MinItems *int         `json:"minItems,omitempty"`
	MaxItems *int         `json:"maxItems,omitempty"`

	// For objects. Other members are allowed, too.
	Properties map[string]PropertyDef `json:"properties,omitempty"`
	Required   []string               `json:"required,omitempty"`

	// Default is the value of an omitted parameter: any value that encoding/json can write
	// and the rest of the definition allows. Nil: none.
	Default any `json:"default,omitempty"`
}

// JSON returns the JSON Schema, the same bytes for the same schema.
func (s ToolSchema) JSON() (json.RawMessage, error) {
	if s.Type != "object" {
		return nil, fmt.Errorf(`the type is %q, and the input of a tool is an "object"`, s.Type)
	}
	if s.Properties == nil {
		s.Properties = map[string]PropertyDef{}
	}
	if s.Required == nil {
		s.Required = []string{}
	}
	return json.Marshal(s)
}

// ResultMessage is the answer to a call, for the model. Its JSON is a message of OpenAI's
// chat completions.
type ResultMessage struct {
	Role       string `json:"role"`         // "tool"
	ToolCallID string `json:"tool_call_id"` // the model's name for the call
	Name       string `json:"name"`         // of the tool
	Content    string `json:"content"`
	IsError    bool   `json:"-"`
}

// NewToolResult returns the answer of a successful call.
func NewToolResult(id, name, result string) ResultMessage {
	return ResultMessage{Role: "tool", ToolCallID: id, Name: name, Content: result}
}

// NewToolError returns the answer of a failed call. A failure does not end the run: a model
// that learns what went wrong often does better.
func NewToolError(id, name string, err error) ResultMessage {
	return ResultMessage{Role: "tool", ToolCallID: id, Name: name, Content: ErrorText(err), IsError: true}
}

// ErrorText returns the text about a failed call for the model.
func ErrorText(err error) string {
	return "Error executing tool: " + err.Error() + ". Please fix your arguments."
}

// exported is a tool in the shape of OpenAI's API. An empty description is left out, because some
// servers refuse it.
type exported struct {
	Type     string `json:"type"`
	Function struct {
		Name        string          `json:"name"`
		Description string          `json:"description,omitempty"`
		Parameters  json.RawMessage `json:"parameters"`
	} `json:"function"`
}

// ExportOpenAI describes tools as the member "tools" of a request for a chat completion has them, in
// the given order. The result is always a JSON array, possibly empty, because some servers refuse
// null. The bytes depend only on the arguments. It fails for two tools of one name, or a schema that
// is not a JSON object.
func ExportOpenAI(tools []Tool) (json.RawMessage, error) {
	list := make([]exported, 0, len(tools))
	seen := make(map[string]bool, len(tools))
	for _, t := range tools {
		if seen[t.Name()] {
			return nil, fmt.Errorf("tool: export: two tools are named %q", t.Name())
		}
		seen[t.Name()] = true
		var object map[string]json.RawMessage
		if json.Unmarshal(t.Schema(), &object) != nil || object == nil {
			return nil, fmt.Errorf("tool: export: the schema of %q is not a JSON object", t.Name())
		}
		e := exported{Type: "function"}
		e.Function.Name, e.Function.Description, e.Function.Parameters = t.Name(), t.Description(), t.Schema()
		list = append(list, e)
	}
	return display.JSON(list, "")
}
