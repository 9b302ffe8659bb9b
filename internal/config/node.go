package config

import (
	"cmp"
	"fmt"
	"iter"
	"slices"
	"strings"

	"github.com/goccy/go-yaml/token"

	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/internal/lists"
	"github.com/starling-host/starling/internal/work"
)

// Kind is the kind of a node.
type Kind uint8

// The kinds of nodes.
const (
	Null Kind = iota + 1
	Bool
	Number
	Text
	List
	Map
)

var kindNames = [...]string{"", "nothing", "true or false", "a number", "text", "a list", "a map"}

// String returns the kind in words, with an article.
func (k Kind) String() string { return kindNames[k] }

// document is a file that nodes belong to.
type document struct {
	name    string
	limit   int  // of its bytes
	lenient bool // of [ParseData]
	lines   []string
	schema  *Schema // of [Schema.Load]
	budget  *work.Budget
}

// fail is an error about the file as a whole.
func (d *document) fail(format string, args ...any) error {
	return &Error{File: d.name, Msg: fmt.Sprintf(format, args...)}
}

// at returns a node without a value at a token; without one it is the first.
func (d *document) at(t *token.Token) *Node {
	n := &Node{doc: d, line: 1, column: 1}
	if t != nil && t.Position != nil {
		n.line = min(max(t.Position.Line, 1), len(d.lines))
		n.column = max(t.Position.Column, 1)
	}
	return n
}

// Node is a value in a file.
type Node struct {
	doc          *document
	line, column int
	hint         string // for errors that have none

	kind  Kind
	value any     // bool, int64, uint64 beyond it, float64 or string
	keys  []*Node // of a Map, one for each item
	items []*Node // of a List or a Map
}

// Kind returns the kind of the node.
func (n *Node) Kind() Kind { return n.kind }

// Place returns where the node begins, as in agent.yaml:3:1.
func (n *Node) Place() string { return place(n.doc.name, n.line, n.column) }

// Line returns the line on which the node begins, from 1.
func (n *Node) Line() int { return n.line }

func place(file string, line, column int) string { return fmt.Sprintf("%s:%d:%d", file, line, column) }

// JSON returns the value as canonical CBOR and as canonical JSON.
func (n *Node) JSON() (raw canon.Raw, doc []byte, err error) {
	if raw, err = canon.Marshal(n.Value()); err == nil {
		doc, err = canon.ToJSON(raw)
	}
	if err != nil {
		return nil, nil, n.Errorf("", "%v", err)
	}
	return raw, doc, nil
}

// At returns the node at a path of keys, or nil if a key is missing or its node is not a map. It charges
// the budget of the document; whoever calls it in a loop looks at the budget there.
func (n *Node) At(keys ...string) *Node {
	for _, key := range keys {
		if n == nil {
			return nil
		}
		at := slices.IndexFunc(n.keys, func(k *Node) bool { return k.value == key })
		if at < 0 {
			_ = n.doc.budget.Spend(len(n.keys))
			return nil
		}
		_ = n.doc.budget.Spend(at)
		n = n.items[at]
	}
	return n
}

// Pairs iterates over the keys of a map and their values in order. To take each value with At would
// take long in a large map.
func (n *Node) Pairs() iter.Seq2[*Node, *Node] {
	return func(yield func(key, value *Node) bool) {
		if n == nil {
			return
		}
		for i, key := range n.keys {
			if !yield(key, n.items[i]) {
				return
			}
		}
	}
}

// Text returns the text of a node; ok is false if it is not text.
func (n *Node) Text() (text string, ok bool) {
	text, ok = n.value.(string)
	return text, ok
}

// Value returns the node as the values of JSON: nil, bool, int64 (uint64 beyond
// that), float64, string, []any and map[string]any.
func (n *Node) Value() any {
	switch n.kind {
	case List:
		return lists.Map(n.items, (*Node).Value)
	case Map:
		m := make(map[string]any, len(n.items))
		for i, key := range n.keys {
			m[key.value.(string)] = n.items[i].Value()
		}
		return m
	}
	return n.value
}

// Errorf returns an [*Error] about the node. The hint may be empty.
func (n *Node) Errorf(hint, format string, args ...any) error {
	e := n.wrong(hint, format, args...)
	e.Hint = cmp.Or(e.Hint, n.hint)
	return e
}

// wrong is Errorf without the hint of the schema.
func (n *Node) wrong(hint, format string, args ...any) *Error {
	e := &Error{File: n.doc.name, Line: n.line, Column: n.column, Hint: hint, Msg: fmt.Sprintf(format, args...), node: n}
	if n.line <= len(n.doc.lines) {
		e.Source = strings.TrimSuffix(n.doc.lines[n.line-1], "\r")
	}
	return e
}

// expected returns an error about a node of the wrong kind.
func (n *Node) expected(kind Kind) *Error {
	switch {
	case n.kind == Null:
		return n.wrong("omit the key for the default", "this must be %v, but is empty", kind)
	case kind == Text && n.kind != List && n.kind != Map:
		return n.wrong("put it in quotes", "this must be text, not %v", n.kind)
	}
	return n.wrong("", "this must be %v, not %v", kind, n.kind)
}

// Items returns the items of a list, or nil if n is not a list.
func (n *Node) Items() []*Node {
	if n == nil || n.kind != List {
		return nil
	}
	return n.items
}
