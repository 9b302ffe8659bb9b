package jsonscan

import (
	"math"
	"strconv"
)

// MaxDepth is how deep arrays and objects may nest. The host refuses documents
// deeper than 64; the rest is room for the envelope and for a later host.
const MaxDepth = 128

// SyntaxError is text that is not JSON.
type SyntaxError struct {
	Offset int    // of the offending byte, from 0
	Reason string // for instance "missing a comma"
}

func (e *SyntaxError) Error() string {
	return e.Reason + " at byte " + strconv.Itoa(e.Offset)
}

// Check reports whether doc is exactly one JSON value, with space around it
// allowed. The error is a *[SyntaxError].
func Check(doc []byte) error {
	s := scanner{doc: doc}
	if err := s.value(0); err != nil {
		return err
	}
	return s.end()
}

// Object checks that doc is exactly one JSON object and calls each for its
// members, in their order, with the decoded name and the bytes of the value,
// which are part of doc. An error of each ends the scan and is returned.
func Object(doc []byte, each func(name string, value []byte) error) error {
	s := scanner{doc: doc}
	s.space()
	if s.peek() != '{' {
		return s.fail("not an object")
	}
	if err := s.object(0, each); err != nil {
		return err
	}
	return s.end()
}

// scanner reads doc from pos. Its methods leave pos behind what they accepted.
type scanner struct {
	doc []byte
	pos int
}

func (s *scanner) fail(reason string) error {
	if s.pos >= len(s.doc) {
		reason = "the text ends too early"
	}
	return &SyntaxError{Offset: s.pos, Reason: reason}
}

// peek returns the next byte, or 0 at the end: no JSON token begins with it.
func (s *scanner) peek() byte {
	if s.pos < len(s.doc) {
		return s.doc[s.pos]
	}
	return 0
}

func (s *scanner) space() {
	for s.pos < len(s.doc) {
		switch s.doc[s.pos] {
		case ' ', '\t', '\n', '\r':
			s.pos++
		default:
			return
		}
	}
}

func (s *scanner) end() error {
	s.space()
	if s.pos < len(s.doc) {
		return s.fail("text after the value")
	}
	return nil
}

func (s *scanner) value(depth int) error {
	s.space()
	switch c := s.peek(); {
	case c == '{':
		return s.object(depth, nil)
	case c == '[':
		return s.array(depth)
	case c == '"':
		return s.str()
	case c == '-' || isDigit(c):
		return s.number()
	case c == 't':
		return s.literal("true")
	case c == 'f':
		return s.literal("false")
	case c == 'n':
		return s.literal("null")
	default:
		return s.fail("no value begins like this")
	}
}

func (s *scanner) literal(word string) error {
	for i := range len(word) {
		if s.peek() != word[i] {
			return s.fail("no value begins like this")
		}
		s.pos++
	}
	return nil
}

func (s *scanner) object(depth int, each func(name string, value []byte) error) error {
	if depth >= MaxDepth {
		return s.fail("nested too deep")
	}
	s.pos++ // the brace
	return s.list('}', func() error { return s.member(depth, each) })
}

func (s *scanner) array(depth int) error {
	if depth >= MaxDepth {
		return s.fail("nested too deep")
	}
	s.pos++ // the bracket
	return s.list(']', func() error { return s.value(depth + 1) })
}

// list reads items up to the closing byte, with commas between them.
func (s *scanner) list(closing byte, item func() error) error {
	s.space()
	if s.peek() == closing {
		s.pos++
		return nil
	}
	for {
		if err := item(); err != nil {
			return err
		}
		s.space()
		switch s.peek() {
		case closing:
			s.pos++
			return nil
		case ',':
			s.pos++
		default:
			return s.fail("missing a comma or the closing " + string(rune(closing)))
		}
	}
}

// member reads one name and its value and hands them to each, if there is one.
func (s *scanner) member(depth int, each func(name string, value []byte) error) error {
	s.space()
	if s.peek() != '"' {
		return s.fail("missing a name")
	}
	nameStart := s.pos
	if err := s.str(); err != nil {
		return err
	}
	name := s.doc[nameStart:s.pos]
	s.space()
	if s.peek() != ':' {
		return s.fail("missing a colon")
	}
	s.pos++
	s.space()
	valueStart := s.pos
	if err := s.value(depth + 1); err != nil || each == nil {
		return err
	}
	return each(unquote(name), s.doc[valueStart:s.pos:s.pos])
}

func (s *scanner) number() error {
	if s.peek() == '-' {
		s.pos++
	}
	if s.peek() == '0' {
		s.pos++
	} else if err := s.digits(); err != nil {
		return err
	}
	if s.peek() == '.' {
		s.pos++
		if err := s.digits(); err != nil {
			return err
		}
	}
	if c := s.peek(); c == 'e' || c == 'E' {
		s.pos++
		if c := s.peek(); c == '+' || c == '-' {
			s.pos++
		}
		return s.digits()
	}
	return nil
}

func (s *scanner) digits() error {
	if !isDigit(s.peek()) {
		return s.fail("missing a digit")
	}
	for isDigit(s.peek()) {
		s.pos++
	}
	return nil
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

// Uint32 returns the value of a JSON number that is a whole number without sign
// or exponent and fits 32 bits.
func Uint32(value []byte) (uint32, error) {
	var n uint64
	for i, c := range value {
		n = n*10 + uint64(c-'0')
		if !isDigit(c) || n > math.MaxUint32 {
			return 0, &SyntaxError{Offset: i, Reason: "not a whole number of 32 bits"}
		}
	}
	return uint32(n), Check(value)
}
