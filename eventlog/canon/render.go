package canon

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// ToJSON returns the canonical JSON of an item that [FromJSON] made. It is its
// inverse: ToJSON(FromJSON(doc)) equals JSON(doc).
//
// Items without a JSON form are an error: byte strings, NaN and infinities,
// keys that are not text, tags other than big integers, nesting beyond
// [MaxDepth]. [Render] shows these too.
func ToJSON(raw Raw) ([]byte, error) { return toJSON(raw, false) }

// Render returns JSON that shows any canonical item to people. An item that
// [ToJSON] accepts looks the same here, except that characters which are not
// printable are escaped, so that no value can drive a terminal. The rest is shown
// in these forms:
//
//	byte strings of printable text  are {"$text":"GET / HTTP/1.1\r\n"}
//	other byte strings              are "h'0a1b'", as in CBOR diagnostic notation
//	NaN and infinities              are {"$float":"NaN"}, "Infinity" or "-Infinity"
//	maps with keys that are no text are {"$map":[[key,value],...]}
//	other tags                      are {"$tag":[number,value]}
//	other simple values             are {"$simple":number}
//
// The form is for reading: a value that itself contains such an object looks
// alike. Only the encoding is exact.
func Render(raw Raw) ([]byte, error) { return toJSON(raw, true) }

func toJSON(raw Raw, human bool) ([]byte, error) {
	valid := reader{data: raw}
	if err := valid.whole(0); err != nil {
		return nil, fmt.Errorf("canon: %w", err)
	}
	r := renderer{reader: reader{data: raw, oddMaps: valid.oddMaps}, buf: make([]byte, 0, len(raw)+len(raw)/2+16), human: human}
	if err := r.item(0); err != nil {
		return nil, fmt.Errorf("canon: no JSON for this: %w", err)
	}
	return r.buf, nil
}

// renderer reads an item that is known to be valid and writes it as JSON.
type renderer struct {
	reader
	layout
	buf   []byte
	human bool // show values that JSON cannot express, and escape characters that a terminal interprets
}

func (r *renderer) text(s []byte) {
	if r.human {
		r.buf = appendSafe(r.buf, s)
	} else {
		r.buf = appendString(r.buf, s)
	}
}

func (r *renderer) item(depth int) error {
	at := r.off
	h, err := r.head()
	if err != nil {
		return err
	}
	if !r.human && depth >= MaxDepth && (h.major == majorArray || h.major == majorMap) {
		return r.errorAt(at, "nested deeper than %d", MaxDepth)
	}
	switch h.major {
	case majorUint, majorNegint:
		r.buf = integer{negative: h.major == majorNegint, arg: h.arg}.appendDecimal(r.buf)
		return nil
	case majorBytes:
		return r.byteString(at, h.arg)
	case majorText:
		s, err := r.bytes(h.arg)
		r.text(s)
		return err
	case majorArray:
		return r.array(h.arg, depth+1)
	case majorMap:
		return r.object(at, h.arg, depth+1)
	case majorTag:
		return r.tag(at, h.arg, depth)
	}
	return r.simple(at, h)
}

func (r *renderer) array(n uint64, depth int) error {
	r.buf = append(r.buf, '[')
	for i := range n {
		if i > 0 {
			r.buf = append(r.buf, ',')
		}
		if err := r.item(depth); err != nil {
			return err
		}
	}
	r.buf = append(r.buf, ']')
	return nil
}

// object writes a map whose keys are text, and any other one as pairs:
// {"$map":[[key,value],...]}.
func (r *renderer) object(at int, n uint64, depth int) error {
	if r.oddMaps[at] {
		if !r.human {
			return r.errorAt(at, "a map with keys that are not text")
		}
		r.buf = append(r.buf, `{"$map":[`...)
		for i := range n {
			if i > 0 {
				r.buf = append(r.buf, ',')
			}
			if err := r.array(2, depth); err != nil {
				return err
			}
		}
		r.buf = append(r.buf, "]}"...)
		return nil
	}
	r.buf = append(r.buf, '{')
	if n == 0 {
		r.buf = append(r.buf, '}')
		return nil
	}
	first := len(r.members)
	for range n {
		key, err := r.string()
		if err != nil {
			return err
		}
		i := len(r.members)
		r.members = append(r.members, member{key: key, start: [2]int{len(r.buf)}})
		r.text(key)
		r.buf = append(r.buf, ':')
		if err := r.item(depth); err != nil {
			return err
		}
		r.buf = append(r.buf, ',')
		r.members[i].end[0] = len(r.buf)
	}
	r.arrange(depth, first, r.buf)
	r.buf[len(r.buf)-1] = '}'
	return nil
}

func (r *renderer) byteString(at int, n uint64) error {
	b, err := r.bytes(n)
	if err != nil {
		return err
	}
	switch {
	case !r.human:
		return r.errorAt(at, "a byte string")
	case printable(b):
		r.buf = append(r.buf, `{"$text":`...)
		r.text(b)
		r.buf = append(r.buf, '}')
	default:
		r.buf = append(hex.AppendEncode(append(r.buf, `"h'`...), b), `'"`...)
	}
	return nil
}

// printable reports whether b is text that a terminal can show.
func printable(b []byte) bool {
	if len(b) == 0 || !utf8.Valid(b) {
		return false
	}
	for _, c := range string(b) {
		if !unicode.IsPrint(c) && c != '\n' && c != '\r' && c != '\t' {
			return false
		}
	}
	return true
}

