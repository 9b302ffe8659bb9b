package config

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"strings"
	"unicode/utf8"

	goyaml "github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"

	"github.com/starling-host/starling/internal/display"
	"github.com/starling-host/starling/internal/keyfile"
	"github.com/starling-host/starling/internal/lazy"
	"github.com/starling-host/starling/internal/work"
)

// Bounds on a file. The parser recurses, and its time grows with the square of the nesting.
const (
	MaxBytes  = 1 << 20
	MaxData   = 16 << 20 // of [ParseData], which takes 6 seconds and 0.6 GB for as much
	MaxDepth  = 64
	maxColumn = 512 // of the beginning of a block, which bounds the nesting of blocks
)

// Parse reads a file. Errors are of type [*Error] and mention the name.
//
// A byte order mark at the beginning, which some Windows editors write, is not part of the
// text. Lines end with a line feed, or a carriage return and a line feed.
func Parse(name string, data []byte) (*Node, error) {
	b := work.For(context.Background(), len(data))
	return (&document{name: name, limit: MaxBytes, budget: b}).parse(data)
}

// ParseData reads a document that was not written for this program, such as the description of
// an API. It may have [MaxData] bytes. Keys that are not text are taken as they are written, and
// so are scalars that are not values of JSON, such as 017. Anchors and aliases stay refused. The
// budget pays for the parsing, and for each key that [Node.At] looks at afterwards.
func ParseData(b *work.Budget, name string, data []byte) (*Node, error) {
	return (&document{name: name, limit: MaxData, lenient: true, budget: b}).parse(data)
}

func (doc *document) parse(data []byte) (*Node, error) {
	data = bytes.TrimPrefix(data, []byte("\ufeff"))
	switch {
	case len(data) > doc.limit:
		return nil, doc.fail("it has %d bytes; the limit is %d", len(data), doc.limit)
	case !utf8.Valid(data):
		return nil, doc.fail("it is not UTF-8 text")
	}
	doc.lines = strings.Split(string(data), "\n")
	if err := doc.characters(); err != nil {
		return nil, err
	}
	tokens := lexer.Tokenize(string(data))
	if err := doc.budget.Spend(len(data)/64 + len(tokens)); err != nil {
		return nil, doc.fail("%v", err)
	}
	if err := doc.bound(tokens); err != nil {
		return nil, err
	}
	file, err := parser.Parse(tokens, 0)
	var at goyaml.Error
	switch {
	case errors.As(err, &at) && at.GetToken() != nil:
		msg, _, _ := strings.Cut(at.GetMessage(), " at [") // a place that needs no brackets
		return nil, doc.at(at.GetToken()).Errorf("", "%s", msg)
	case err != nil:
		return nil, doc.fail("it is not YAML: %v", err)
	case len(file.Docs) == 0 || len(file.Docs) == 1 && file.Docs[0].Body == nil:
		return nil, doc.fail("it is empty")
	case len(file.Docs) > 1:
		return nil, doc.at(file.Docs[1].Start).Errorf("", "a file has one document and no directives")
	}
	return doc.convert(file.Docs[0].Body, 0)
}

// characters refuses a carriage return without a line feed, because readers disagree
// whether it ends a line, and characters that YAML forbids and readers skip or stop at.
func (d *document) characters() error {
	for i, text := range d.lines {
		before, _, lone := strings.Cut(strings.TrimSuffix(text, "\r"), "\r")
		if lone {
			n := &Node{doc: d, line: i + 1, column: max(utf8.RuneCountInString(before), 1)}
			return n.Errorf("end lines with line feeds", "this is followed by a carriage return alone")
		}
		at := strings.IndexFunc(text, func(r rune) bool { return r < ' ' && r != '\t' && r != '\r' })
		if at >= 0 {
			n := &Node{doc: d, line: i + 1, column: utf8.RuneCountInString(text[:at]) + 1}
			r, _ := utf8.DecodeRuneInString(text[at:])
			return n.Errorf(fmt.Sprintf(`write it escaped, in double quotes: "\u%04x"`, r), "this is a control character")
		}
	}
	return nil
}

// bound refuses deep nesting before the parser follows it, and aliases, since the parser's
// errors for malformed ones, such as a * alone, are unclear.
func (d *document) bound(tokens token.Tokens) error {
	flow := 0
	for _, t := range tokens {
		switch t.Type {
		case token.AnchorType, token.AliasType:
			return d.at(t).Errorf("write the value where it is used, or put text in quotes", "anchors and aliases are not supported")
		case token.SequenceStartType, token.MappingStartType:
			flow++
		case token.SequenceEndType, token.MappingEndType:
			flow--
		case token.SequenceEntryType, token.MappingKeyType, token.MappingValueType:
			if flow <= 0 && t.Position.Column > maxColumn {
				return d.at(t).Errorf("", "this is indented by more than %d characters", maxColumn)
			}
		}
		if flow > MaxDepth {
			return d.at(t).Errorf("", "this is nested deeper than %d", MaxDepth)
		}
	}
	return nil
}

