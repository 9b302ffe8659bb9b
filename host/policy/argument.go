package policy

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/big"
	"regexp"
	"regexp/syntax"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/runtime/config"
	"github.com/starling-host/starling/runtime/tool"
)

// AllTools is the name under which a policy has what holds for all tools.
const AllTools = "*"

// ToolRule allows calls of a tool.
type ToolRule struct {
	// Arguments are what must hold of the arguments, by JSON pointer.
	Arguments map[string]Predicate `yaml:"arguments" cbor:"arguments,omitempty"`

	// Ask says that the user must confirm each call, see [Asker].
	Ask bool `yaml:"ask" cbor:"ask,omitempty"`

	// Line is where the rule begins in its file.
	Line int `cbor:"-"`
}

// Predicate is what must hold of a value. Unless it is required, a value that is
// not there fulfils it.
type Predicate struct {
	Required  bool        `yaml:"required" cbor:"required,omitempty"`
	Forbidden bool        `yaml:"forbidden" cbor:"forbidden,omitempty"`
	Const     canon.Raw   `yaml:"const" cbor:"const,omitempty"`
	Enum      []canon.Raw `yaml:"enum" cbor:"enum,omitempty"`
	Pattern   string      `yaml:"pattern" cbor:"pattern,omitempty"` // of the whole text, in RE2 syntax
	MaxLength uint64      `yaml:"max_length" cbor:"max_length,omitempty"`
	Minimum   canon.Raw   `yaml:"minimum" cbor:"minimum,omitempty"`
	Maximum   canon.Raw   `yaml:"maximum" cbor:"maximum,omitempty"`

	// Line is where the predicate begins in its file.
	Line int `cbor:"-"`

	pointer  []string        // unescaped tokens
	among    map[string]bool // the identities of what enum has
	constant string          // that of const
	pattern  *regexp.Regexp
	min, max *big.Rat
	steps    int // of the pattern, see maxPatterns
}

// compile prepares the predicates of a rule from a file.
func (r *ToolRule) compile(arguments *config.Node) error {
	for key, at := range arguments.Pairs() {
		pointer, _ := key.Text()
		p := r.Arguments[pointer]
		p.pointer, p.Line = parsePointer(pointer), key.Line()
		p.min, p.max = rational(exactly(p.Minimum)), rational(exactly(p.Maximum))
		unbounded := work(math.MaxInt) // by the size of the file
		p.constant = identity(exactly(p.Const), &unbounded)
		for i, value := range p.Enum {
			if i == 0 {
				p.among = map[string]bool{}
			}
			p.among[identity(exactly(value), &unbounded)] = true
		}
		if p.Pattern != "" {
			p.steps, _ = tool.PatternSteps(p.Pattern) // the schema has accepted it
		}
		if p.min != nil && p.max != nil && p.min.Cmp(p.max) > 0 {
			return at.Get("maximum").Errorf("exchange the two, or write forbidden: true", "this is less than the minimum, so no number would be allowed")
		}
		r.Arguments[pointer] = p
	}
	return nil
}

// exactly returns a value of the file with its numbers as they are written.
func exactly(raw canon.Raw) any {
	doc, err := canon.ToJSON(raw)
	if err != nil {
		return nil // there is none
	}
	value, _ := decodeExact(doc)
	return value
}

// decodeExact decodes a document that keeps its numbers as they are written.
func decodeExact(doc []byte) (value any, err error) {
	dec := json.NewDecoder(bytes.NewReader(doc))
	dec.UseNumber()
	err = dec.Decode(&value)
	return value, err
}

// maxPatterns bounds the steps of the patterns of a policy together, see
// [tool.PatternSteps]. Policies come from tenants.
const maxPatterns = 50_000

// whole is the expression that matches a text as a whole.
func whole(pattern string) string { return `\A(?:` + pattern + `)\z` }

// checkPattern refuses what is not an expression, and one that is too large. It looks at
// the pattern alone first: "a)|(?:b" would be one between parentheses.
func checkPattern(text string) error {
	_, err := tool.PatternSteps(text)
	if errors.Is(err, tool.ErrPatternTooLarge) {
		return err
	}
	if err == nil {
		_, err = syntax.Parse(whole(text), syntax.Perl)
	}
	if err != nil {
		return fmt.Errorf("this must be a regular expression: %w", err)
	}
	return nil
}

