package config

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/starling-host/starling/internal/display"
	"github.com/starling-host/starling/internal/work"
)

// Schema describes a kind of file: its keys and values, and the messages for wrong ones. It
// supports a part of JSON Schema, draft 2020-12, and more keywords:
//
//   - errorMessage is the message about a value that the schema refuses, as editors know it.
//     A %q in it stands for the value.
//   - hint is what to do about it. The description stands in for it.
//   - writeOnly marks a value that may be a secret. No message shows its line.
//   - formatMinimum and formatMaximum bound durations.
//
// A minimum or maximum also bounds text such as 64MiB. An integer has no fraction or
// exponent.
type Schema struct {
	keywords
	formats Formats
}

// Formats are the functions that check a text, by the name of its format.
type Formats map[string]func(b *work.Budget, text string) error

// Format makes a function of [Formats] from a parser. It strips the package name from the
// parser's errors.
func Format[T any](read func(string) (T, error)) func(*work.Budget, string) error {
	return func(_ *work.Budget, text string) error {
		_, err := read(text)
		if err != nil {
			err = errors.New(regexp.MustCompile(`^[a-z]+: `).ReplaceAllString(err.Error(), ""))
		}
		return err
	}
}

type keywords struct {
	Dialect      string             `json:"$schema"`
	Title        string             `json:"title"`
	Description  string             `json:"description"`
	ErrorMessage string             `json:"errorMessage"`
	Hint         string             `json:"hint"`
	WriteOnly    bool               `json:"writeOnly"`
	Defs         map[string]*Schema `json:"$defs"`
	Ref          string             `json:"$ref"`

	Type             string         `json:"type"`
	Const            any            `json:"const"` // text or bool
	Enum             []string       `json:"enum"`
	Format           string         `json:"format"`
	Pattern          *regexp.Regexp `json:"pattern"`
	MinLength        int            `json:"minLength"`
	Minimum          *float64       `json:"minimum"`
	Maximum          *float64       `json:"maximum"`
	ExclusiveMinimum *float64       `json:"exclusiveMinimum"`
	FormatMinimum    string         `json:"formatMinimum"`
	FormatMaximum    string         `json:"formatMaximum"`

	Items       *Schema   `json:"items"`
	PrefixItems []*Schema `json:"prefixItems"`
	MinItems    int       `json:"minItems"`

	Properties           map[string]*Schema  `json:"properties"`
	AdditionalProperties *Schema             `json:"additionalProperties"`
	PropertyNames        *Schema             `json:"propertyNames"`
	Required             []string            `json:"required"`
	DependentRequired    map[string][]string `json:"dependentRequired"`

	AllOf []*Schema `json:"allOf"`
	OneOf []*Schema `json:"oneOf"`
	Not   *Schema   `json:"not"`
	If    *Schema   `json:"if"`
	Then  *Schema   `json:"then"`
	Else  *Schema   `json:"else"`
}

// MustSchema reads a schema that is part of this program. It panics at a keyword that it
// does not know.
func MustSchema(doc []byte, formats Formats) *Schema {
	s := &Schema{formats: formats}
	if err := json.Unmarshal(doc, s); err != nil {
		panic(fmt.Sprintf("config: the schema: %v", err))
	}
	return s
}

// UnmarshalJSON implements [json.Unmarshaler].
func (s *Schema) UnmarshalJSON(doc []byte) error {
	switch string(doc) {
	case "true":
		return nil
	case "false":
		s.Not = new(Schema)
		return nil
	}
	d := json.NewDecoder(bytes.NewReader(doc))
	d.DisallowUnknownFields()
	return d.Decode(&s.keywords)
}

// Load reads a file into v, a pointer, if the schema accepts it. It returns the document,
// for checks that a schema cannot express.
//
// The value may contain structs, pointers, slices, maps with text as keys, any and scalars. Fields
// of structs have tags such as `yaml:"name"`, or `yaml:"name,other"` for two keys, and may be
// embedded. A type that reads its own text may also be a struct, for a map. A single value fills a
// slice of one. Text such as 64MiB is an integer, and text such as 90s a [time.Duration]. A
// [json.RawMessage] and a [canon.Raw] take any value, in canonical form, and a string a map. A
// field without a key stays as it is.
//
// A key of the schema for which v has no field is a mistake of the program, and Load panics.
func (s *Schema) Load(name string, data []byte, v any) (*Node, error) {
	root, err := Parse(name, data)
	if err != nil {
		return nil, err
	}
	root.doc.schema = s
	if err := s.check(root); err != nil {
		return nil, err
	}
	if err := root.doc.budget.Spend(0); err != nil { // which a schema under not or if has hidden
		return nil, root.wrong("", "%v", err)
	}
	return root, root.decode(reflect.ValueOf(v).Elem())
}

