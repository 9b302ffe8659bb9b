package tool

import (
	"encoding/json"
	"fmt"
)

// ToolSchema describes the input of a tool whose parameters no Go struct has: a
// JSON Schema, of the part that models understand.
type ToolSchema struct {
	Type        string                 `json:"type"`                  // "object"
	Description string                 `json:"description,omitempty"` // for the model; may be empty
	Properties  map[string]PropertyDef `json:"properties"`            // the parameters by name; nil for none
	Required    []string               `json:"required"`              // names among Properties
}

// PropertyDef describes a parameter, or a part of one. A constraint that is set for
// another type than its own has no effect.
type PropertyDef struct {
	Type        string `json:"type"`                  // string, number, integer, boolean, array or object
	Description string `json:"description,omitempty"` // for the model; may be empty

	// Of strings. Lengths are counted in characters. Pattern is a regular
	// expression in the syntax of package regexp, found anywhere in the string
	// unless it is anchored.
	Enum      []string `json:"enum,omitempty"`
	MinLength *int     `json:"minLength,omitempty"`
	MaxLength *int     `json:"maxLength,omitempty"`
	Pattern   string   `json:"pattern,omitempty"`

	// Of numbers and integers. Both are inclusive.
	Minimum *float64 `json:"minimum,omitempty"`
	Maximum *float64 `json:"maximum,omitempty"`

	// Of arrays. Without Items the elements may be anything.
	Items    *PropertyDef `json:"items,omitempty"`
	MinItems *int         `json:"minItems,omitempty"`
	MaxItems *int         `json:"maxItems,omitempty"`

	// Of objects. Members that are not named may be there as well.
	Properties map[string]PropertyDef `json:"properties,omitempty"`
	Required   []string               `json:"required,omitempty"`

	// Default is the value of a parameter that is left out: any value that
	// encoding/json writes and the rest of the definition allows. Nil: none.
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

// ResultMessage is the answer to a call, for the model that asked for it. In
// JSON it is a message of OpenAI's chat completions.
type ResultMessage struct {
	Role       string `json:"role"`         // "tool"
	ToolCallID string `json:"tool_call_id"` // the model's name for the call
	Name       string `json:"name"`         // of the tool
	Content    string `json:"content"`
	IsError    bool   `json:"-"`
}

// NewToolResult returns the answer of a call that succeeded.
func NewToolResult(id, name, result string) ResultMessage {
	return ResultMessage{Role: "tool", ToolCallID: id, Name: name, Content: result}
}

// NewToolError returns the answer of a call that failed. A failure ends no run:
// a model that is told what was wrong can often do better.
func NewToolError(id, name string, err error) ResultMessage {
	return ResultMessage{Role: "tool", ToolCallID: id, Name: name, Content: ErrorText(err), IsError: true}
}

// ErrorText returns what a model is told of a failed call.
func ErrorText(err error) string {
	return "Error executing tool: " + err.Error() + ". Please fix your arguments."
}
