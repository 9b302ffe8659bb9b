package canon

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"math"
	"math/big"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// MaxDigits is how many decimal digits an integer of a JSON document may have.
// Conversion between bases takes more than linear time, so there is a bound.
const MaxDigits = 1024

// JSON returns the canonical form of a JSON document (RFC 8259), or a
// [*SyntaxError].
//
// Members are sorted by the UTF-8 bytes of their keys, nothing is written
// between tokens, strings escape only the quote, the backslash and control
// characters. A number without fraction and exponent is an integer and stays
// exact. Every other number is the nearest 64-bit float, written in the
// shortest form that reads back as the same float, as ECMAScript would, with
// ".0" added when that looks like an integer.
//
// Refused are duplicate keys however they are spelled, invalid UTF-8, halves
// of surrogate pairs, numbers outside the range of a float, integers of more
// than [MaxDigits] digits, nesting beyond [MaxDepth] and a byte order mark.
func JSON(doc []byte) ([]byte, error) {
	w := jsonWriter{buf: make([]byte, 0, len(doc)+16)}
	if err := parse(doc, &w); err != nil {
		return nil, err
	}
	return w.buf, nil
}

// FromJSON returns the canonical CBOR of a JSON document, or a
// [*SyntaxError]. It accepts exactly what [JSON] accepts.
//
// Integers become integers, big integers beyond 64 bits; other numbers become
// floats, so 1.0 is f93c00 and 1 is 01.
func FromJSON(doc []byte) (Raw, error) {
	w := cborWriter{buf: make([]byte, 0, len(doc)+16)}
	if err := parse(doc, &w); err != nil {
		return nil, err
	}
	return w.buf, nil
}

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

// string reads a string and returns its unescaped text. Without escapes that
// is a part of the document, not a copy.
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

// run skips the plain characters of a string, up to a quote or backslash.
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
	if err != nil { // the grammar is checked, so the range is wrong
		p.pos = start
		return p.fail("number "+clip(s)+" is outside the range of a 64-bit float", "pass it as a string")
	}
	p.w.float(f)
	return nil
}

// escape reads one escape sequence and returns its character.
func (p *parser) escape() (rune, error) {
	const letters, meaning = `"\/bfnrt`, "\"\\/\b\f\n\r\t"
	if p.pos+1 == len(p.doc) {
		return 0, p.fail("the document ends inside an escape", "")
	}
	c := p.doc[p.pos+1]
	if c == 'u' {
		return p.unicodeEscape()
	}
	i := strings.IndexByte(letters, c)
	if i < 0 {
		return 0, p.fail("unknown escape", `use one of \" \\ \/ \b \f \n \r \t \uXXXX`)
	}
	p.pos += 2
	return rune(meaning[i]), nil
}

// unicodeEscape reads \uXXXX, or two of them that are a surrogate pair.
func (p *parser) unicodeEscape() (rune, error) {
	r, ok := p.unit(p.pos)
	if !ok {
		return 0, p.fail("incomplete escape", `\u takes four hexadecimal digits`)
	}
	if !utf16.IsSurrogate(r) {
		p.pos += 6
		return r, nil
	}
	low, _ := p.unit(p.pos + 6)
	r = utf16.DecodeRune(r, low)
	if r == unicode.ReplacementChar { // not the result of a pair
		return 0, p.fail("half of a surrogate pair: "+string(p.doc[p.pos:p.pos+6]),
			`a pair is one of \ud800 to \udbff, then one of \udc00 to \udfff`)
	}
	p.pos += 12
	return r, nil
}

// unit is the value of the \uXXXX at position at.
func (p *parser) unit(at int) (rune, bool) {
	if at+6 > len(p.doc) || p.doc[at] != '\\' || p.doc[at+1] != 'u' {
		return 0, false
	}
	var b [2]byte
	if _, err := hex.Decode(b[:], p.doc[at+2:at+6]); err != nil {
		return 0, false
	}
	return rune(binary.BigEndian.Uint16(b[:])), true
}

// integer is any integer. When big is nil the value is arg, or -1-arg if
// negative; otherwise it is big, which then fits no such form.
type integer struct {
	negative bool
	arg      uint64
	big      *big.Int
}

// parseInteger converts an optional minus sign and digits that have been
// checked. Minus zero is zero: an integer has no sign of its own there.
func parseInteger(s []byte) integer {
	digits := s
	if s[0] == '-' {
		digits = s[1:]
	}
	if len(digits) > 19 { // 19 nines fit 64 bits
		x, _ := new(big.Int).SetString(string(s), 10)
		return fromBig(x)
	}
	var u uint64
	for _, c := range digits {
		u = u*10 + uint64(c-'0')
	}
	if len(digits) < len(s) && u > 0 {
		return integer{negative: true, arg: u - 1}
	}
	return integer{arg: u}
}

func fromBig(x *big.Int) integer {
	arg := x
	if x.Sign() < 0 {
		arg = new(big.Int).Not(x) // -1-x
	}
	if arg.IsUint64() {
		return integer{negative: x.Sign() < 0, arg: arg.Uint64()}
	}
	return integer{big: x}
}

// bigFromBytes is the big integer that is, or whose complement is, the bytes b.
// It is nil when that has more than [MaxDigits] digits.
func bigFromBytes(b []byte, negative bool) *big.Int {
	if len(b) > MaxDigits/2 { // a byte has more than two digits
		return nil
	}
	x := new(big.Int).SetBytes(b)
	if negative {
		x.Not(x)
	}
	if digits := len(new(big.Int).Abs(x).Text(10)); digits > MaxDigits {
		return nil
	}
	return x
}

func (v integer) appendDecimal(dst []byte) []byte {
	switch {
	case v.big != nil:
		return v.big.Append(dst, 10)
	case !v.negative:
		return strconv.AppendUint(dst, v.arg, 10)
	case v.arg == math.MaxUint64:
		return append(dst, "-18446744073709551616"...)
	}
	return strconv.AppendUint(append(dst, '-'), v.arg+1, 10)
}

func (v integer) appendCBOR(dst []byte) []byte {
	switch {
	case v.big == nil && v.negative:
		return appendHead(dst, majorNegint, v.arg)
	case v.big == nil:
		return appendHead(dst, majorUint, v.arg)
	case v.big.Sign() < 0:
		dst = appendHead(dst, majorTag, tagNegBig)
		return AppendBytes(dst, new(big.Int).Not(v.big).Bytes())
	}
	dst = appendHead(dst, majorTag, tagPosBig)
	return AppendBytes(dst, v.big.Bytes())
}
