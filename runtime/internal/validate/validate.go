package validate

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/big"
	"net/url"
	"regexp"
	"regexp/syntax"
	"slices"
	"strings"
	"unicode"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"
	"golang.org/x/text/language"
	"golang.org/x/text/message"

	"github.com/starling-host/starling/internal/display"
	"github.com/starling-host/starling/internal/lazy"
	"github.com/starling-host/starling/internal/lists"
	"github.com/starling-host/starling/internal/work"
)

const (
	maxSchemaBytes = 64 << 10 // the longest schema of a tool
	maxSchemaDepth = 48       // of nesting, which is how deep the library recurses
	maxProblems    = 50       // that are listed of one document
	maxNamed       = 5        // members that [Error.Brief] names in one problem
	maxLine        = 1 << 10  // bytes of a place, and of a message, there

	// Bytes of what is kept of a node of a schema, as measured.
	subschemaBytes = 1280
	scalarBytes    = 64
)

// Schema is a compiled JSON Schema. It is safe for concurrent use.
type Schema struct {
	compiled *jsonschema.Schema
	size     int
	root     any            // the document
	patterns map[string]int // the steps of each
}

// Size returns about how many bytes the schema keeps. Nil has zero.
func (s *Schema) Size() int {
	if s == nil {
		return 0
	}
	return s.size
}

// Compile compiles a schema, which is canonical JSON. The default dialect is
// draft 2020-12; nothing outside of the document is loaded. The error describes
// the fault, without naming the schema's owner. The budget pays for the
// compilation and keeps what the schema holds.
func Compile(b *work.Budget, doc []byte) (*Schema, error) {
	if len(doc) > maxSchemaBytes {
		return nil, fmt.Errorf("is %d bytes, more than %d", len(doc), maxSchemaBytes)
	}
	if err := b.Spend(len(doc) / 64); err != nil {
		return nil, err
	}
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(doc))
	if err != nil {
		return nil, err
	}
	nodes := bounder{Budget: b, root: value, sizes: map[string]int{}}
	if _, err := nodes.size(value, 0); err != nil {
		return nil, err
	}
	const location = "schema:///" // a relative one would be taken for a file of the working directory
	c := jsonschema.NewCompiler()
	c.UseLoader(noLoader{})
	all := patterns{budget: b, of: map[string]int{}}
	c.UseRegexpEngine(all.compile)
	if err := c.AddResource(location, value); err != nil {
		return nil, err
	}
	compiled, err := c.Compile(location)
	var mismatch *jsonschema.SchemaValidationError
	var invalid *jsonschema.ValidationError
	switch {
	case errors.As(err, &mismatch) && errors.As(mismatch.Err, &invalid):
		return nil, fmt.Errorf("is not valid: %v", &Error{Problems: problems(invalid)}) // no [Error], which is about an input
	case err != nil:
		return nil, err
	}
	all.closed, all.budget = true, nil
	return &Schema{compiled, nodes.held + all.held, value, all.of}, nil
}

// noLoader refuses every reference that leaves the document.
type noLoader struct{}

func (noLoader) Load(url string) (any, error) {
	return nil, fmt.Errorf("refers to %q: a schema may only refer to itself", url)
}

// Check returns the problems of doc as an [*Error], or nil. Every problem is listed, in
// the order of the places that they name. Like a schema, doc is canonical JSON: its
// numbers are of bounded size, where 1e999999999 would keep exact arithmetic busy for
// ever. If a document is large for its schema, Check does not list its problems; if
// checking it would take too long, it is invalid as well.
func (s *Schema) Check(doc []byte) error {
	value, err := valuesOf(doc, s.root)
	if err != nil {
		return err
	}
	return s.check(value)
}

// CheckNew is [Schema.Check] for a document that is not from a recording. The budget pays for it in
// units of about a microsecond. If it has too few, the check is not made, and the error matches
// [ErrCost].
func (s *Schema) CheckNew(b *work.Budget, doc []byte) error {
	value, err := valuesOf(doc, s.root)
	if err != nil {
		return err
	}
	if err := s.cost(b, perUnit, value); errors.Is(err, work.ErrExceeded) {
		return ErrCost
	} else if err != nil {
		return err
	}
	return s.check(value)
}

