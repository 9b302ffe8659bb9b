package canon

import (
	"strconv"
	"unicode/utf16"
)

// escape reads one escape sequence and returns its character.
func (p *parser) escape() (rune, error) {
	if p.pos+1 >= len(p.doc) {
		return 0, p.fail("the document ends inside an escape", "")
	}
	switch c := p.doc[p.pos+1]; c {
	case 'u':
		return p.unicodeEscape()
	case '"', '\\', '/':
		p.pos += 2
		return rune(c), nil
	case 'b':
		p.pos += 2
		return '\b', nil
	case 'f':
		p.pos += 2
		return '\f', nil
	case 'n':
		p.pos += 2
		return '\n', nil
	case 'r':
		p.pos += 2
		return '\r', nil
	case 't':
		p.pos += 2
		return '\t', nil
	}
	return 0, p.fail("unknown escape", `use one of \" \\ \/ \b \f \n \r \t \uXXXX`)
}

// unicodeEscape reads \uXXXX, or two of them that are a surrogate pair.
func (p *parser) unicodeEscape() (rune, error) {
	r, ok := p.hex4(p.pos)
	if !ok {
		return 0, p.fail("incomplete escape", `\u takes four hexadecimal digits`)
	}
	if !utf16.IsSurrogate(r) {
		p.pos += 6
		return r, nil
	}
	low, ok := p.hex4(p.pos + 6)
	full := utf16.DecodeRune(r, low)
	if !ok || full == '\ufffd' {
		return 0, p.fail("half of a surrogate pair: "+string(p.doc[p.pos:p.pos+6]), "a pair is one from \\ud800 to \\udbff, then one from \\udc00 to \\udfff")
	}
	p.pos += 12
	return full, nil
}

// hex4 is the value of the \uXXXX at position at.
func (p *parser) hex4(at int) (rune, bool) {
	if at+6 > len(p.doc) || p.doc[at] != '\\' || p.doc[at+1] != 'u' {
		return 0, false
	}
	for _, c := range p.doc[at+2 : at+6] {
		if c == '_' || c == '+' || c == '-' {
			return 0, false
		}
	}
	u, err := strconv.ParseUint(string(p.doc[at+2:at+6]), 16, 16)
	return rune(u), err == nil
}

// number reads a number by the grammar of RFC 8259 section 6.
func (p *parser) number() error {
	start := p.pos
	if p.peek() == '-' {
		p.pos++
	}
	whole := p.pos
	if p.digits() == 0 {
		return p.fail("expected a digit, found "+p.here(), "")
	}
	if p.doc[whole] == '0' && p.pos > whole+1 {
		p.pos = whole
		return p.fail("a number with a leading zero", "")
	}
	digits := p.pos - whole
	isFloat, err := p.fraction()
	if err != nil {
		return err
	}
	if isFloat {
		return p.float(start)
	}
	if digits > MaxDigits {
		p.pos = start
		return p.fail("an integer of "+strconv.Itoa(digits)+" digits; the limit is "+strconv.Itoa(MaxDigits), "pass it as a string")
	}
	p.w.integer(parseInteger(p.doc[start:p.pos]))
	return nil
}

// fraction reads the optional fraction and exponent of a number.
func (p *parser) fraction() (present bool, err error) {
	if p.peek() == '.' {
		p.pos++
		if p.digits() == 0 {
			return false, p.fail("expected a digit after the decimal point, found "+p.here(), "")
		}
		present = true
	}
	if c := p.peek(); c == 'e' || c == 'E' {
		p.pos++
		if c := p.peek(); c == '+' || c == '-' {
			p.pos++
		}
		if p.digits() == 0 {
			return false, p.fail("expected a digit in the exponent, found "+p.here(), "")
		}
		present = true
	}
	return present, nil
}

func (p *parser) digits() (n int) {
	start := p.pos
	for c := p.peek(); c >= '0' && c <= '9'; c = p.peek() {
		p.pos++
	}
	return p.pos - start
}

func (p *parser) float(start int) error {
	s := string(p.doc[start:p.pos])
	f, err := strconv.ParseFloat(s, 64)
	if err != nil { // the grammar is checked, so the range is what is wrong
		p.pos = start
		return p.fail("number "+clip(s)+" is outside the range of a 64-bit float", "pass it as a string")
	}
	p.w.float(f)
	return nil
}