// convert turns a node of the parser into a Node.
func (d *document) convert(from ast.Node, depth int) (*Node, error) {
	n := d.at(from.GetToken())
	if depth > MaxDepth {
		return nil, n.Errorf("", "this is nested deeper than %d", MaxDepth)
	}
	if err := d.budget.Spend(1); err != nil {
		return nil, n.Errorf("", "%v", err)
	}
	switch from := from.(type) {
	case *ast.MappingNode:
		n.kind = Map
		return n, d.pairs(n, from, depth)
	case *ast.SequenceNode:
		n.kind = List
		for _, item := range from.Values {
			child, err := d.convert(item, depth+1)
			if err != nil {
				return nil, err
			}
			n.items = append(n.items, child)
		}
		return n, nil
	}
	return n, n.scalar(from)
}

// pairs fills a map. The parser has refused duplicate keys.
func (d *document) pairs(n *Node, from *ast.MappingNode, depth int) error {
	for i, pair := range from.Values {
		key := d.at(pair.Key.GetToken())
		if err := key.scalar(pair.Key); err != nil {
			return err
		}
		if key.kind != Text && d.lenient {
			key.kind, key.value = Text, pair.Key.GetToken().Value
		}
		if key.kind != Text {
			return key.Errorf("put it in quotes", "a key must be text")
		}
		if i == 0 && !from.IsFlowStyle {
			n.line, n.column = key.line, key.column
		}
		value, err := d.convert(pair.Value, depth+1)
		if err != nil {
			return err
		}
		if value.kind == Null { // usually the value has no place
			value.line, value.column = key.line, key.column
		}
		n.keys = append(n.keys, key)
		n.items = append(n.items, value)
	}
	return nil
}

// scalar fills a node with a JSON value.
func (n *Node) scalar(from ast.Node) error {
	switch from := from.(type) {
	case *ast.NullNode:
		n.kind = Null
	case *ast.BoolNode:
		n.kind, n.value = Bool, from.Value
	case *ast.StringNode:
		n.kind, n.value = Text, from.Value
		if from.Token.Type == token.StringType && likeNumber().MatchString(from.Value) {
			return n.unread(from.Value)
		}
	case *ast.LiteralNode:
		n.kind, n.value = Text, from.Value.Value
	case *ast.IntegerNode:
		return n.number(from.Token.Value, from.Value)
	case *ast.FloatNode:
		return n.number(from.Token.Value, from.Value)
	case *ast.NanNode, *ast.InfinityNode:
		return n.strange(from.GetToken().Value, "put text in quotes", "this is not a JSON number")
	default:
		return n.refuse(from)
	}
	return nil
}

// strange handles a scalar that is no value of JSON: it is an error, or text in data.
func (n *Node) strange(text, hint, format string, args ...any) error {
	if !n.doc.lenient {
		return n.Errorf(hint, format, args...)
	}
	n.kind, n.value = Text, text
	return nil
}

// likeNumber matches the numbers of JSON.
var likeNumber = lazy.Regexp(`^-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?$`)

// number accepts a number if it is a JSON number.
func (n *Node) number(text string, value any) error {
	if !likeNumber().MatchString(text) {
		return n.strange(text, "write it in decimal, or put text in quotes", "%s is not a JSON number", display.Clip(text, maxQuoted))
	}
	n.kind, n.value = Number, value
	if u, ok := value.(uint64); ok && u <= 1<<63-1 {
		n.value = int64(u)
	}
	return nil
}

// unread handles numbers that the library has left as text: with an exponent but no point,
// or too large.
func (n *Node) unread(text string) error {
	value, err := strconv.ParseFloat(text, 64)
	if err != nil || !n.doc.lenient && !strings.ContainsAny(text, ".eE") {
		return n.strange(text, "write a smaller one, or if it is text, put it in quotes", "the number %s is too large", display.Clip(text, maxQuoted))
	}
	n.kind, n.value = Number, value
	return nil
}

// refuse returns the error for an unsupported part of YAML.
func (n *Node) refuse(from ast.Node) error {
	what, hint := fmt.Sprint(from.Type()), ""
	switch from.(type) {
	case *ast.MergeKeyNode:
		what, hint = "a merge key", "write the keys where they are used"
	case *ast.TagNode:
		what, hint = "a tag", "put text in quotes"
	case *ast.MappingKeyNode:
		what, hint = "a key with a question mark", "write key: value"
	}
	return n.Errorf(hint, "this is %s, which is not supported", what)
}

// Flow returns a value as YAML on one line, without what is zero or empty. It is made of structs,
// lists, texts and numbers.
func Flow(v any) string {
	text, err := goyaml.MarshalWithOptions(v, goyaml.Flow(true), goyaml.OmitEmpty())
	if err != nil {
		panic(err) // of another type
	}
	return strings.TrimSuffix(string(text), "\n")
}

// ReadFile returns the content of a file for [Parse], or of a file that it names. It opens
// only regular files of at most [MaxBytes]: opening a pipe or a device can block.
func ReadFile(path string) ([]byte, error) {
	text, err := keyfile.ReadFile(path, MaxBytes)
	if e, ok := errors.AsType[*fs.PathError](err); ok { // a reader does not care which call failed
		err = fmt.Errorf("%s: %w", path, e.Err)
	}
	return text, err
}