// compilePatterns compiles the patterns, unless they are too large together. It
// returns their steps.
func compilePatterns(rules map[string]ToolRule, at *config.Node) (total int, err error) {
	for _, t := range rules {
		for _, p := range t.Arguments {
			total += p.steps
		}
	}
	if total > maxPatterns {
		return 0, at.Errorf("bound the length of texts with max_length", "the patterns are too large together")
	}
	for _, t := range rules {
		for key, p := range t.Arguments {
			if p.steps == 0 {
				continue // it has no pattern
			}
			if p.pattern, err = regexp.Compile(whole(p.Pattern)); err != nil {
				return 0, at.Errorf("", "a pattern: %v", err) // which checkPattern has parsed
			}
			t.Arguments[key] = p
		}
	}
	return total, nil
}

// parsePointer reads a JSON pointer (RFC 6901). A token * stands for every member
// of an object and every element of an array.
func parsePointer(s string) []string {
	tokens := strings.Split(s, "/")[1:]
	for i, token := range tokens {
		tokens[i] = strings.NewReplacer("~1", "/", "~0", "~").Replace(token)
	}
	return tokens
}

// values returns what a pointer finds in a document: nothing, one value, or with a
// * any number of them. When no steps are left, it is not all of them.
func values(doc any, pointer []string, left *work) []any {
	if !left.spend(1) {
		return nil
	}
	if len(pointer) == 0 {
		return []any{doc}
	}
	token, rest := pointer[0], pointer[1:]
	var found []any
	switch doc := doc.(type) {
	case map[string]any:
		if token == "*" {
			left.spend(20 * len(doc))
			for _, key := range slices.Sorted(maps.Keys(doc)) {
				found = append(found, values(doc[key], rest, left)...)
			}
		} else if member, ok := doc[token]; ok {
			return values(member, rest, left)
		}
	case []any:
		if token == "*" {
			for _, element := range doc {
				found = append(found, values(element, rest, left)...)
			}
		} else if i, err := strconv.Atoi(token); err == nil && strconv.Itoa(i) == token && i >= 0 && i < len(doc) {
			return values(doc[i], rest, left)
		}
	}
	return found
}

// violated says what of the predicate does not hold of a document, or "".
func (p *Predicate) violated(doc any, left *work) string {
	found := values(doc, p.pointer, left)
	switch {
	case p.Forbidden && len(found) > 0:
		return "must not be there"
	case p.Required && len(found) == 0:
		return "must be there"
	}
	for _, v := range found {
		why := p.fails(v, left)
		if *left < 0 {
			break
		}
		if why != "" {
			return why
		}
	}
	if *left < 0 {
		return "is too much to look at for what must hold of it"
	}
	return ""
}

// fails says what does not hold of a value, or "". The value itself is not said:
// the words go to a log that others read. When no steps are left, nothing is said.
func (p *Predicate) fails(v any, left *work) string {
	text, isText := v.(string)
	switch {
	case p.Const != nil && identity(v, left) != p.constant:
		return "must be the one value that is allowed"
	case p.among != nil && !p.among[identity(v, left)]:
		return "must be one of the values that are allowed"
	case p.pattern != nil && !(isText && left.spend(p.steps*len(text)) && p.pattern.MatchString(text)):
		return fmt.Sprintf("must be text that matches %q", p.Pattern)
	case p.MaxLength > 0 && !(isText && left.spend(len(text)/16) && uint64(utf8.RuneCountInString(text)) <= p.MaxLength):
		return fmt.Sprintf("must be text of at most %d characters", p.MaxLength)
	}
	return p.outside(v, left)
}

// outside says which bound of numbers a value does not keep, or "".
func (p *Predicate) outside(v any, left *work) string {
	if p.min == nil && p.max == nil {
		return ""
	}
	n, _ := v.(json.Number)
	left.spend(numberWork(n))
	number := rational(v)
	switch {
	case p.min != nil && (number == nil || number.Cmp(p.min) < 0):
		return "must be a number of at least " + show(p.Minimum)
	case p.max != nil && (number == nil || number.Cmp(p.max) > 0):
		return "must be a number of at most " + show(p.Maximum)
	}
	return ""
}

func show(raw canon.Raw) string {
	doc, err := canon.ToJSON(raw)
	if err != nil {
		return "what the policy says"
	}
	return string(doc)
}

// maxDigits bounds the text of a number that is made exact. A canonical one has at
// most 1024 digits and a sign.
const maxDigits = 2048

// rational returns the exact value of a number that a document has, nil for what
// is none. Documents are canonical: an integer has at most 1024 digits, and any
// other number is what a 64-bit float holds.
func rational(v any) *big.Rat {
	n, ok := v.(json.Number)
	if !ok || len(n) > maxDigits {
		return nil
	}
	if !strings.ContainsAny(string(n), ".eE") {
		r, ok := new(big.Rat).SetString(string(n))
		if !ok {
			return nil
		}
		return r
	}
	f, err := n.Float64()
	if err != nil {
		return nil
	}
	return new(big.Rat).SetFloat64(f)
}
