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

// setting is one KEY=VALUE of the tag jsonschema.
type setting struct{ key, value string }

func (s setting) String() string { return s.key + "=" + s.value }

// parseSchemaTag reads settings that are separated by commas. A comma that does
// not stand before a word and an equals sign is part of the value, so that a
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
