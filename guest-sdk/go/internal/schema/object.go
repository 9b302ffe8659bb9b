package schema

import (
	"fmt"
	"reflect"
	"strings"
	"unicode"
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

// members lists a struct's members of an object: its fields, and the fields
// of structs that it embeds without a name.
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

// jsonTag is a parsed json tag.
type jsonTag struct {
	name     string // "": the field's own
	skip     bool
	optional bool
}

func parseJSONTag(f reflect.StructField) (jsonTag, error) {
	text := f.Tag.Get("json")
	if text == "-" {
		return jsonTag{skip: true}, nil
	}
	name, options, _ := strings.Cut(text, ",")
	tag := jsonTag{name: name}
	for option := range strings.SplitSeq(options, ",") {
		switch option {
		case "omitempty", "omitzero":
			tag.optional = true
		case "string":
			return jsonTag{}, fmt.Errorf("tag json: a number or boolean in quotes is more than a schema can say")
		}
	}
	if strings.ContainsFunc(name, notInName) {
		return jsonTag{}, fmt.Errorf("tag json: encoding/json ignores the name %q, use letters, digits and common punctuation", name)
	}
	return tag, nil
}

// notInName reports whether encoding/json ignores a name that holds r.
func notInName(r rune) bool {
	return !strings.ContainsRune("!#$%&()*+-./:;<=>?@[]^_{|}~ ", r) && !unicode.IsLetter(r) && !unicode.IsDigit(r)
}

// setting is one KEY=VALUE of the tag jsonschema.
type setting struct{ key, value string }

func (s setting) String() string { return s.key + "=" + s.value }

// parseSchemaTag reads settings that are separated by commas. A comma that does
// not precede a word and an equals sign is part of the value, so that a
// description may be a sentence and a pattern may count.
func parseSchemaTag(tag string) ([]setting, error) {
	var settings []setting
	for tag != "" {
		key, rest, found := strings.Cut(tag, "=")
		if !found || !isWord(key) {
			return nil, fmt.Errorf("tag jsonschema: %q does not begin with a key and an equals sign, such as description=", tag)
		}
		var value string
		value, tag = cutValue(rest)
		settings = append(settings, setting{key, value})
	}
	return settings, nil
}

// cutValue splits text before the next key.
func cutValue(text string) (value, rest string) {
	for i := range len(text) {
		if text[i] != ',' {
			continue
		}
		if key, _, found := strings.Cut(text[i+1:], "="); found && isWord(key) {
			return text[:i], text[i+1:]
		}
	}
	return text, ""
}

func isWord(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsLetter(r) })
}
