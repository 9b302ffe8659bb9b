package canon

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/big"
	"math/bits"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/starling-host/starling/internal/display"
)

// MaxDigits is how many decimal digits an integer of a JSON document may have.
// Conversion between bases takes more than linear time, so there is a bound.
const MaxDigits = 1024

// Doc is a JSON document in both of its canonical forms, made by one reading of it. It does
// not change, and its bytes must not be changed. Use [Parse], or [DocOf].
type Doc struct {
	JSON []byte
	CBOR Raw

	fits atomic.Value // see Fits
}

// Parse reads a JSON document (RFC 8259). The error is a [*SyntaxError].
//
// In its JSON, members are sorted by the UTF-8 bytes of their keys, nothing is written
// between tokens, strings escape only the quote, the backslash and control
// characters. A number without fraction and exponent is an integer and stays
// exact. Every other number is the nearest 64-bit float, written in the
// shortest form that reads back as the same float, as ECMAScript would, with
// ".0" added when that looks like an integer.
//
// In its CBOR, integers are integers, big integers beyond 64 bits; other numbers are
// floats, so 1.0 is f93c00 and 1 is 01.
//
// Refused are duplicate keys however they are spelled, invalid UTF-8, halves
// of surrogate pairs, numbers outside the range of a float, integers of more
// than [MaxDigits] digits, nesting beyond [MaxDepth] and a byte order mark.
func Parse(doc []byte) (*Doc, error) {
	p := parser{doc: doc, json: make([]byte, 0, len(doc)+16), cbor: make([]byte, 0, len(doc)+16)}
	err := p.document()
	if err == nil {
		return &Doc{JSON: p.json, CBOR: p.cbor}, nil
	}
	if wrong, ok := errors.AsType[*SyntaxError](err); ok {
		before := doc[:wrong.Offset]
		wrong.Line = bytes.Count(before, []byte{'\n'}) + 1
		wrong.Column = utf8.RuneCount(before[bytes.LastIndexByte(before, '\n')+1:]) + 1
	}
	return nil, err
}

// DocOf returns the document whose CBOR [Parse] produced. See [ToJSON] for errors.
func DocOf(raw Raw) (*Doc, error) {
	text, err := ToJSON(raw)
	if err != nil {
		return nil, err
	}
	return &Doc{JSON: text, CBOR: raw}, nil
}

// JSON returns the canonical JSON of a document, see [Parse].
func JSON(doc []byte) ([]byte, error) {
	d, err := Parse(doc)
	if err != nil {
		return nil, err
	}
	return d.JSON, nil
}

// FromJSON returns the canonical CBOR of a document, see [Parse].
func FromJSON(doc []byte) (Raw, error) {
	d, err := Parse(doc)
	if err != nil {
		return nil, err
	}
	return d.CBOR, nil
}

// Fits returns what check says of the document. An answer of nil is kept: for the same
// schema as the last time, a pointer, check is not asked again.
func (d *Doc) Fits(schema any, check func(text []byte) error) error {
	if d.fits.Load() == schema {
		return nil
	}
	err := check(d.JSON)
	if err == nil {
		d.fits.Store(schema)
	}
	return err
}

// Members returns the members of a document that is an object.
func (d *Doc) Members() (members map[string]*Doc, ok bool) {
	r := reader{data: d.CBOR}
	h, err := r.head()
	if err != nil || h.major != majorMap {
		return nil, false
	}
	members = make(map[string]*Doc, h.arg)
	in := parser{doc: d.JSON, pos: 1}
	for i := range h.arg { // the last argument is the rest, in both forms
		key, _ := r.string()
		value := r.data[r.off:]
		if i < h.arg-1 {
			value = r.next()
		}
		members[string(key)] = &Doc{CBOR: value}
	}
	for i := range h.arg {
		key, _ := in.string()
		in.pos++ // the colon
		start := in.pos
		if i < h.arg-1 {
			in.skip()
		} else {
			in.pos = len(d.JSON) - 1
		}
		members[string(key)].JSON = d.JSON[start:in.pos:in.pos]
		in.pos++ // the comma
	}
	return members, true
}

// Split returns the members of an object as they were written, none if the document is something else. A
// later member replaces an earlier one of the same name.
func Split(object []byte) map[string]json.RawMessage {
	var members map[string]json.RawMessage
	if json.Unmarshal(object, &members) != nil || members == nil {
		return map[string]json.RawMessage{}
	}
	return members
}

// Quote returns a text as JSON, which is canonical if the text is UTF-8 without <, > and &. Bytes that are not
// UTF-8 become U+FFFD.
func Quote(text string) json.RawMessage {
	doc, _ := json.Marshal(text) // a string cannot fail
	return doc
}