// check lists the mismatches of a document, if it is not too large for that.
func (s *Schema) check(doc any) error {
	within := func(l work.Limits, r rates) bool {
		return s.cost(work.New(context.Background(), l), r, doc) == nil
	}
	if within(maxListed, perListed) {
		err := s.compiled.Validate(doc)
		var invalid *jsonschema.ValidationError
		if !errors.As(err, &invalid) {
			return err
		}
		return &Error{Problems: problems(invalid)}
	}
	if !within(maxSteps, perStep) {
		return errTooMuch
	}
	// Whether the document matches "not" the schema, for which the library makes no list of mismatches.
	not := jsonschema.Schema{DraftVersion: s.compiled.DraftVersion, Location: s.compiled.Location, Not: s.compiled}
	err := not.Validate(doc)
	switch {
	case err == nil:
		return errMismatch
	case errors.As(err, new(*jsonschema.ValidationError)):
		return nil
	}
	return err
}

// Error lists every mismatch of a document with its schema.
type Error struct {
	// Problems are ordered by Pointer, and then by Message.
	Problems []Problem
}

// Problem is one mismatch.
type Problem struct {
	Pointer string // RFC 6901; empty for the document itself
	Message string
	Keyword string // the place of the keyword in the schema, as Pointer; that of the schema if it is false

	brief string // in place of Message, if that names many members
}

// String returns the problem with the place first.
func (p Problem) String() string {
	if p.Pointer == "" {
		return "(document): " + p.Message
	}
	return p.Pointer + ": " + p.Message
}

// Brief returns the problems for an answer to the sender of the document, each on a short line. It
// names the first of many members that are not allowed, and says how many more there are. Error does
// not, because recordings of failed calls have its text.
func (e *Error) Brief() []string {
	return lists.Map(e.Problems, func(p Problem) string {
		p.Pointer, p.Message = display.Clip(p.Pointer, maxLine), display.Clip(cmp.Or(p.brief, p.Message), maxLine)
		return p.String()
	})
}

// Error lists the problems, separated by semicolons.
func (e *Error) Error() string {
	return strings.Join(lists.Map(e.Problems, Problem.String), "; ")
}

// problems flattens a validation error to its leaves. The inner nodes only
// report that something below them failed. The library visits members in random
// order, and its findings are recorded, so they are sorted here.
func problems(err *jsonschema.ValidationError) []Problem {
	var found []Problem
	collect(err, message.NewPrinter(language.English), &found)
	slices.SortFunc(found, func(a, b Problem) int {
		return cmp.Or(strings.Compare(a.Pointer, b.Pointer), strings.Compare(a.Message, b.Message), strings.Compare(a.Keyword, b.Keyword))
	})
	found = slices.CompactFunc(found, func(a, b Problem) bool { return a.Pointer == b.Pointer && a.Message == b.Message })
	if more := len(found) - maxProblems; more > 0 {
		found = append(found[:maxProblems], Problem{Message: fmt.Sprintf("and %d more", more)})
	}
	return found
}

func collect(err *jsonschema.ValidationError, printer *message.Printer, found *[]Problem) {
	if len(err.Causes) == 0 {
		_, schema, _ := strings.Cut(err.SchemaURL, "#")
		if unescaped, err := url.PathUnescape(schema); err == nil {
			schema = unescaped
		}
		p := Problem{Pointer: pointer(err.InstanceLocation), Message: explain(err.ErrorKind, printer), Keyword: schema + pointer(err.ErrorKind.KeywordPath())}
		if k, ok := err.ErrorKind.(*kind.AdditionalProperties); ok && len(k.Properties) > maxNamed {
			first := kind.AdditionalProperties{Properties: k.Properties[:maxNamed]} // explain has sorted them
			p.brief = fmt.Sprintf("%s, and %d more", first.LocalizedString(printer), len(k.Properties)-maxNamed)
		}
		*found = append(*found, p)
	}
	for _, cause := range err.Causes {
		collect(cause, printer, found)
	}
}

