package openapi

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/starling-host/starling/internal/config"
	"github.com/starling-host/starling/internal/display"
	"github.com/starling-host/starling/internal/lists"
)

// Bounds on the schemas of a module. Earlier hosts take 5,000 subschemas together, and all hosts 64 KiB
// for each tool; a model reads all of them before its first turn, so the rest is stricter.
const (
	maxSubschemas  = 4_900
	maxSchemaBytes = 32 << 10
	maxAllBytes    = 512 << 10
	maxDepth       = 8
	maxEnumBytes   = 4 << 10
	maxDescription = 1_000
	maxNote        = 400 // of a parameter
	maxInnerNote   = 200 // of a value within it
)

// fit translates the schemas of all operations. While they are too large, the largest loses the
// deepest level, in which any value is allowed then.
func (d *document) fit() error {
	for _, op := range d.operations {
		op.depth = maxDepth
		if err := d.translate(op); err != nil {
			return err
		}
	}
	for {
		subschemas, size, large := 0, 0, false
		var largest *operation
		for _, op := range d.operations {
			n := bytes.Count(op.Input, []byte("{")) + bytes.Count(op.Input, []byte("true")) + bytes.Count(op.Input, []byte("false"))
			subschemas, size = subschemas+n, size+len(op.Input)
			large = large || op.size > maxSchemaBytes
			if op.depth > 0 && (largest == nil || op.size > largest.size) {
				largest = op
			}
		}
		if !large && subschemas <= maxSubschemas && size <= maxAllBytes {
			break
		}
		if largest == nil {
			return d.root.At("paths").Errorf("choose fewer operations with --only", "the operations have more parameters than a module may describe")
		}
		largest.depth--
		if err := d.translate(largest); err != nil {
			return err
		}
	}
	for _, op := range d.operations {
		if op.cut {
			d.notes = append(d.notes, fmt.Sprintf("the schema of %s is shortened, and the rest may be any value", op.Name))
		}
	}
	return nil
}

// translate makes the schema of an operation's input.
func (d *document) translate(op *operation) error {
	t := &translator{doc: d, left: maxSchemaBytes}
	properties, required := map[string]any{}, []string{}
	for _, p := range op.properties {
		t.multipart = p.multipart
		schema := p.schema
		if schema == nil {
			schema = t.schema(p.node, op.depth, nil)
		}
		if p.description != "" {
			schema["description"] = p.description
		}
		properties[p.key] = schema
		if p.required {
			required = append(required, p.key)
		}
	}
	op.Input = encode(map[string]any{"type": "object", "properties": properties, "required": required, "additionalProperties": false})
	op.size, op.cut = len(op.Input), t.cut
	if t.left < 0 {
		op.size += maxAllBytes
	}
	return t.err
}

// translator makes JSON Schema of schemas of OpenAPI 3.0 and 3.1. The result has no references,
// because the host refuses recursive ones and some models do not follow the others. It may allow
// more than the document, and the server has the last word.
type translator struct {
	doc       *document
	left      int // bytes of the schemas, about
	cut       bool
	multipart bool
	err       error
}

var (
	types  = []string{"null", "boolean", "object", "array", "number", "string", "integer"}
	counts = []string{"minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties"}
)

// schema translates a schema to a depth. above are the targets of the references around it.
func (t *translator) schema(n *config.Node, depth int, above []*config.Node) map[string]any {
	out := map[string]any{}
	if n == nil || n.Kind() != config.Map {
		return out
	}
	if err := t.doc.spend(n, 1); err != nil {
		t.err = cmp.Or(t.err, err)
		return out
	}
	if t.left -= 16; t.left < 0 {
		t.cut = true
		return out
	}
	if n.At("$ref") != nil {
		target, err := t.doc.follow(n)
		if err != nil {
			t.err = cmp.Or(t.err, err)
			return out
		}
		if slices.Contains(above, target) {
			depth = 0
		}
		out = t.schema(target, depth, append(slices.Clip(above), target))
	} else if t.multipart && (text(n.At("format")) == "binary" || n.At("contentMediaType") != nil && n.At("contentEncoding") == nil) { // bytes in 3.0 or 3.1
		return fileSchema(plain(n.At("description"), maxInnerNote))
	} else {
		t.scalars(out, n)
		if depth > 0 {
			t.children(out, n, depth, above)
		} else {
			for _, keyword := range []string{"properties", "items", "allOf", "anyOf", "oneOf"} {
				t.cut = t.cut || n.At(keyword) != nil
			}
		}
	}
	if isTrue(n.At("nullable")) { // 3.0
		out = orNull(out)
	}
	if description := plain(n.At("description"), maxInnerNote); description != "" {
		out["description"] = description
	}
	return out
}

