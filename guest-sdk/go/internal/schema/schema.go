package schema

import (
	"encoding"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"time"
)

// node is the part of JSON Schema (draft 2020-12) that Go types need.
type node struct {
	Type                 any        `json:"type,omitempty"` // nil: any value; a string; or that and "null"
	Description          string     `json:"description,omitempty"`
	Enum                 []any      `json:"enum,omitempty"`
	Default              any        `json:"default,omitempty"` // nil: none
	MinLength            *int       `json:"minLength,omitempty"`
	MaxLength            *int       `json:"maxLength,omitempty"`
	Pattern              string     `json:"pattern,omitempty"`
	Minimum              any        `json:"minimum,omitempty"` // nil: none; an int64; or a float64
	Maximum              any        `json:"maximum,omitempty"` // likewise
	Format               string     `json:"format,omitempty"`
	ContentEncoding      string     `json:"contentEncoding,omitempty"`
	Items                *node      `json:"items,omitempty"`
	MinItems             *int       `json:"minItems,omitempty"`
	MaxItems             *int       `json:"maxItems,omitempty"`
	Properties           properties `json:"properties,omitzero"`            // nil: no object of fields
	Required             []string   `json:"required,omitzero"`              // nil likewise
	AdditionalProperties any        `json:"additionalProperties,omitempty"` // nil: any; false; or a *node
}

// properties are the members of an object, in the order of the Go fields,
// which is the order in which a model reads them.
type properties []property

type property struct {
	name     string
	optional bool
	node     *node
}

// MarshalJSON writes the properties as an object.
func (ps properties) MarshalJSON() ([]byte, error) {
	doc := []byte{'{'}
	for i, p := range ps {
		if i > 0 {
			doc = append(doc, ',')
		}
		name, err := json.Marshal(p.name)
		if err != nil {
			return nil, err
		}
		value, err := json.Marshal(p.node)
		if err != nil {
			return nil, err
		}
		doc = append(append(append(doc, name...), ':'), value...)
	}
	return append(doc, '}'), nil
}

// Input returns the schema of an input of type t, which is a struct. The error
// names the type or field that cannot be described, and the reason.
func Input(t reflect.Type) (string, error) {
	s, err := deriver{}.schema(t)
	if err != nil {
		return "", err
	}
	if t.Kind() != reflect.Struct || s.Type != "object" {
		return "", fmt.Errorf("type %v is not a struct with fields: use struct{} for a tool without parameters", t)
	}
	doc, err := json.Marshal(s)
	return string(doc), err
}

// Output returns the schema of an output of type t, and nothing for a type that
// may become any value.
func Output(t reflect.Type) (string, error) {
	s, err := deriver{output: true}.schema(t)
	if err != nil || s.Type == nil {
		return "", err
	}
	doc, err := json.Marshal(s)
	return string(doc), err
}

// deriver derives the schema of a type from what encoding/json reads, or
// writes, for it. It is passed by value, so that open holds only the way from
// the outermost type to the current one.
type deriver struct {
	output bool
	open   []reflect.Type
}

func (d deriver) schema(t reflect.Type) (*node, error) {
	if slices.Contains(d.open, t) {
		if d.output {
			return &node{}, nil
		}
		return nil, fmt.Errorf("type %v contains itself, which a schema cannot express", t)
	}
	d.open = append(slices.Clip(d.open), t)
	if s, err := d.special(t); s != nil || err != nil {
		return s, err
	}
	switch t.Kind() {
	case reflect.Pointer:
		s, err := d.schema(t.Elem())
		return d.orNull(s), err
	case reflect.Slice, reflect.Array:
		return d.list(t)
	case reflect.Struct:
		return d.object(t)
	case reflect.Map:
		return d.table(t)
	case reflect.Interface:
		if !d.output {
			return nil, fmt.Errorf("type %v is an interface, which does not describe anything to a model: use a struct, or json.RawMessage", t)
		}
		return &node{}, nil
	default:
		return scalar(t)
	}
}