// explain words a mismatch. Bounds are worded here because the library prints
// numbers as floats, which do not distinguish 9007199254740993 from
// 9007199254740992.
func explain(mismatch jsonschema.ErrorKind, printer *message.Printer) string {
	switch k := mismatch.(type) {
	case *kind.AdditionalProperties:
		slices.Sort(k.Properties)
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

// IsObject reports whether a schema says "type": "object", which a tool's input
// must be: models and MCP clients send nothing else.
func IsObject(doc []byte) bool {
	var head struct {
		Type string `json:"type"`
	}
	return json.Unmarshal(doc, &head) == nil && head.Type == "object"
}

// Costs of a regular expression. Go's take a time to match that grows with the text, but they can
// take much memory: x{1000} is seven bytes, and \pL is 680 ranges that are copied for every
// repetition. Their size is known before anything is compiled.
const (
	stepBytes    = 512      // that an instruction takes at most, see patternSteps
	parsedBytes  = 256      // that the parser needs for a byte of the text
	classBytes   = 16 << 10 // that it needs for a class of Unicode
	foldedSteps  = 64 << 10 // for a range of other letters than ASCII's, which it folds one by one
	rangesOfStep = 4        // ranges of a class that cost as much as one instruction

	// Where a schema of an old draft says that a text is a regular expression, a larger one does
	// not match. That is recorded, so the two numbers are fixed.
	maxTextSteps = 2_000
	maxTextBytes = 4 << 10
)

// patterns compiles the regular expressions of a schema with its budget. Later ones are texts in
// documents.
type patterns struct {
	budget *work.Budget
	held   int            // bytes that the compiled expressions keep
	of     map[string]int // steps by expression
	closed bool
}

func (p *patterns) compile(expr string) (jsonschema.Regexp, error) {
	budget := p.budget
	if p.closed {
		if len(expr) > maxTextBytes {
			return nil, errTextPattern
		}
		budget = work.Trusted(context.Background())
	}
	steps, err := patternSteps(budget, expr)
	switch {
	case err != nil:
		return nil, err
	case p.closed && steps > maxTextSteps:
		return nil, errTextPattern
	case !p.closed:
		p.of[expr] = steps
		p.held += steps * stepBytes
	}
	return regexp.Compile(expr)
}

var errTextPattern = errors.New("this pattern is too large")

// folding matches the flag that makes an expression ignore case.
var folding = lazy.Regexp(`\(\?[imsU]*i`)

// ParsePattern parses a regular expression within what the budget allows.
func ParsePattern(b *work.Budget, expr string) (*syntax.Regexp, error) {
	steps := len(expr)
	if folding().MatchString(expr) && strings.ContainsFunc(expr, func(r rune) bool { return r == '\\' || r > unicode.MaxASCII }) {
		steps += strings.Count(expr, "-") * foldedSteps
	}
	parsing := len(expr)*parsedBytes + (strings.Count(expr, `\p`)+strings.Count(expr, `\P`))*classBytes
	defer b.Release(parsing)
	if err := cmp.Or(b.Spend(steps), b.Hold(parsing)); err != nil {
		return nil, fmt.Errorf("the pattern is too large: %w", err)
	}
	return syntax.Parse(expr, syntax.Perl)
}

// patternSteps returns about how large an expression becomes: the number of instructions of its
// automaton, which is more than zero. They take 40 to 400 bytes each and stay held.
func patternSteps(b *work.Budget, expr string) (int, error) {
	re, err := ParsePattern(b, expr)
	if err != nil {
		return 0, err
	}
	n := max(instructions(re), 1)
	if err := cmp.Or(b.Spend(n), b.Hold(n*stepBytes)); err != nil {
		return 0, fmt.Errorf("the patterns are too large together: %w", err)
	}
	return n, nil
}

func instructions(re *syntax.Regexp) int {
	total := 1
	switch re.Op {
	case syntax.OpLiteral:
		total = len(re.Rune)
	case syntax.OpCharClass:
		total += len(re.Rune) / 2 / rangesOfStep // a range is two
	case syntax.OpRepeat:
		total = 0 // its cost is the repeated part's
	}
	for _, sub := range re.Sub {
		total += instructions(sub)
	}
	if re.Op == syntax.OpRepeat {
		total *= max(re.Min, re.Max, 1) // without an upper bound, Max is -1
	}
	return total
}

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
		return slices.Collect(maps.Values(v))
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