// Join returns an object of members that are JSON, whether they are canonical or not.
func Join(members map[string]json.RawMessage) []byte {
	size := 2
	for name, value := range members {
		size += len(name) + len(value) + 8
	}
	doc := append(make([]byte, 0, size), '{')
	for _, name := range slices.Sorted(maps.Keys(members)) {
		doc = append(append(appendString(doc, []byte(name)), ':'), members[name]...)
		doc = append(doc, ',')
	}
	if len(members) > 0 {
		doc = doc[:len(doc)-1]
	}
	return append(doc, '}')
}

// skip moves behind a value of a canonical document.
func (p *parser) skip() {
	for depth := 0; ; {
		switch p.doc[p.pos] {
		case '"':
			_, _ = p.string()
			p.pos--
		case '{', '[':
			depth++
		case '}', ']', ',':
			if depth == 0 {
				return
			}
			if p.doc[p.pos] != ',' {
				depth--
			}
		}
		p.pos++
	}
}

// parser reads one JSON document by recursive descent, and writes its two forms.
type parser struct {
	doc []byte
	pos int
	layout
	json, cbor []byte
	last       []byte // what the last string means
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
		return p.text()
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
	for _, l := range literals {
		if bytes.HasPrefix(p.doc[p.pos:], []byte(l.text)) {
			p.json, p.cbor = append(p.json, l.text...), append(p.cbor, l.cbor)
			p.pos += len(l.text)
			return nil
		}
	}
	return p.fail("expected a value, found "+p.here(), p.valueHint())
}

var literals = [...]struct {
	text string
	cbor byte
}{{"null", cborNull}, {"true", cborTrue}, {"false", cborFalse}}

func (p *parser) array(depth int) error {
	start := p.open('[', majorArray)
	if p.peek() == ']' {
		p.pos++
		p.json = append(p.json, ']')
		return nil
	}
	for i := 0; ; i++ {
		p.space()
		if err := p.value(depth); err != nil {
			return inside(err, strconv.Itoa(i))
		}
		p.json = append(p.json, ',')
		if more, err := p.more(']'); err != nil {
			return err
		} else if !more {
			p.json[len(p.json)-1] = ']'
			p.count(start, majorArray, i+1)
			return nil
		}
	}
}

// open begins a container. In CBOR it leaves one byte for the head, which is enough for up
// to 23 elements.
func (p *parser) open(bracket, major byte) (start int) {
	start = len(p.cbor)
	p.json, p.cbor = append(p.json, bracket), append(p.cbor, major<<5)
	p.pos++
	p.space()
	return start
}

// count writes the head of the container at start, now that it is known how much is in it.
func (p *parser) count(start int, major byte, n int) {
	body, end := start+1, len(p.cbor)
	if grow := headSize(uint64(n)) - 1; grow > 0 {
		p.cbor = append(p.cbor, make([]byte, grow)...)
		copy(p.cbor[body+grow:], p.cbor[body:end])
	}
	appendHead(p.cbor[:start], major, uint64(n)) // into the room made for it
}

func (p *parser) object(depth int) error {
	start, first := p.open('{', majorMap), len(p.members)
	if p.peek() == '}' {
		p.pos++
		p.json = append(p.json, '}')
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
			break
		}
	}
	n := len(p.members) - first
	if at := p.arrange(depth, first, p.json, p.cbor); at >= 0 {
		p.pos = at
		key, err := p.string()
		if err != nil {
			return err
		}
		p.pos = at
		return inside(p.fail("key "+strconv.Quote(display.Clip(string(key), maxQuoted))+" appears twice in one object", ""), string(key))
	}
	p.json[len(p.json)-1] = '}'
	p.count(start, majorMap, n)
	return nil
}

