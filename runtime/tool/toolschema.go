package tool

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// ToolSchema describes the input of a tool whose parameters no Go struct has: a
// JSON Schema, of the part that models understand.
type ToolSchema struct {
	Type        string                 `json:"type"`                  // "object"
	Description string                 `json:"description,omitempty"` // for the model; may be empty
	Properties  map[string]PropertyDef `json:"properties"`            // the parameters by name; nil for none
	Required    []string               `json:"required"`              // names among Properties
}

// PropertyDef describes a parameter, or a part of one. Constraints belong to
// types; one that is set for another type is a mistake.
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

// maxSchemaDepth bounds definitions in definitions, which may point to
// themselves.
const maxSchemaDepth = 32

// JSON returns the JSON Schema, the same bytes for the same schema. The error
// says which definition is wrong, and how.
func (s ToolSchema) JSON() (json.RawMessage, error) {
	if s.Type != "object" {
		return nil, fmt.Errorf(`the type is %q, and the input of a tool is an "object"`, s.Type)
	}
	if err := checkMembers("", s.Properties, s.Required, 0); err != nil {
		return nil, err
	}
	if s.Properties == nil {
		s.Properties = map[string]PropertyDef{}
	}
	if s.Required == nil {
		s.Required = []string{}
	}
	return json.Marshal(s)
}

// checkMembers checks the definitions of an object. The order is that of the
// names, so that the same mistake is reported every time.
func checkMembers(place string, members map[string]PropertyDef, required []string, depth int) error {
	for _, name := range required {
		if _, ok := members[name]; !ok {
			return fmt.Errorf("%s: %q is required, but is no property", orDocument(place), name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(members)) {
		if name == "" {
			return fmt.Errorf("%s: a property has no name", orDocument(place))
		}
		p := members[name]
		if err := p.check(place+"/"+name, depth+1); err != nil {
			return err
		}
	}
	return nil
}

func orDocument(place string) string {
	if place == "" {
		return "the schema"
	}
	return place
}

var propertyTypes = []string{"string", "number", "integer", "boolean", "array", "object"}

// check returns what is wrong with a definition, which is that of place.
func (p *PropertyDef) check(place string, depth int) error {
	if depth > maxSchemaDepth {
		return fmt.Errorf("%s: definitions are nested deeper than %d", place, maxSchemaDepth)
	}
	if !slices.Contains(propertyTypes, p.Type) {
		return fmt.Errorf("%s: the type is %q, want one of %s", place, p.Type, strings.Join(propertyTypes, ", "))
	}
	if err := errors.Join(p.misplaced(), p.contradiction()); err != nil {
		return fmt.Errorf("%s: %w", place, err)
	}
	if p.Items != nil {
		return p.Items.check(place+"/items", depth+1)
	}
	return checkMembers(place, p.Properties, p.Required, depth)
}

// misplaced returns which constraint means nothing for the type, or nil.
func (p *PropertyDef) misplaced() error {
	for _, c := range []struct {
		name, of string
		set      bool
	}{
		{"enum", "string", p.Enum != nil},
		{"minLength", "string", p.MinLength != nil},
		{"maxLength", "string", p.MaxLength != nil},
		{"pattern", "string", p.Pattern != ""},
		{"minimum", "number", p.Minimum != nil},
		{"maximum", "number", p.Maximum != nil},
		{"items", "array", p.Items != nil},
		{"minItems", "array", p.MinItems != nil},
		{"maxItems", "array", p.MaxItems != nil},
		{"properties", "object", p.Properties != nil},
		{"required", "object", p.Required != nil},
	} {
		fits := c.of == p.Type || c.of == "number" && p.Type == "integer"
		if c.set && !fits {
			return fmt.Errorf("%s is for type %s, and this is %s", c.name, c.of, p.Type)
		}
	}
	return nil
}

// contradiction returns why no value can fit, or nil.
func (p *PropertyDef) contradiction() error {
	switch {
	case p.Enum != nil && len(p.Enum) == 0:
		return errors.New("enum is there and allows nothing")
	case len(slices.Compact(slices.Sorted(slices.Values(p.Enum)))) < len(p.Enum):
		return errors.New("enum has a value twice")
	case crossed(p.MinLength, p.MaxLength):
		return fmt.Errorf("minLength %d is more than maxLength %d", *p.MinLength, *p.MaxLength)
	case crossed(p.MinItems, p.MaxItems):
		return fmt.Errorf("minItems %d is more than maxItems %d", *p.MinItems, *p.MaxItems)
	case crossed(p.Minimum, p.Maximum):
		return fmt.Errorf("minimum %v is more than maximum %v", *p.Minimum, *p.Maximum)
	}
	return nil
}

func crossed[N int | float64](low, high *N) bool { return low != nil && high != nil && *low > *high }

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
