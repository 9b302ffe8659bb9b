package validate

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/starling-host/starling/internal/work"
)

// bounder refuses a schema that could keep a validator busy for ever: one that is
// too deep, or whose references leave the document or form a circle. It charges for
// the rest: a step for each node, as often as references repeat it, and what
// the library needs to compile the node.
type bounder struct {
	*work.Budget
	root    any
	sizes   map[string]int // expanded size by reference; 0 while it is being computed
	schemas int            // objects and booleans seen, which bounds the subschemas
	held    int            // bytes that the compiled nodes keep
}

// size returns how many nodes v has with its references replaced.
func (b *bounder) size(v any, depth int) (int, error) {
	if depth > maxSchemaDepth {
		return 0, fmt.Errorf("is nested deeper than %d", maxSchemaDepth)
	}
	total, steps, bytes := 1, 1, scalarBytes
	switch v.(type) {
	case map[string]any, bool:
		b.schemas++
		bytes = subschemaBytes
		steps += b.schemas / 2 // the library compares a subschema with all before it
	}
	b.held += bytes
	if err := cmp.Or(b.Spend(steps), b.Hold(bytes)); err != nil {
		return 0, err
	}
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
	return total, nil
}

func (b *bounder) follow(ref string) (int, error) {
	n, seen := b.sizes[ref]
	if seen && n == 0 {
		return 0, fmt.Errorf("refers to itself through %q: recursive schemas are not accepted", ref)
	}
	if seen {
		return n, b.Spend(n)
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
