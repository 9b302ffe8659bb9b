package schema

import (
	"fmt"
	"reflect"
	"strings"
)

// object describes a struct. In an input, members that it does not have are
// refused, as decode does.
func (d deriver) object(t reflect.Type) (*node, error) {
	members, err := d.members(t)
	if err != nil {
		return nil, err
	}
	s := &node{Type: "object", Properties: members, Required: []string{}}
	if !d.output {
		s.AdditionalProperties = false
	}
	for i, p := range members {
		if twin := d.twin(members[:i], p.name); twin != "" {
			return nil, fmt.Errorf("type %v has the members %q and %q: encoding/json does not tell them apart", t, twin, p.name)
		}
		if !p.optional {
			s.Required = append(s.Required, p.name)
		}
	}
	return s, nil
}

// twin returns the name among members that is read like name. Decoding ignores
// case.
func (d deriver) twin(members properties, name string) string {
	for _, p := range members {
		if p.name == name || !d.output && strings.EqualFold(p.name, name) {
			return p.name
		}
	}
	return ""
}

// members lists what a struct contributes to an object: its fields, and those
// of the structs that it embeds without naming them.
func (d deriver) members(t reflect.Type) (properties, error) {
	members := properties{}
	for i := range t.NumField() {
		f := t.Field(i)
		tag, err := parseJSONTag(f)
		if err != nil {
			return nil, inField(f, err)
		}
		var added properties
		switch {
		case tag.skip:
		case f.Anonymous && tag.name == "" && d.embeds(f.Type):
			added, err = d.embedded(f)
		case f.IsExported():
			added, err = d.field(f, tag)
		}
		if err != nil {
			return nil, inField(f, err)
		}
		members = append(members, added...)
	}
	return members, nil
}

func inField(f reflect.StructField, err error) error { return fmt.Errorf("field %s: %w", f.Name, err) }

// embeds reports whether a struct that embeds t has the fields of t as its own.
func (d deriver) embeds(t reflect.Type) bool {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	s, err := d.special(t)
	return t.Kind() == reflect.Struct && s == nil && err == nil
}

func (d deriver) embedded(f reflect.StructField) (properties, error) {
	t := f.Type
	if t.Kind() == reflect.Pointer {
		if !f.IsExported() && !d.output {
			return nil, fmt.Errorf("encoding/json cannot set an embedded pointer to the unexported type %v", t.Elem())
		}
		t = t.Elem()
	}
	s, err := d.schema(t)
	if err != nil {
		return nil, err
	}
	for i := range s.Properties {
		// A nil pointer leaves all of its members out.
		s.Properties[i].optional = s.Properties[i].optional || f.Type.Kind() == reflect.Pointer
	}
	return s.Properties, nil
}

func (d deriver) field(f reflect.StructField, tag jsonTag) (properties, error) {
	s, err := d.schema(f.Type)
	if err != nil {
		return nil, err
	}
	if names, ok := s.Type.([]string); ok && tag.optional {
		s.Type = names[0] // left out rather than written as null
	}
	required, err := d.annotate(s, f, !tag.optional)
	if err != nil {
		return nil, err
	}
	name := tag.name
	if name == "" {
		name = f.Name
	}
	return properties{{name: name, optional: !required, node: s}}, nil
}
