package typed

import (
	"encoding"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"time"
)

// schema is the part of JSON Schema (draft 2020-12) that Go types need.
type schema struct {
	Type                 any        `json:"type,omitempty"` // nil: any value; a string; or that and "null"
	Description          string     `json:"description,omitempty"`
	Enum                 []any      `json:"enum,omitempty"`
	Minimum              *int64     `json:"minimum,omitempty"`
	Maximum              *int64     `json:"maximum,omitempty"`
	Format               string     `json:"format,omitempty"`
	ContentEncoding      string     `json:"contentEncoding,omitempty"`
	Items                *schema    `json:"items,omitempty"`
	MinItems             *int       `json:"minItems,omitempty"`
	MaxItems             *int       `json:"maxItems,omitempty"`
	Properties           properties `json:"properties,omitempty"`
	Required             []string   `json:"required,omitempty"`
	AdditionalProperties any        `json:"additionalProperties,omitempty"` // nil: any; false; or a *schema
}

// properties are the members of an object, in the order of the Go fields,
// which is the order in which a model reads them.
type properties []property

type property struct {
	name     string
	optional bool
	schema   *schema
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
		value, err := json.Marshal(p.schema)
		if err != nil {
			return nil, err
		}
		doc = append(append(append(doc, name...), ':'), value...)
	}
	return append(doc, '}'), nil
}

func inputSchema(t reflect.Type) (string, error) {
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

// outputSchema returns nothing for a type that may become any value.
func outputSchema(t reflect.Type) (string, error) {
	s, err := deriver{output: true}.schema(t)
	if err != nil || s.Type == nil {
		return "", err
	}
	doc, err := json.Marshal(s)
	return string(doc), err
}

// deriver derives the schema of a type from what encoding/json reads, or
// writes, for it. It is passed by value, so that open holds the way from the
// outermost type to the one at hand and nothing else.
type deriver struct {
	output bool
	open   []reflect.Type
}

func (d deriver) schema(t reflect.Type) (*schema, error) {
	if slices.Contains(d.open, t) {
		if d.output {
			return &schema{}, nil
		}
		return nil, fmt.Errorf("type %v contains itself, and a schema cannot follow", t)
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
			return nil, fmt.Errorf("type %v is an interface, which tells a model nothing: use a struct, or json.RawMessage", t)
		}
		return &schema{}, nil
	default:
		return scalar(t)
	}
}

// special describes the types that are not encoded as their kind says, and
// returns nil for all others.
func (d deriver) special(t reflect.Type) (*schema, error) {
	switch t {
	case reflect.TypeFor[time.Time]():
		return &schema{Type: "string", Format: "date-time"}, nil
	case reflect.TypeFor[json.RawMessage]():
		return &schema{}, nil
	case reflect.TypeFor[json.Number]():
		return &schema{Type: "number"}, nil
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
		return &schema{Type: "string"}, nil
	}
	return nil, nil
}

// writesItself describes a type that has a method to encode itself. A method on
// the pointer is called for some values and not for others.
func writesItself(t reflect.Type) *schema {
	toJSON, toText := reflect.TypeFor[json.Marshaler](), reflect.TypeFor[encoding.TextMarshaler]()
	switch p := reflect.PointerTo(t); {
	case t.Implements(toText) && !t.Implements(toJSON):
		return &schema{Type: "string"}
	case p.Implements(toJSON) || p.Implements(toText):
		return &schema{}
	}
	return nil
}

// orNull adds null to the type of an output: nil pointers, slices and maps are
// written as null. In an input null would mean "leave the zero value", which
// leaving the member out says better.
func (d deriver) orNull(s *schema) *schema {
	if s == nil || !d.output {
		return s
	}
	if name, ok := s.Type.(string); ok {
		s.Type = []string{name, "null"}
	}
	return s
}

func (d deriver) list(t reflect.Type) (*schema, error) {
	if t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.Uint8 {
		return d.orNull(&schema{Type: "string", ContentEncoding: "base64"}), nil
	}
	items, err := d.schema(t.Elem())
	if err != nil {
		return nil, err
	}
	if t.Kind() == reflect.Slice {
		return d.orNull(&schema{Type: "array", Items: items}), nil
	}
	n := t.Len()
	return &schema{Type: "array", Items: items, MinItems: &n, MaxItems: &n}, nil
}

func (d deriver) table(t reflect.Type) (*schema, error) {
	if !d.output {
		return nil, fmt.Errorf("type %v is a map, whose names a model has to guess: use a struct", t)
	}
	values, err := d.schema(t.Elem())
	if err != nil {
		return nil, err
	}
	return d.orNull(&schema{Type: "object", AdditionalProperties: values}), nil
}

func scalar(t reflect.Type) (*schema, error) {
	switch t.Kind() {
	case reflect.String:
		return &schema{Type: "string"}, nil
	case reflect.Bool:
		return &schema{Type: "boolean"}, nil
	case reflect.Float32, reflect.Float64:
		return &schema{Type: "number"}, nil
	case reflect.Int8, reflect.Int16, reflect.Int32:
		limit := int64(1) << (t.Bits() - 1)
		return integer(-limit, limit-1), nil
	case reflect.Uint8, reflect.Uint16, reflect.Uint32:
		return integer(0, int64(1)<<t.Bits()-1), nil
	case reflect.Int, reflect.Int64:
		return &schema{Type: "integer"}, nil
	case reflect.Uint, reflect.Uint64:
		return &schema{Type: "integer", Minimum: new(int64)}, nil
	default:
		return nil, fmt.Errorf("type %v has no form in JSON", t)
	}
}

func integer(minimum, maximum int64) *schema {
	return &schema{Type: "integer", Minimum: &minimum, Maximum: &maximum}
}
