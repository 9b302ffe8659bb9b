package schema

import (
	"fmt"
	"reflect"
	"strings"
	"unicode"
)

// jsonTag is what the tag json says about a field.
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

// parseSchemaTag reads description=TEXT and enum=VALUE, separated by commas. A
// comma that does not stand before a word and an equals sign is part of the
// value, so that a description may be a sentence.
func parseSchemaTag(tag string) (description string, enum []string, err error) {
	for tag != "" {
		key, rest, found := strings.Cut(tag, "=")
		if !found || !isWord(key) {
			return "", nil, fmt.Errorf("tag jsonschema: %q does not begin with description= or enum=", tag)
		}
		var value string
		value, tag = cutValue(rest)
		switch key {
		case "description":
			description = value
		case "enum":
			enum = append(enum, value)
		default:
			return "", nil, fmt.Errorf("tag jsonschema: %s= is neither description= nor enum=; in a text, put a space after the comma", key)
		}
	}
	return description, enum, nil
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
