package canon

import "strconv"

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
