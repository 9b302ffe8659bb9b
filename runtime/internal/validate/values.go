package validate

import (
	"bytes"
	"encoding/json"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// valuesOf returns the values of a document. Values that a schema does not look at are nil: most of
// a large document, for most schemas.
func valuesOf(doc []byte, schema any) (any, error) {
	r := values{text: doc}
	if v := r.value(schema); !r.strange && r.at == len(r.text) {
		return v, nil
	}
	return jsonschema.UnmarshalJSON(bytes.NewReader(doc)) // it has spaces, or is not JSON
}

// values reads JSON without spaces.
type values struct {
	text    []byte
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

// inside returns the parts of a schema that apply to the members of an object, by name, to the
// other members, and to the elements of a list. A part is nil if the schema does not restrict them.
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
	case bytes.HasPrefix(r.text[r.at:], []byte("null")):
		r.at += len("null")
		return nil
	case bytes.HasPrefix(r.text[r.at:], []byte("true")):
		r.at += len("true")
		return true
	case bytes.HasPrefix(r.text[r.at:], []byte("false")):
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
	quoted := r.quoted()
	if r.strange {
		return ""
	}
	if bytes.IndexByte(quoted, '\\') < 0 {
		return string(quoted[1 : len(quoted)-1])
	}
	r.strange = json.Unmarshal(quoted, &s) != nil
	return s
}

// quoted moves behind a string and returns it with its quotes.
func (r *values) quoted() []byte {
	start := r.at
	for at := start + 1; r.peek() == '"'; {
		n := bytes.IndexByte(r.text[at:], '"')
		if n < 0 {
			break
		}
		if at += n + 1; !escaped(r.text[start+1 : at-1]) {
			r.at = at
			return r.text[start:at]
		}
	}
	r.strange = true
	return nil
}

// escaped reports whether a backslash at the end of s escapes what follows.
func escaped(s []byte) bool {
	return len(s) > 0 && s[len(s)-1] == '\\' && (len(s)-len(bytes.TrimRight(s, `\`)))%2 == 1
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
