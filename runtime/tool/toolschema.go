package tool

import (
	"encoding/json"
	"fmt"
)

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