// special describes the types that are not encoded as their kind says, and
// returns nil for all others.
func (d deriver) special(t reflect.Type) (*node, error) {
	switch t {
	case reflect.TypeFor[time.Time]():
		return &node{Type: "string", Format: "date-time"}, nil
	case reflect.TypeFor[json.RawMessage]():
		return &node{}, nil
	case reflect.TypeFor[json.Number]():
		return &node{Type: "number"}, nil
	}
	if t.Kind() == reflect.Pointer || t.Kind() == reflect.Interface {
		return nil, nil
	}
	if d.output {
		return writesItself(t), nil
	}
	switch p := reflect.PointerTo(t); {
	case p.Implements(reflect.TypeFor[json.Unmarshaler]()):
		return nil, fmt.Errorf("type %v decodes itself, so its schema is not known: use json.RawMessage", t)
	case p.Implements(reflect.TypeFor[encoding.TextUnmarshaler]()):
		return &node{Type: "string"}, nil
	}
	return nil, nil
}

// writesItself describes a type that has a method to encode itself. A method on
// the pointer is called for some values and not for others.
func writesItself(t reflect.Type) *node {
	toJSON, toText := reflect.TypeFor[json.Marshaler](), reflect.TypeFor[encoding.TextMarshaler]()
	switch p := reflect.PointerTo(t); {
	case t.Implements(toText) && !t.Implements(toJSON):
		return &node{Type: "string"}
	case p.Implements(toJSON) || p.Implements(toText):
		return &node{}
	}
	return nil
}

// orNull adds null to the type of an output: nil pointers, slices and maps are
// written as null. In an input null would mean "leave the zero value", which
// leaving the member out says better.
func (d deriver) orNull(s *node) *node {
	if s == nil || !d.output {
		return s
	}
	if name, ok := s.Type.(string); ok {
		s.Type = []string{name, "null"}
	}
	return s
}

func (d deriver) list(t reflect.Type) (*node, error) {
	if t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.Uint8 {
		return d.orNull(&node{Type: "string", ContentEncoding: "base64"}), nil
	}
	items, err := d.schema(t.Elem())
	if err != nil {
		return nil, err
	}
	if t.Kind() == reflect.Slice {
		return d.orNull(&node{Type: "array", Items: items}), nil
	}
	n := t.Len()
	return &node{Type: "array", Items: items, MinItems: &n, MaxItems: &n}, nil
}

func (d deriver) table(t reflect.Type) (*node, error) {
	if !d.output {
		return nil, fmt.Errorf("type %v is a map, whose names a model has to guess: use a struct", t)
	}
	values, err := d.schema(t.Elem())
	if err != nil {
		return nil, err
	}
	return d.orNull(&node{Type: "object", AdditionalProperties: values}), nil
}

func scalar(t reflect.Type) (*node, error) {
	switch t.Kind() {
	case reflect.String:
		return &node{Type: "string"}, nil
	case reflect.Bool:
		return &node{Type: "boolean"}, nil
	case reflect.Float32, reflect.Float64:
		return &node{Type: "number"}, nil
	case reflect.Int8, reflect.Int16, reflect.Int32:
		limit := int64(1) << (t.Bits() - 1)
		return integer(-limit, limit-1), nil
	case reflect.Uint8, reflect.Uint16, reflect.Uint32:
		return integer(0, int64(1)<<t.Bits()-1), nil
	case reflect.Int, reflect.Int64:
		return &node{Type: "integer"}, nil
	case reflect.Uint, reflect.Uint64:
		return &node{Type: "integer", Minimum: int64(0)}, nil
	default:
		return nil, fmt.Errorf("type %v has no form in JSON", t)
	}
}

func integer(minimum, maximum int64) *node {
	return &node{Type: "integer", Minimum: minimum, Maximum: maximum}
}