// check returns an error about the first value of a node that the schema refuses, or nil.
// Within a node, it checks for misplaced secrets first.
func (s *Schema) check(n *Node) *Error {
	if err := n.doc.budget.Spend(1); err != nil {
		return n.wrong("", "%v", err)
	}
	hint := s.Hint
	if n.kind != Map { // its description names the contents
		hint = cmp.Or(hint, s.Description)
		n.hint = cmp.Or(n.hint, hint)
	}
	err := s.checkOne(n)
	if err == nil || err.node != n {
		return err
	}
	if s.ErrorMessage != "" && !err.worded {
		err.Msg, err.Hint, err.worded = s.ErrorMessage, "", true
		if strings.Contains(err.Msg, "%") {
			err.Msg = fmt.Sprintf(err.Msg, display.Clip(fmt.Sprint(n.Value()), maxQuoted))
		}
	}
	if err.Hint = cmp.Or(err.Hint, hint); s.WriteOnly {
		err.Source = ""
	}
	return err
}

func (s *Schema) checkOne(n *Node) *Error {
	if s.Ref != "" {
		if err := n.doc.schema.Defs[strings.TrimPrefix(s.Ref, "#/$defs/")].check(n); err != nil {
			return err
		}
	}
	if err := s.checkValue(n); err != nil {
		return err
	}
	if err := s.checkParts(n); err != nil {
		return err
	}
	for _, one := range s.AllOf {
		if err := one.check(n); err != nil {
			return err
		}
	}
	if s.Not != nil && s.Not.check(n) == nil {
		return n.wrong("", "this has no place here")
	}
	if s.If != nil {
		branch := s.Then
		if s.If.check(n) != nil {
			branch = s.Else
		}
		if branch != nil {
			if err := branch.check(n); err != nil {
				return err
			}
		}
	}
	return s.checkOneOf(n)
}

// checkOneOf looks for a schema that accepts the node. If none does, the error comes from
// the schema for this kind of node.
func (s *Schema) checkOneOf(n *Node) *Error {
	accepted := 0
	var meant *Error
	for _, one := range s.OneOf {
		if err := one.check(n); err == nil {
			accepted++
		} else if one.isFor(n) {
			meant = cmp.Or(meant, err)
		}
	}
	switch {
	case len(s.OneOf) == 0 || accepted == 1:
		return nil
	case meant != nil && accepted == 0:
		meant.worded = true
		return meant
	}
	return n.wrong("", "this has none of the allowed forms")
}

// isFor reports whether a node has the type and the keys that the schema requires.
func (s *Schema) isFor(n *Node) bool {
	if s.Ref != "" {
		return n.doc.schema.Defs[strings.TrimPrefix(s.Ref, "#/$defs/")].isFor(n)
	}
	kind := kinds[s.Type]
	return (kind == 0 || kind == n.kind) && !slices.ContainsFunc(s.Required, func(key string) bool { return n.At(key) == nil })
}

var kinds = map[string]Kind{"string": Text, "integer": Number, "number": Number, "boolean": Bool, "array": List, "object": Map}

// checkValue checks a node without its contents.
func (s *Schema) checkValue(n *Node) *Error {
	text, isText := n.Text()
	_, float := n.value.(float64)
	switch kind := kinds[s.Type]; {
	case kind != 0 && n.kind != kind:
		return n.expected(kind)
	case s.Type == "integer" && float:
		return n.wrong("", "this must be a whole number")
	case s.Const != nil && n.value != s.Const:
		return n.wrong("", "this must be %v", s.Const)
	case s.Enum != nil && !slices.Contains(s.Enum, text):
		last := len(s.Enum) - 1
		return n.wrong("", "this must be %s or %s", strings.Join(s.Enum[:last], ", "), s.Enum[last])
	case isText && utf8.RuneCountInString(text) < s.MinLength:
		return n.wrong("omit the key for the default", "this must not be empty")
	case isText && s.Format != "":
		if err := n.doc.schema.formats[s.Format](n.doc.budget, text); err != nil {
			wrong := n.wrong("", "%v", err)
			wrong.worded = true
			return wrong
		}
	}
	if isText && s.Pattern != nil && !s.Pattern.MatchString(text) {
		return n.wrong("", "this must match %v", s.Pattern)
	}
	return s.checkBounds(n)
}

