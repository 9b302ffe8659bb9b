package canon

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// SyntaxError says what is wrong with a JSON document, where, and what may
// help.
type SyntaxError struct {
	Offset  int    // of the offending byte, from 0
	Line    int    // from 1; lines end with a line feed
	Column  int    // from 1, in characters
	Pointer string // RFC 6901 pointer to the value at fault; empty for the whole document
	Msg     string
	Hint    string // empty when Msg says it all
}

// Error gives line, column, pointer, message and hint on one line.
func (e *SyntaxError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "canon: JSON line %d column %d", e.Line, e.Column)
	if e.Pointer != "" {
		fmt.Fprintf(&b, " at %s", strconv.Quote(clip(e.Pointer)))
	}
	fmt.Fprintf(&b, ": %s", e.Msg)
	if e.Hint != "" {
		fmt.Fprintf(&b, " (%s)", e.Hint)
	}
	return b.String()
}

// locate fills in line and column.
func (e *SyntaxError) locate(doc []byte) {
	before := doc[:e.Offset]
	e.Line = bytes.Count(before, []byte{'\n'}) + 1
	e.Column = utf8.RuneCount(before[bytes.LastIndexByte(before, '\n')+1:]) + 1
}

// fail makes an error about the next byte.
func (p *parser) fail(msg, hint string) error {
	return &SyntaxError{Offset: p.pos, Msg: msg, Hint: hint}
}

// duplicate makes an error about a key that appears for the second time.
func (p *parser) duplicate(at int) error {
	p.pos = at
	key, err := p.string()
	if err != nil {
		return err
	}
	p.pos = at
	return inside(p.fail("key "+strconv.Quote(clip(string(key)))+" appears twice in one object", ""), string(key))
}

// inside adds the key or index through which a value with an error was
// reached. The pointer is built on the way out, so that reading a document
// that is right costs nothing.
func inside(err error, token string) error {
	var se *SyntaxError
	if errors.As(err, &se) {
		token = strings.ReplaceAll(token, "~", "~0")
		se.Pointer = "/" + strings.ReplaceAll(token, "/", "~1") + se.Pointer
	}
	return err
}

// here describes the next byte or character for a message.
func (p *parser) here() string {
	if p.pos >= len(p.doc) {
		return "the end of the document"
	}
	r, size := utf8.DecodeRune(p.doc[p.pos:])
	if r == utf8.RuneError && size == 1 {
		return fmt.Sprintf("byte 0x%02x", p.doc[p.pos])
	}
	return strconv.QuoteRune(r)
}

// valueHint guesses why there is no value.
func (p *parser) valueHint() string {
	switch c := p.peek(); c {
	case ']', '}':
		return "a comma must be followed by another value"
	case '\'':
		return "strings take double quotes"
	case '/', '#':
		return "JSON has no comments"
	case 'N', 'I', '+':
		return "numbers are decimal; NaN and Infinity do not exist in JSON"
	case 'T', 'F', 'n', 't', 'f':
		return "the literals are true, false and null"
	}
	return ""
}

// keyHint guesses why there is no key.
func (p *parser) keyHint() string {
	if p.peek() == '}' {
		return "a comma must be followed by another member"
	}
	return "keys are strings in double quotes"
}

// clip shortens text that came from outside before it goes into a message.
func clip(s string) string {
	const limit = 80
	if len(s) <= limit {
		return s
	}
	return strings.ToValidUTF8(s[:limit], "") + "..."
}
