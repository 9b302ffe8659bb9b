package canon

import (
	"bytes"
	"errors"
	"strconv"
	"unicode/utf8"
)

// parser reads one JSON document by recursive descent.
type parser struct {
	doc []byte
	pos int
	w   writer
}

// parse hands the document to w. What w holds after an error is useless.
func parse(doc []byte, w writer) error {
	p := parser{doc: doc, w: w}
	err := p.document()
	if err == nil {
		return nil
	}
	var se *SyntaxError
	if errors.As(err, &se) {
		se.locate(doc)
	}
	return err
}

func (p *parser) document() error {
	if bytes.HasPrefix(p.doc, []byte("\xef\xbb\xbf")) {
		return p.fail("byte order mark", "remove the first three bytes, EF BB BF")
	}
	p.space()
	if p.pos == len(p.doc) {
		return p.fail("the document is empty", "")
	}
	if err := p.value(0); err != nil {
		return err
	}
	p.space()
	if p.pos < len(p.doc) {
		return p.fail("unexpected "+p.here()+" after the end of the document", "a document is one value")
	}
	return nil
}

// space skips what RFC 8259 calls insignificant whitespace.
func (p *parser) space() {
	for p.pos < len(p.doc) {
		switch p.doc[p.pos] {
		case ' ', '\t', '\n', '\r':
			p.pos++
		default:
			return
		}
	}
}

// peek is the next byte, or 0 at the end, which no token begins with.
func (p *parser) peek() byte {
	if p.pos < len(p.doc) {
		return p.doc[p.pos]
	}
	return 0
}

func (p *parser) value(depth int) error {
	switch c := p.peek(); {
	case c == '"':
		s, err := p.string()
		if err != nil {
			return err
		}
		p.w.text(s)
		return nil
	case c == '{', c == '[':
		if depth >= MaxDepth {
			return p.fail("nested deeper than "+strconv.Itoa(MaxDepth), "flatten the document, or pass the inner part as a string")
		}
		if c == '{' {
			return p.object(depth + 1)
		}
		return p.array(depth + 1)
	case c == '-', c >= '0' && c <= '9':
		return p.number()
	}
	return p.literal()
}

func (p *parser) literal() error {
	rest := p.doc[p.pos:]
	switch {
	case bytes.HasPrefix(rest, []byte("null")):
		p.w.null()
		p.pos += 4
	case bytes.HasPrefix(rest, []byte("true")):
		p.w.boolean(true)
		p.pos += 4
	case bytes.HasPrefix(rest, []byte("false")):
		p.w.boolean(false)
		p.pos += 5
	default:
		return p.fail("expected a value, found "+p.here(), p.valueHint())
	}
	return nil
}

func (p *parser) array(depth int) error {
	p.w.open(false)
	p.pos++
	p.space()
	if p.peek() == ']' {
		p.pos++
		p.w.close()
		return nil
	}
	for i := 0; ; i++ {
		p.space()
		if err := p.value(depth); err != nil {
			return inside(err, strconv.Itoa(i))
		}
		p.w.done()
		if more, err := p.more(']'); err != nil {
			return err
		} else if !more {
			p.w.close()
			return nil
		}
	}
}

func (p *parser) object(depth int) error {
	p.w.open(true)
	p.pos++
	p.space()
	if p.peek() == '}' {
		p.pos++
		p.w.close()
		return nil
	}
	for {
		p.space()
		if err := p.member(depth); err != nil {
			return err
		}
		if more, err := p.more('}'); err != nil {
			return err
		} else if !more {
			return p.closeObject()
		}
	}
}

func (p *parser) closeObject() error {
	if at := p.w.close(); at >= 0 {
		return p.duplicate(at)
	}
	return nil
}

func (p *parser) member(depth int) error {
	at := p.pos
	if p.peek() != '"' {
		return p.fail("expected a key, found "+p.here(), p.keyHint())
	}
	key, err := p.string()
	if err != nil {
		return err
	}
	p.space()
	if p.peek() != ':' {
		return p.fail("expected ':' after the key, found "+p.here(), "")
	}
	p.pos++
	p.space()
	p.w.key(key, at)
	if err := p.value(depth); err != nil {
		return inside(err, string(key))
	}
	p.w.done()
	return nil
}

// more reads what follows an element: a comma, or the end of the container.
func (p *parser) more(end byte) (bool, error) {
	p.space()
	switch p.peek() {
	case ',':
		p.pos++
		return true, nil
	case end:
		p.pos++
		return false, nil
	}
	return false, p.fail("expected ',' or '"+string(end)+"', found "+p.here(), "")
}

// string reads a string and returns what it means. Without escapes that is a
// part of the document, not a copy.
func (p *parser) string() ([]byte, error) {
	p.pos++
	start := p.pos
	if err := p.run(); err != nil {
		return nil, err
	}
	s := p.doc[start:p.pos:p.pos] // full, so that appending copies
	for p.doc[p.pos] == '\\' {
		r, err := p.escape()
		if err != nil {
			return nil, err
		}
		s = utf8.AppendRune(s, r)
		start = p.pos
		if err := p.run(); err != nil {
			return nil, err
		}
		s = append(s, p.doc[start:p.pos]...)
	}
	p.pos++
	return s, nil
}

// run skips the characters of a string that stand for themselves, up to a
// quote or backslash.
func (p *parser) run() error {
	for {
		i := p.pos
		for i < len(p.doc) && p.doc[i] >= ' ' && p.doc[i] < utf8.RuneSelf && p.doc[i] != '"' && p.doc[i] != '\\' {
			i++
		}
		p.pos = i
		switch {
		case i == len(p.doc):
			return p.fail("the document ends inside a string", "")
		case p.doc[i] == '"', p.doc[i] == '\\':
			return nil
		case p.doc[i] < ' ':
			return p.fail("control character "+p.here()+" in a string", "write it as an escape")
		}
		r, size := utf8.DecodeRune(p.doc[i:])
		if r == utf8.RuneError && size == 1 {
			return p.fail("invalid UTF-8 in a string: "+p.here(), "encode the document as UTF-8")
		}
		p.pos += size
	}
}
