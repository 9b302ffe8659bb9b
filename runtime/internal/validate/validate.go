package validate

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"
	"golang.org/x/text/language"
	"golang.org/x/text/message"
)

// Bounds on a schema. A validator follows a schema wherever it leads, so that
// is bounded before it is compiled.
const (
	maxSchemaBytes = 64 << 10
	maxSchemaDepth = 48
	// maxSchemaNodes bounds a schema's size after every $ref has been replaced by
	// its target. Twenty definitions that each name the next one twice are a
	// kilobyte of text and a million nodes of work.
	maxSchemaNodes = 20_000
	// maxPatterns bounds the steps of all regular expressions, see [PatternSteps];
	// the library compiles each twice.
	maxPatterns = 10_000
	// maxProblems bounds the list of problems of one document.
	maxProblems = 50
)

// Schema is a compiled JSON Schema. It is safe for concurrent use.
type Schema struct {
	compiled *jsonschema.Schema
	size     int
	root     any            // the document
	patterns map[string]int // the steps of each
}

// Size returns the cost of the schema: the number of its nodes, of up to a kilobyte
// each, plus the steps of its regular expressions. Nil has zero.
func (s *Schema) Size() int {
	if s == nil {
		return 0
	}
	return s.size
}

// Compile compiles a schema, which is canonical JSON. The default dialect is
// draft 2020-12; nothing outside of the document is loaded. The error describes
// the fault, without naming the schema's owner.
func Compile(doc []byte) (*Schema, error) {
	if len(doc) > maxSchemaBytes {
		return nil, fmt.Errorf("is %d bytes, more than %d", len(doc), maxSchemaBytes)
	}
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(doc))
	if err != nil {
		return nil, err
	}
	nodes, err := bound(value)
	if err != nil {
		return nil, err
	}
	const location = "schema:///" // a relative one would be taken for a file of the working directory
	c := jsonschema.NewCompiler()
	c.UseLoader(noLoader{})
	all := patterns{of: map[string]int{}}
	c.UseRegexpEngine(all.compile)
	if err := c.AddResource(location, value); err != nil {
		return nil, err
	}
	compiled, err := c.Compile(location)
	if err != nil {
		return nil, noSchema(err)
	}
	all.closed = true
	return &Schema{compiled, nodes + all.steps, value, all.of}, nil
}

// noSchema lists what keeps a document from being a schema, as [Error] does. Other
// errors stay unchanged.
func noSchema(err error) error {
	var mismatch *jsonschema.SchemaValidationError
	var invalid *jsonschema.ValidationError
	if !errors.As(err, &mismatch) || !errors.As(mismatch.Err, &invalid) {
		return err
	}
	return fmt.Errorf("is not valid: %v", &Error{Problems: problems(invalid)}) // no [Error], which is about an input
}

// patterns compiles the regular expressions of a schema. It does not include later
// ones, of documents with texts that must be expressions.
type patterns struct {
	steps  int
	of     map[string]int // steps by expression
	closed bool
}

func (p *patterns) compile(expr string) (jsonschema.Regexp, error) {
	steps, err := PatternSteps(expr)
	if err != nil {
		return nil, err
	}
	if !p.closed {
		if p.steps += steps; p.steps > maxPatterns {
			return nil, errors.New("the patterns are too large together")
		}
		p.of[expr] = steps
	}
	return regexp.Compile(expr)
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
func (s *Schema) Check(doc []byte) error { return s.CheckWithin(doc, 0) }

// CheckNew is [Schema.Check] for a document that is not from a recording. If the check would take
// more than about two seconds, it is not made, and the error matches [ErrCost].
func (s *Schema) CheckNew(doc []byte) error { return s.CheckWithin(doc, maxUnits) }

// CheckWithin is [Schema.CheckNew] within another number of units, of about a microsecond.
// Zero sets no bound.
func (s *Schema) CheckWithin(doc []byte, units int) error {
	value, err := valuesOf(doc, s.root)
	switch {
	case err != nil:
		return err
	case units > 0 && !s.within(budget{units, 1, 100, 1}, value):
		return ErrCost
	case !s.within(listed, value):
		return s.checkLarge(value)
	}
	err = s.compiled.Validate(value)
	var invalid *jsonschema.ValidationError
	if !errors.As(err, &invalid) {
		return err
	}
	return &Error{Problems: problems(invalid)}
}

// checkLarge is Check without the list of mismatches.
func (s *Schema) checkLarge(doc any) error {
	if !s.within(atAll, doc) {
		return errTooMuch
	}
	wrong, err := s.mismatched(doc)
	if wrong {
		return errMismatch
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
}

// String returns the problem with the place first.
func (p Problem) String() string {
	if p.Pointer == "" {
		return "(document): " + p.Message
	}
	return p.Pointer + ": " + p.Message
}

// Error lists the problems, separated by semicolons.
func (e *Error) Error() string {
	lines := make([]string, len(e.Problems))
	for i, p := range e.Problems {
		lines[i] = p.String()
	}
	return strings.Join(lines, "; ")
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
		*found = append(*found, Problem{pointer(err.InstanceLocation), explain(err.ErrorKind, printer), schema + pointer(err.ErrorKind.KeywordPath())})
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
