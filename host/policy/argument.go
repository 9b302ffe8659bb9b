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
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/runtime/config"
)

// AllTools is the name under which a policy has what holds for all tools.
const AllTools = "*"

// ToolRule allows calls of a tool.
type ToolRule struct {
	// Arguments are what must hold of the arguments, by JSON pointer.
	Arguments map[string]Predicate `cbor:"arguments,omitempty"`

	// Ask says that the user must confirm each call, see [Asker].
	Ask bool `cbor:"ask,omitempty"`

	// Line is where the rule begins in its file.
	Line int `cbor:"-"`
}

// Predicate is what must hold of a value. Unless it is required, a value that is
// not there fulfils it.
type Predicate struct {
	Required  bool        `cbor:"required,omitempty"`
	Forbidden bool        `cbor:"forbidden,omitempty"`
	Const     canon.Raw   `cbor:"const,omitempty"`
	Enum      []canon.Raw `cbor:"enum,omitempty"`
	Pattern   string      `cbor:"pattern,omitempty"` // of the whole text, in RE2 syntax
	MaxLength uint64      `cbor:"max_length,omitempty"`
	Minimum   canon.Raw   `cbor:"minimum,omitempty"`
	Maximum   canon.Raw   `cbor:"maximum,omitempty"`

	// Line is where the predicate begins in its file.
	Line int `cbor:"-"`

	pointer  []string        // unescaped tokens
	among    map[string]bool // the identities of what enum has
	constant string          // that of const
	pattern  *regexp.Regexp
	min, max *big.Rat
	steps    int // of the pattern, see maxPatterns
}

// toolRules is the map of tools in a file.
type toolRules map[string]ToolRule

// DecodeYAML implements [config.Decoder].
func (t *toolRules) DecodeYAML(n *config.Node) error {
	if err := n.Expect(config.Map); err != nil {
		return err
	}
	*t = toolRules{}
	for key, value := range n.Pairs() {
		name, _ := key.Text()
		if name != AllTools && !namePattern.MatchString(name) {
			return key.Errorf("", "this must be the name of a tool, 1 to 64 letters, digits, _ and -, or * for all tools")
		}
		var f struct {
			Arguments predicates `yaml:"arguments"`
			Ask       bool       `yaml:"ask"`
		}
		if err := value.Decode(&f); err != nil {
			return err
		}
		(*t)[name] = ToolRule{Arguments: f.Arguments, Ask: f.Ask, Line: key.Line()}
	}
	return nil
}

// predicates is the map of arguments in a file.
type predicates map[string]Predicate

// DecodeYAML implements [config.Decoder].
func (p *predicates) DecodeYAML(n *config.Node) error {
	if err := n.Expect(config.Map); err != nil {
		return err
	}
	*p = predicates{}
	for key, value := range n.Pairs() {
		text, _ := key.Text()
		pointer, err := parsePointer(text)
		if err != nil {
			return key.Errorf("", "%v", err)
		}
		var one Predicate
		if err := value.Decode(&one); err != nil {
			return err
		}
		one.pointer, one.Line = pointer, key.Line()
		(*p)[text] = one
	}
	return nil
}

// DecodeYAML implements [config.Decoder].
func (p *Predicate) DecodeYAML(n *config.Node) error {
	var f struct {
		Required  bool         `yaml:"required"`
		Forbidden bool         `yaml:"forbidden"`
		Const     jsonValue    `yaml:"const"`
		Enum      []jsonValue  `yaml:"enum"`
		Pattern   config.Word  `yaml:"pattern"`
		MaxLength config.Count `yaml:"max_length"`
		Minimum   number       `yaml:"minimum"`
		Maximum   number       `yaml:"maximum"`
	}
	if err := n.Decode(&f); err != nil {
		return err
	}
	if err := noEmptyList(n, "enum"); err != nil {
		return err
	}
	if f.Forbidden && len(n.Keys()) > 1 {
		return n.Get("forbidden").Errorf("", "what is forbidden is not there, so nothing else can hold of it")
	}
	*p = Predicate{
		Required: f.Required, Forbidden: f.Forbidden, Const: f.Const.raw,
		Pattern: string(f.Pattern), MaxLength: uint64(f.MaxLength), Minimum: f.Minimum.raw, Maximum: f.Maximum.raw,
		min: f.Minimum.exact, max: f.Maximum.exact,
	}
	unbounded := work(math.MaxInt) // by the size of the file
	p.constant = identity(f.Const.value, &unbounded)
	if len(f.Enum) > 0 {
		p.among = map[string]bool{}
	}
	for _, v := range f.Enum {
		p.Enum = append(p.Enum, v.raw)
		p.among[identity(v.value, &unbounded)] = true
	}
	if at := n.Get("pattern"); at != nil {
		if err := p.checkPattern(at); err != nil {
			return err
		}
	}
	if p.min != nil && p.max != nil && p.min.Cmp(p.max) > 0 {
		return n.Get("maximum").Errorf("exchange the two, or write forbidden: true", "this is less than the minimum, so no number would be allowed")
	}
	return nil
}

// jsonValue is any value that JSON has.
type jsonValue struct {
	raw   canon.Raw
	value any
}

// DecodeYAML implements [config.Decoder].
func (v *jsonValue) DecodeYAML(n *config.Node) (err error) {
	var doc []byte
	if v.raw, doc, err = n.JSON(); err == nil {
		v.value, err = decodeExact(doc)
	}
	return err
}

// number is a number that JSON has.
type number struct {
	jsonValue
	exact *big.Rat
}

// DecodeYAML implements [config.Decoder].
func (b *number) DecodeYAML(n *config.Node) error {
	if err := b.jsonValue.DecodeYAML(n); err != nil {
		return err
	}
	if b.exact = rational(b.value); b.exact == nil {
		return n.Errorf("", "this must be a number")
	}
	return nil
}

// decodeExact decodes a document that keeps its numbers as they are written.
func decodeExact(doc []byte) (value any, err error) {
	dec := json.NewDecoder(bytes.NewReader(doc))
	dec.UseNumber()
	err = dec.Decode(&value)
	return value, err
}

// parsePointer reads a JSON pointer (RFC 6901). A token * stands for every member
// of an object and every element of an array.
func parsePointer(s string) ([]string, error) {
	if s == "" {
		return []string{}, nil
	}
	if !strings.HasPrefix(s, "/") {
		return nil, fmt.Errorf("a JSON pointer begins with a slash: write %q", "/"+s)
	}
	tokens := strings.Split(s[1:], "/")
	for i, token := range tokens {
		plain := strings.ReplaceAll(strings.ReplaceAll(token, "~1", "/"), "~0", "~")
		if strings.Count(token, "~") != strings.Count(token, "~0")+strings.Count(token, "~1") {
			return nil, errors.New("in a JSON pointer, ~ is written ~0 and a slash ~1")
		}
		tokens[i] = plain
	}
	return tokens, nil
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