func (r *renderer) tag(at int, tag uint64, depth int) error {
	if tag == tagPosBig || tag == tagNegBig {
		return r.bigInteger(at, tag)
	}
	if !r.human {
		return r.errorAt(at, "tag %d", tag)
	}
	r.buf = fmt.Appendf(r.buf, `{"$tag":[%d,`, tag)
	if err := r.item(depth + 1); err != nil {
		return err
	}
	r.buf = append(r.buf, "]}"...)
	return nil
}

// bigInteger writes the digits of a big integer, or its bytes when there are
// more digits than JSON may have here.
func (r *renderer) bigInteger(at int, tag uint64) error {
	b, err := r.string()
	if err != nil {
		return err
	}
	if x := bigFromBytes(b, tag == tagNegBig); x != nil {
		r.buf = integer{big: x}.appendDecimal(r.buf)
		return nil
	}
	if !r.human {
		return r.errorAt(at, "an integer of more than %d digits", MaxDigits)
	}
	r.buf = fmt.Appendf(r.buf, `{"$tag":[%d,"h'%x'"]}`, tag, b)
	return nil
}

func (r *renderer) simple(at int, h head) error {
	switch {
	case h.isFloat():
		return r.floatOrName(at, h.float())
	case h.arg == cborNull&0x1f:
		r.buf = append(r.buf, "null"...)
	case h.arg == cborTrue&0x1f, h.arg == cborFalse&0x1f:
		r.buf = strconv.AppendBool(r.buf, h.arg == cborTrue&0x1f)
	case !r.human:
		return r.errorAt(at, "simple value %d", h.arg)
	default:
		r.buf = fmt.Appendf(r.buf, `{"$simple":%d}`, h.arg)
	}
	return nil
}

func (r *renderer) floatOrName(at int, f float64) error {
	name := ""
	switch {
	case math.IsNaN(f):
		name = "NaN"
	case math.IsInf(f, 1):
		name = "Infinity"
	case math.IsInf(f, -1):
		name = "-Infinity"
	default:
		r.buf = appendFloatJSON(r.buf, f)
		return nil
	}
	if !r.human {
		return r.errorAt(at, "%s", name)
	}
	r.buf = fmt.Appendf(r.buf, `{"$float":%q}`, name)
	return nil
}

// appendString appends s, which must be valid UTF-8, as a canonical string.
func appendString(dst, s []byte) []byte {
	dst = append(dst, '"')
	for {
		n := plain(s)
		dst, s = append(dst, s[:n]...), s[n:]
		if len(s) == 0 {
			return append(dst, '"')
		}
		for n = 0; n < len(s) && s[n] >= utf8.RuneSelf; n++ {
		}
		if n == 0 {
			dst, s = appendEscape(dst, s[0]), s[1:]
		}
		dst, s = append(dst, s[:n]...), s[n:]
	}
}

// appendEscape appends the shortest escape of c, which is ASCII.
func appendEscape(dst []byte, c byte) []byte {
	const special, letters = "\"\\\b\f\n\r\t", `"\bfnrt`
	if i := strings.IndexByte(special, c); i >= 0 {
		return append(dst, '\\', letters[i])
	}
	return appendUnicode(dst, uint16(c))
}

func appendUnicode(dst []byte, unit uint16) []byte {
	const hex = "0123456789abcdef"
	return append(dst, '\\', 'u', hex[unit>>12], hex[unit>>8&15], hex[unit>>4&15], hex[unit&15])
}

// appendSafe appends s like appendString, but escapes every character that is
// not printable: control sequences, and characters that reverse the direction
// of text. Bytes that are not UTF-8 become U+FFFD.
func appendSafe(dst, s []byte) []byte {
	dst = append(dst, '"')
	for len(s) > 0 {
		r, size := utf8.DecodeRune(s)
		s = s[size:]
		switch {
		case r < ' ' || r == '"' || r == '\\':
			dst = appendEscape(dst, byte(r))
		case unicode.IsPrint(r):
			dst = utf8.AppendRune(dst, r)
		default:
			for _, unit := range utf16.AppendRune(nil, r) {
				dst = appendUnicode(dst, unit)
			}
		}
	}
	return append(dst, '"')
}

// AppendString appends s as a JSON string in the way of [Render] to dst.
func AppendString(dst []byte, s string) []byte { return appendSafe(dst, []byte(s)) }

// appendFloatJSON appends a finite f as ECMAScript's Number::toString does
// (ECMA-262 section 6.1.6.1.20), with ".0" added to what looks like an integer
// and the sign of zero kept.
func appendFloatJSON(dst []byte, f float64) []byte {
	abs := math.Abs(f)
	if abs != 0 && (abs < 1e-6 || abs >= 1e21) {
		dst = strconv.AppendFloat(dst, f, 'e', -1, 64)
		if n := len(dst); dst[n-4] == 'e' && dst[n-2] == '0' { // e-07 is e-7
			dst[n-2] = dst[n-1]
			dst = dst[:n-1]
		}
		return dst
	}
	start := len(dst)
	dst = strconv.AppendFloat(dst, f, 'f', -1, 64)
	if bytes.IndexByte(dst[start:], '.') < 0 {
		dst = append(dst, ".0"...)
	}
	return dst
}
