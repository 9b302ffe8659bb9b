package validate

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
)

// Subschemas returns how many objects and booleans a schema has, which bounds
// the schemas in it. Compiling one takes about 7 KB and looks at all compiled
// before, so the time grows with the square of their number.
func Subschemas(doc []byte) (n int) {
	d := json.NewDecoder(bytes.NewReader(doc))
	for {
		token, err := d.Token()
		if err != nil {
			return n
		}
		switch token {
		case json.Delim('{'), true, false:
			n++
		}
	}
}

// bound refuses a schema that could keep a validator busy for ever: one that is
// too deep, whose references leave the document or form a circle, or that is too
// large once its references are replaced. It returns the number of nodes.
func bound(root any) (nodes int, err error) {
	b := bounder{root: root, sizes: map[string]int{}}
	return b.size(root, 0)
}

type bounder struct {
	root  any
	sizes map[string]int // expanded size by reference; 0 while it is being computed
}

// size returns how many nodes v has with its references replaced.
func (b *bounder) size(v any, depth int) (int, error) {
	if depth > maxSchemaDepth {
		return 0, fmt.Errorf("is nested deeper than %d", maxSchemaDepth)
	}
	total := 1
	for _, child := range children(v) {
		n, err := b.size(child, depth+1)
		if err != nil {
			return 0, err
		}
		total += n
	}
	if ref, ok := reference(v); ok {
		n, err := b.follow(ref)
		if err != nil {
			return 0, err
		}
		total += n
	}
	if total > maxSchemaNodes {
		return 0, fmt.Errorf("has more than %d nodes once its references are replaced", maxSchemaNodes)
	}
	return total, nil
}

func (b *bounder) follow(ref string) (int, error) {
	n, seen := b.sizes[ref]
	if seen && n == 0 {
		return 0, fmt.Errorf("refers to itself through %q: recursive schemas are not accepted", ref)
	}
	if seen {
		return n, nil
	}
	target, err := resolve(b.root, ref)
	if err != nil {
		return 0, err
	}
	b.sizes[ref] = 0
	n, err = b.size(target, 0)
	b.sizes[ref] = n
	return n, err
}

func children(v any) []any {
	switch v := v.(type) {
	case []any:
		return v
	case map[string]any:
		all := make([]any, 0, len(v))
		for _, child := range v {
			all = append(all, child)
		}
		return all
	}
	return nil
}

// reference returns the reference of a schema object. $dynamicRef resolves
// through anchors, which are refused below, so it is a $ref as well.
func reference(v any) (string, bool) {
	object, _ := v.(map[string]any)
	for _, keyword := range []string{"$ref", "$dynamicRef", "$recursiveRef"} {
		if ref, ok := object[keyword].(string); ok {
			return ref, true
		}
	}
	return "", false
}

// resolve follows a reference of the form #/a/b (RFC 6901). Other forms, by
// anchor or by $id, have no use within one tool's schema.
func resolve(root any, ref string) (any, error) {
	pointer, local := strings.CutPrefix(ref, "#")
	if !local || (pointer != "" && pointer[0] != '/') {
		return nil, fmt.Errorf("refers to %q: only references of the form #/$defs/name are accepted", ref)
	}
	at := root
	for _, token := range strings.Split(pointer, "/")[1:] {
		token = strings.NewReplacer("~1", "/", "~0", "~").Replace(token)
		object, ok := at.(map[string]any)
		if !ok || object[token] == nil {
			return nil, fmt.Errorf("refers to %q, which is not in it", ref)
		}
		at = object[token]
	}
	return at, nil
}