// scalars translates the keywords that contain no schemas. Values that JSON Schema does not take
// are left out.
func (t *translator) scalars(out map[string]any, n *config.Node) {
	var kinds []string
	for _, kind := range append([]*config.Node{n.At("type")}, n.At("type").Items()...) {
		if kind := text(kind); slices.Contains(types, kind) && !slices.Contains(kinds, kind) {
			kinds = append(kinds, kind)
		}
	}
	switch len(kinds) {
	case 0:
	case 1:
		out["type"] = kinds[0]
	default:
		out["type"] = kinds
	}
	if format := text(n.At("format")); format != "" {
		out["format"] = display.Clip(format, 40)
	}
	for _, keyword := range counts {
		if n := n.At(keyword); n != nil {
			if count, ok := n.Value().(int64); ok && count >= 0 {
				out[keyword] = count
			}
		}
	}
	if isTrue(n.At("uniqueItems")) {
		out["uniqueItems"] = true
	}
	for bound, exact := range map[string]string{"minimum": "exclusiveMinimum", "maximum": "exclusiveMaximum"} {
		for _, keyword := range []string{bound, exact} {
			if n := n.At(keyword); n != nil && n.Kind() == config.Number {
				out[keyword] = n.Value()
			}
		}
		if value, ok := out[bound]; ok && isTrue(n.At(exact)) { // 3.0
			delete(out, bound)
			out[exact] = value
		}
	}
	for _, keyword := range []string{"enum", "const", "default"} {
		value := n.At(keyword)
		if value == nil || keyword == "enum" && len(value.Items()) == 0 {
			continue
		}
		v := value.Value()
		doc := encode(v)
		_ = t.doc.budget.Spend(len(doc) / 8) // each time that it is read; the next schema looks at the sum
		if len(doc) <= maxEnumBytes {
			out[keyword] = v
		} else {
			t.cut = true
		}
	}
}

// children translates the keywords that contain schemas.
func (t *translator) children(out map[string]any, n *config.Node, depth int, above []*config.Node) {
	properties, required, hidden := map[string]any{}, map[string]bool{}, map[string]bool{}
	for key, child := range n.At("properties").Pairs() {
		target, err := t.doc.follow(child)
		t.err = cmp.Or(t.err, err)
		if hidden[text(key)] = isTrue(target.At("readOnly")); !hidden[text(key)] {
			properties[text(key)] = t.schema(child, depth-1, above)
		}
	}
	for _, item := range n.At("required").Items() {
		if name := text(item); !hidden[name] {
			required[name] = true
		}
	}
	if items := n.At("items"); items != nil {
		out["items"] = t.schema(items, depth-1, above)
	}
	if more := n.At("additionalProperties"); more != nil && more.Kind() == config.Map {
		out["additionalProperties"] = t.schema(more, depth-1, above)
	} else if more != nil && more.Value() == false {
		out["additionalProperties"] = false
	}
	for _, keyword := range []string{"anyOf", "oneOf"} { // the server judges a value that fits two of oneOf
		if choices := n.At(keyword).Items(); len(choices) > 0 {
			out["anyOf"] = lists.Map(choices, func(item *config.Node) any { return t.schema(item, depth-1, above) })
		}
	}
	for _, part := range n.At("allOf").Items() { // merged, because few models understand it
		for keyword, value := range t.schema(part, depth, above) {
			switch _, known := out[keyword]; {
			case keyword == "properties":
				for name, schema := range value.(map[string]any) {
					if properties[name] == nil {
						properties[name] = schema
					}
				}
			case keyword == "required":
				for _, name := range value.([]string) {
					required[name] = true
				}
			case !known && keyword != "additionalProperties":
				out[keyword] = value
			}
		}
	}
	if len(properties) > 0 {
		out["properties"] = properties
	}
	if len(required) > 0 {
		out["required"] = slices.Sorted(maps.Keys(required))
	}
}

// orNull allows null in addition to what a schema allows.
func orNull(schema map[string]any) map[string]any {
	switch kind := schema["type"].(type) {
	case string:
		schema["type"] = []string{kind, "null"}
	case nil:
		if len(schema) > 0 {
			return map[string]any{"anyOf": []any{schema, map[string]any{"type": "null"}}}
		}
	}
	if values, ok := schema["enum"].([]any); ok && !slices.Contains(values, nil) {
		schema["enum"] = append(values, nil)
	}
	return schema
}

// fileSchema describes a file in the input.
func fileSchema(description string) map[string]any {
	member := map[string]any{"type": "string"}
	return map[string]any{
		"type": "object", "description": strings.TrimSpace(description + " A file: its content is in text, or in base64."), "additionalProperties": false,
		"properties": map[string]any{"text": member, "base64": member, "filename": member, "type": member},
	}
}
