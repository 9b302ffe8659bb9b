package validate

import (
	"bytes"
	"encoding/json"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// valuesOf returns the values of a document, with nil in the place of those that a schema does
// not look at: most of a large document, for most schemas.
func valuesOf(doc []byte, schema any) (any, error) {
	r := values{text: string(doc)}
	if v := r.value(schema); !r.strange && r.at == len(r.text) {
		return v, nil
	}
	return jsonschema.UnmarshalJSON(bytes.NewReader(doc)) // it has spaces, or is not JSON
}

// values reads JSON without spaces.
type values struct {
	text    string
	at      int
	strange bool // something is not as it is in such JSON
}

// flat are the keywords that look no deeper than at the keys of an object, the length of a list
// and the value of anything else.
var flat = map[string]bool{
	"$schema": true, "$comment": true, "title": true, "description": true, "default": true, "examples": true,
	"type": true, "required": true, "minProperties": true, "maxProperties": true, "minItems": true, "maxItems": true,
	"minLength": true, "maxLength": true, "pattern": true, "format": true, "minimum": true, "maximum": true,
	"exclusiveMinimum": true, "exclusiveMaximum": true, "multipleOf": true,
}

// whole is a schema that looks at all of a value.
var whole any = map[string]any{"const": nil}

// inside returns what a schema asks of the members of an object by name, and of the elements of
// a list. Of what it asks nothing, it has nil.
func inside(schema any) (members map[string]any, element, others any) {
	object, _ := schema.(map[string]any) // or it is true or false
	for keyword, sub := range object {
		_, isSchema := sub.(map[string]any)
		_, isBool := sub.(bool)
		switch {
		case flat[keyword], keyword == "additionalProperties" && isBool:
		case keyword == "properties" && isSchema:
			members = sub.(map[string]any)
		case keyword == "items" && (isSchema || isBool):
			element = sub
		default:
			return nil, whole, whole
		}
	}
	return members, element, nil
}

// value reads a value that a schema looks at, or that none looks at for nil.
func (r *values) value(schema any) any {
	start := r.at
	switch c := r.peek(); {
	case c == '"':
		return r.string()
	case c == '{' || c == '[':
		if schema == nil {
			r.skip()
			return nil
		}
		members, element, others := inside(schema)
		object, list := map[string]any{}, []any{}
		r.at++
		for first := true; r.peek() != c+2; first = false { // } and ] are two behind { and [
			if r.strange || !first && !r.take(',') {
				r.strange = true
				return nil
			}
			if c == '[' {
				list = append(list, r.value(element))
				continue
			}
			key := r.string()
			r.strange = r.strange || !r.take(':')
			sub, ok := members[key]
			if !ok {
				sub = others
			}
			object[key] = r.value(sub)
		}
		r.at++
		if c == '[' {
			return list
		}
		return object
	case strings.HasPrefix(r.text[r.at:], "null"):
		r.at += len("null")
		return nil
	case strings.HasPrefix(r.text[r.at:], "true"):
		r.at += len("true")
		return true
	case strings.HasPrefix(r.text[r.at:], "false"):
		r.at += len("false")
		return false
	}
	for r.at < len(r.text) && strings.IndexByte("+-.0123456789Ee", r.text[r.at]) >= 0 {
		r.at++
	}
	r.strange = r.strange || r.at == start
	return json.Number(r.text[start:r.at])
}

func (r *values) peek() byte {
	if r.at < len(r.text) {
		return r.text[r.at]
	}
	return 0
}

func (r *values) take(c byte) bool {
	ok := r.peek() == c
	r.at++
	return ok
}

// string reads a string.
func (r *values) string() (s string) {
	start := r.at
	if plain := r.quoted(); plain || r.strange {
		return r.text[min(start+1, len(r.text)):max(r.at-1, start+1)]
	}
	r.strange = json.Unmarshal([]byte(r.text[start:r.at]), &s) != nil
	return s
}

// quoted moves behind a string, and reports whether it has no escapes.
func (r *values) quoted() (plain bool) {
	plain = true
	if !r.take('"') {
		r.strange = true
		return false
	}
	for {
		n := strings.IndexByte(r.text[r.at:], '"')
		if n < 0 {
			r.strange = true
			return false
		}
		part := r.text[r.at : r.at+n]
		r.at += n + 1
		escapes := len(part) - len(strings.TrimRight(part, `\`))
		plain = plain && strings.IndexByte(part, '\\') < 0
		if escapes%2 == 0 {
			return plain
		}
	}
}

// skip moves behind an object or a list.
func (r *values) skip() {
	for depth := 0; !r.strange; {
		switch r.peek() {
		case '"':
			r.quoted()
			continue
		case '{', '[':
			depth++
		case '}', ']':
			depth--
		case 0:
			r.strange = true
		}
		if r.at++; depth == 0 {
			return
		}
	}
}