// checkBounds checks numbers, quantities such as 64MiB, and durations.
func (s *Schema) checkBounds(n *Node) *Error {
	text, isText := n.Text()
	if s.FormatMinimum != "" || s.FormatMaximum != "" {
		got, err := ParseDuration(text)
		least, _ := ParseDuration(s.FormatMinimum)
		most, _ := ParseDuration(cmp.Or(s.FormatMaximum, "99999d"))
		switch {
		case isText && (err != nil || got > most):
			return n.wrong("", "this must be at most %s", s.FormatMaximum)
		case isText && got < least:
			return n.wrong("", "this must be %s or more", s.FormatMinimum)
		}
	}
	var number float64
	switch v := n.value.(type) {
	case int64:
		number = float64(v)
	case uint64:
		number = float64(v)
	case float64:
		number = v
	default:
		counted, err := display.ParseCount(text, units)
		if err != nil {
			return nil // the pattern has judged it
		}
		number = float64(counted)
	}
	show := func(bound float64) string {
		switch whole := uint64(bound); {
		case whole >= 1<<20 && whole%(1<<20) == 0:
			return display.Size(whole)
		case whole >= 1e6 && whole%1e6 == 0:
			return display.Fuel(whole)
		default:
			return strconv.FormatFloat(bound, 'f', -1, 64)
		}
	}
	switch {
	case s.Minimum != nil && number < *s.Minimum:
		return n.wrong("", "this must be %s or more", show(*s.Minimum))
	case s.ExclusiveMinimum != nil && number <= *s.ExclusiveMinimum:
		return n.wrong("omit the key for no limit", "this must be more than %s", show(*s.ExclusiveMinimum))
	case s.Maximum != nil && number > *s.Maximum:
		return n.wrong("", "this must be at most %s", show(*s.Maximum))
	}
	return nil
}

var units = slices.Concat(display.FuelUnits(), display.SizeUnits())

// checkParts checks the items of a list, and the keys and values of a map.
func (s *Schema) checkParts(n *Node) *Error {
	if n.kind == List {
		if len(n.items) < s.MinItems {
			return n.wrong("omit the key for no restriction", "this list is empty")
		}
		for i, item := range n.items {
			if i < len(s.PrefixItems) {
				if err := s.PrefixItems[i].check(item); err != nil {
					return err
				}
			}
			if s.Items != nil {
				if err := s.Items.check(item); err != nil {
					return err
				}
			}
		}
	}
	if n.kind != Map {
		return nil
	}
	for _, secret := range []bool{true, false} {
		for i, key := range n.keys {
			name := key.value.(string)
			value, known := s.Properties[name]
			if !known {
				value = s.AdditionalProperties
			}
			if value == nil || value.WriteOnly != secret {
				continue
			}
			if !known && value.Not != nil {
				known := slices.DeleteFunc(slices.Sorted(maps.Keys(s.Properties)), func(name string) bool { return s.Properties[name].Not != nil })
				return key.unknown(known)
			}
			if err := value.check(n.items[i]); err != nil {
				return err
			}
		}
	}
	if s.PropertyNames != nil {
		for _, key := range n.keys {
			if err := s.PropertyNames.check(key); err != nil {
				return err
			}
		}
	}
	return s.checkKeys(n)
}

func (s *Schema) checkKeys(n *Node) *Error {
	missing := func(names []string) *Error {
		for _, name := range names {
			if n.At(name) == nil {
				err := n.wrong("", "the required key %q is missing", name)
				if p := s.Properties[name]; p != nil {
					err.Hint = cmp.Or(p.Hint, p.Description)
				}
				return err
			}
		}
		return nil
	}
	if err := missing(s.Required); err != nil {
		return err
	}
	for _, key := range n.keys {
		if err := missing(s.DependentRequired[key.value.(string)]); err != nil {
			return err
		}
	}
	return nil
}

// unknown is the error for an unknown key. It does not show the rest of the line, which
// may be a secret in the wrong place.
func (n *Node) unknown(known []string) *Error {
	key := n.value.(string)
	err := n.wrong("the keys are "+strings.Join(known, ", "), "unknown key %q", display.Clip(key, maxQuoted))
	if near := display.Nearest(key, known); near != "" {
		err.Hint = fmt.Sprintf("did you mean %q?", near)
	}
	source, end := []rune(err.Source), n.column-1+len([]rune(key))
	if at := n.column - 1; at < len(source) && (source[at] == '"' || source[at] == '\'') {
		end += 2
	}
	if end < len(source) {
		err.Source = string(source[:end]) + " ..."
	}
	return err
}
