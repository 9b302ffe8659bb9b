package guest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"slices"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"
	"golang.org/x/text/language"
	"golang.org/x/text/message"
)

// Bounds on a schema that a module brings along. A validator follows a schema
// wherever it leads, so what it may lead to is bounded before it is compiled.
const (
	maxSchemaBytes = 64 << 10
	maxSchemaDepth = 48
	// maxSchemaNodes bounds a schema's size after every $ref has been replaced
	// by what it names. Twenty definitions that each name the next one twice
	// are a kilobyte of text and a million nodes of work.
	maxSchemaNodes = 20_000
	// maxProblems bounds the list of what is wrong with one document.
	maxProblems = 50
)

// schema is a compiled JSON Schema.
type schema struct{ compiled *jsonschema.Schema }

// compileSchema compiles a module's schema, which is canonical JSON. The
// default dialect is draft 2020-12; nothing outside of the document is loaded.
func compileSchema(doc []byte) (*schema, error) {
	if len(doc) > maxSchemaBytes {
		return nil, fmt.Errorf("is %d bytes, more than %d", len(doc), maxSchemaBytes)
	}
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(doc))
	if err != nil {
		return nil, err
	}
	if err := boundSchema(value); err != nil {
		return nil, err
	}
	const url = "schema.json"
	c := jsonschema.NewCompiler()
	c.UseLoader(noLoader{})
	if err := c.AddResource(url, value); err != nil {
		return nil, err
	}
	compiled, err := c.Compile(url)
	if err != nil {
		return nil, err
	}
	return &schema{compiled}, nil
}

// noLoader refuses every reference that leaves the document.
type noLoader struct{}

func (noLoader) Load(url string) (any, error) {
	return nil, fmt.Errorf("refers to %q: a schema may only refer to itself", url)
}

// check returns what is wrong with doc, nil when nothing is. Every problem is
// listed, in the order of the places that they name. Like a schema, doc is
// canonical JSON: its numbers are of bounded size, where 1e999999999 would keep
// exact arithmetic busy for ever.
func (s *schema) check(doc []byte) error {
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(doc))
	if err != nil {
		return err
	}
	err = s.compiled.Validate(value)
	var invalid *jsonschema.ValidationError
	if !errors.As(err, &invalid) {
		return err
	}
	return &SchemaError{Problems: problems(invalid)}
}

// SchemaError lists everything in which a document does not match its schema.
type SchemaError struct {
	// Problems are ordered by Pointer.
	Problems []Problem
}

// Problem is one mismatch.
type Problem struct {
	Pointer string // RFC 6901; empty for the document itself
	Message string
}

// String returns the problem with the place first.
func (p Problem) String() string {
	if p.Pointer == "" {
		return "(document): " + p.Message
	}
	return p.Pointer + ": " + p.Message
}

// Error lists the problems, separated by semicolons.
func (e *SchemaError) Error() string {
	lines := make([]string, len(e.Problems))
	for i, p := range e.Problems {
		lines[i] = p.String()
	}
	return strings.Join(lines, "; ")
}

// problems flattens a validation error to its leaves. The inner nodes only say
// that something below them failed.
func problems(err *jsonschema.ValidationError) []Problem {
	var found []Problem
	collect(err, message.NewPrinter(language.English), &found)
	slices.SortStableFunc(found, func(a, b Problem) int { return strings.Compare(a.Pointer, b.Pointer) })
	found = slices.Compact(found)
	if more := len(found) - maxProblems; more > 0 {
		found = append(found[:maxProblems], Problem{Message: fmt.Sprintf("and %d more", more)})
	}
	return found
}

func collect(err *jsonschema.ValidationError, printer *message.Printer, found *[]Problem) {
	if len(err.Causes) == 0 {
		*found = append(*found, Problem{pointer(err.InstanceLocation), explain(err.ErrorKind, printer)})
	}
	for _, cause := range err.Causes {
		collect(cause, printer, found)
	}
}

// explain words a mismatch. Bounds are worded here because the library prints
// numbers as floats, in which 9007199254740993 and 9007199254740992 are one.
func explain(mismatch jsonschema.ErrorKind, printer *message.Printer) string {
	switch k := mismatch.(type) {
	case *kind.Minimum:
		return fmt.Sprintf("got %s, want at least %s", number(k.Got), number(k.Want))
	case *kind.Maximum:
		return fmt.Sprintf("got %s, want at most %s", number(k.Got), number(k.Want))
	case *kind.ExclusiveMinimum:
		return fmt.Sprintf("got %s, want more than %s", number(k.Got), number(k.Want))
	case *kind.ExclusiveMaximum:
		return fmt.Sprintf("got %s, want less than %s", number(k.Got), number(k.Want))
	case *kind.MultipleOf:
		return fmt.Sprintf("got %s, want a multiple of %s", number(k.Got), number(k.Want))
	}
	return mismatch.LocalizedString(printer)
}

// number prints an integer exactly and any other number to nine places.
func number(r *big.Rat) string {
	if r.IsInt() {
		return r.Num().String()
	}
	return strings.TrimRight(r.FloatString(9), "0")
}

// pointer joins the tokens of a place to an RFC 6901 pointer.
func pointer(tokens []string) string {
	var b strings.Builder
	for _, t := range tokens {
		b.WriteByte('/')
		b.WriteString(strings.NewReplacer("~", "~0", "/", "~1").Replace(t))
	}
	return b.String()
}

// boundSchema refuses a schema that a validator could be made to follow for
// ever: one that is too deep, one whose references leave the document or form
// a circle, one that is too large once its references are replaced.
func boundSchema(root any) error {
	b := bounder{root: root, sizes: map[string]int{}}
	_, err := b.size(root, 0)
	return err
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

// isObjectSchema reports whether a schema says "type": "object", which a
// tool's input must be: models and MCP clients send nothing else.
func isObjectSchema(doc []byte) bool {
	var head struct {
		Type string `json:"type"`
	}
	return json.Unmarshal(doc, &head) == nil && head.Type == "object"
}
