package schema

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strconv"
)

// annotate adds the settings in a field's tags, and returns whether the member
// is required; usually is the default, from the tag json. Defaults concern only
// the reader, so an output has none.
func (d deriver) annotate(s *node, f reflect.StructField, usually bool) (required bool, err error) {
	s.Description = f.Tag.Get("description")
	settings, err := parseSchemaTag(f.Tag.Get("jsonschema"))
	if err != nil {
		return false, err
	}
	required = usually
	for _, set := range settings {
		switch {
		case set.key != "required" && set.key != "default":
			err = s.set(set)
		case d.output:
		case set.key == "required":
			required, err = strconv.ParseBool(set.value)
		default:
			required = false
			s.Default, err = s.value(set.value)
		}
		if err != nil {
			return false, fmt.Errorf("tag jsonschema: %v: %w", set, err)
		}
	}
	return required, nil
}

// set adds one setting to the node.
func (s *node) set(set setting) (err error) {
	switch set.key {
	case "description":
		s.Description = set.value
	case "enum":
		err = s.addEnum(set.value)
	case "pattern":
		s.Pattern, err = set.value, s.only("string")
	case "minLength":
		s.MinLength, err = s.count(set.value, "string")
	case "maxLength":
		s.MaxLength, err = s.count(set.value, "string")
	case "minItems":
		s.MinItems, err = s.count(set.value, "array")
	case "maxItems":
		s.MaxItems, err = s.count(set.value, "array")
	case "minimum":
		s.Minimum, err = s.bound(set.value)
	case "maximum":
		s.Maximum, err = s.bound(set.value)
	default:
		err = fmt.Errorf("unknown key; in a text, put a space after the comma")
	}
	return err
}

// kind is the type of the node, without the null of an output.
func (s *node) kind() string {
	switch t := s.Type.(type) {
	case string:
		return t
	case []string:
		return t[0]
	}
	return "any value"
}

// only refuses a setting that means nothing for the node's type.
func (s *node) only(kinds ...string) error {
	if !slices.Contains(kinds, s.kind()) {
		return fmt.Errorf("is for type %s, and this is %s", kinds[0], s.kind())
	}
	return nil
}

// count reads a length of a string or an array, which a fixed array has already.
func (s *node) count(text, kind string) (*int, error) {
	if err := s.only(kind); err != nil {
		return nil, err
	}
	if s.MinItems != nil && s.MaxItems != nil && *s.MinItems == *s.MaxItems {
		return nil, fmt.Errorf("a fixed array has %d items", *s.MinItems)
	}
	n, err := strconv.ParseUint(text, 10, 31)
	count := int(n)
	return &count, err
}

// bound reads a minimum or maximum.
func (s *node) bound(text string) (any, error) {
	if err := s.only("number", "integer"); err != nil {
		return nil, err
	}
	return s.value(text)
}

func (s *node) addEnum(text string) error {
	switch s.Type {
	case "string", "integer", "number":
	default:
		return fmt.Errorf("only strings and numbers can have an enum")
	}
	value, err := s.value(text)
	if err != nil {
		return err
	}
	if slices.Contains(s.Enum, value) {
		return fmt.Errorf("is repeated")
	}
	s.Enum = append(s.Enum, value)
	return nil
}

// value reads a value of the node's type: a string as it stands, anything else
// as JSON.
func (s *node) value(text string) (any, error) {
	switch s.kind() {
	case "string":
		return text, nil
	case "integer":
		return strconv.ParseInt(text, 10, 64)
	case "number":
		return finite(text)
	case "boolean":
		return strconv.ParseBool(text)
	}
	if !json.Valid([]byte(text)) {
		return nil, fmt.Errorf("is not JSON")
	}
	return json.RawMessage(text), nil
}

func finite(text string) (float64, error) {
	f, err := strconv.ParseFloat(text, 64)
	if err == nil && f-f != 0 {
		err = fmt.Errorf("is not a number that JSON has")
	}
	return f, err
}