func (p *parser) member(depth int) error {
	m := member{at: p.pos, start: [2]int{len(p.json), len(p.cbor)}}
	if p.peek() != '"' {
		hint := "keys are strings in double quotes"
		if p.peek() == '}' {
			hint = "a comma must be followed by another member"
		}
		return p.fail("expected a key, found "+p.here(), hint)
	}
	if err := p.text(); err != nil {
		return err
	}
	m.key = p.last
	p.space()
	if p.peek() != ':' {
		return p.fail("expected ':' after the key, found "+p.here(), "")
	}
	p.pos++
	p.space()
	p.json = append(p.json, ':')
	at := len(p.members)
	p.members = append(p.members, m)
	if err := p.value(depth); err != nil {
		return inside(err, string(m.key))
	}
	p.json = append(p.json, ',')
	p.members[at].end = [2]int{len(p.json), len(p.cbor)}
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

// text reads a string, writes it and stores its meaning in last.
func (p *parser) text() error {
	start := p.pos
	s, err := p.string()
	if err != nil {
		return err
	}
	if p.pos-start == len(s)+2 { // without escapes, which are longer
		p.json = append(p.json, p.doc[start:p.pos]...)
	} else {
		p.json = appendString(p.json, s)
	}
	p.cbor = append(appendHead(p.cbor, majorText, uint64(len(s))), s...)
	p.last = s
	return nil
}

// string reads a string and returns its meaning. Without escapes the result is a part of the
// document, not a copy.
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
		p.pos += plain(p.doc[p.pos:])
		switch {
		case p.pos == len(p.doc):
			return p.fail("the document ends inside a string", "")
		case p.doc[p.pos] == '"', p.doc[p.pos] == '\\':
			return nil
		case p.doc[p.pos] < ' ':
			return p.fail("control character "+p.here()+" in a string", "write it as an escape")
		}
		r, size := utf8.DecodeRune(p.doc[p.pos:])
		if r == utf8.RuneError && size == 1 {
			return p.fail("invalid UTF-8 in a string: "+p.here(), "encode the document as UTF-8")
		}
		p.pos += size
	}
}

// plain returns how many of the first bytes of s are ASCII that a canonical string has as it
// is. It looks at eight at a time: a byte sets its high bit in found if it is not, and those
// behind the first such byte may be wrong.
func plain(s []byte) int {
	const ones, highs = 0x0101010101010101, 0x8080808080808080
	i := 0
	for ; i+8 <= len(s); i += 8 {
		x := binary.LittleEndian.Uint64(s[i:])
		quote, backslash := x^ones*'"', x^ones*'\\'
		found := x | (x-ones*' ')&^x | (quote-ones)&^quote | (backslash-ones)&^backslash
		if found &= highs; found != 0 {
			return i + bits.TrailingZeros64(found)/8
		}
	}
	for i < len(s) && s[i] >= ' ' && s[i] < utf8.RuneSelf && s[i] != '"' && s[i] != '\\' {
		i++
	}
	return i
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
		s := string(p.doc[start:p.pos])
		f, err := strconv.ParseFloat(s, 64)
		if err != nil { // the grammar is checked, so the range is wrong
			p.pos = start
			return p.fail("number "+display.Clip(s, maxQuoted)+" is outside the range of a 64-bit float", "pass it as a string")
		}
		p.json, p.cbor = appendFloatJSON(p.json, f), appendFloat(p.cbor, f)
		return nil
	}
	if digits > MaxDigits {
		p.pos = start
		return p.fail("an integer of "+strconv.Itoa(digits)+" digits; the limit is "+strconv.Itoa(MaxDigits), "pass it as a string")
	}
	v := parseInteger(p.doc[start:p.pos])
	if digits > 19 || v == (integer{}) { // which has a sign only in the document
		p.json = v.appendDecimal(p.json)
	} else {
		p.json = append(p.json, p.doc[start:p.pos]...)
	}
	p.cbor = v.appendCBOR(p.cbor)
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
	for p.pos < len(p.doc) && p.doc[p.pos]-'0' <= 9 {
		p.pos++
	}
	return p.pos - start
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

// unicodeEscape reads \uXXXX, or two of them that form a surrogate pair.
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
		arg := x
		if x.Sign() < 0 {
			arg = new(big.Int).Not(x) // -1-x
		}
		if arg.IsUint64() {
			return integer{negative: x.Sign() < 0, arg: arg.Uint64()}
		}
		return integer{big: x}
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

// maxQuoted is how many bytes of a document an error repeats.
const maxQuoted = 80

// SyntaxError describes what is wrong with a JSON document, where, and what
// may help.
type SyntaxError struct {
	Offset  int    // of the offending byte, from 0
	Line    int    // from 1; lines end with a line feed
	Column  int    // from 1, in characters
	Pointer string // RFC 6901 pointer to the value at fault; empty for the whole document
	Msg     string
	Hint    string // empty when Msg is enough
}

// Error gives line, column, pointer, message and hint on one line.
func (e *SyntaxError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "canon: JSON line %d column %d", e.Line, e.Column)
	if e.Pointer != "" {
		fmt.Fprintf(&b, " at %s", strconv.Quote(display.Clip(e.Pointer, maxQuoted)))
	}
	fmt.Fprintf(&b, ": %s", e.Msg)
	if e.Hint != "" {
		fmt.Fprintf(&b, " (%s)", e.Hint)
	}
	return b.String()
}

// Advice implements [hint.Hinted].
func (e *SyntaxError) Advice() string { return e.Hint }

// fail makes an error about the next byte.
func (p *parser) fail(msg, hint string) error {
	return &SyntaxError{Offset: p.pos, Msg: msg, Hint: hint}
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

// valueHint guesses why a value is missing.
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
