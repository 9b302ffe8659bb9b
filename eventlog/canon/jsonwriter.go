package canon

import (
	"bytes"
	"math"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// jsonWriter writes canonical JSON. Every element and member is followed by a
// comma until its container is closed, so that members can change places.
type jsonWriter struct {
	layout
	buf  []byte
	safe bool // escape whatever a terminal might act upon
}

func (w *jsonWriter) null() { w.buf = append(w.buf, "null"...) }

func (w *jsonWriter) boolean(v bool) { w.buf = strconv.AppendBool(w.buf, v) }

func (w *jsonWriter) integer(v integer) { w.buf = v.appendDecimal(w.buf) }

func (w *jsonWriter) float(f float64) { w.buf = appendFloatJSON(w.buf, f) }

func (w *jsonWriter) text(s []byte) {
	if w.safe {
		w.buf = appendSafe(w.buf, s)
	} else {
		w.buf = appendString(w.buf, s)
	}
}

func (w *jsonWriter) open(isMap bool) {
	w.begin(isMap, len(w.buf))
	if isMap {
		w.buf = append(w.buf, '{')
	} else {
		w.buf = append(w.buf, '[')
	}
}

func (w *jsonWriter) key(key []byte, at int) {
	w.beginMember(member{key: key, at: at, start: len(w.buf)}, bytes.Compare)
	w.text(key)
	w.buf = append(w.buf, ':')
}

func (w *jsonWriter) done() {
	w.buf = append(w.buf, ',')
	w.endElement(len(w.buf))
}

func (w *jsonWriter) close() (duplicate int) {
	c, duplicate := w.end(w.buf, bytes.Compare)
	if c.count > 0 {
		w.buf = w.buf[:len(w.buf)-1] // the last comma
	}
	if c.isMap {
		w.buf = append(w.buf, '}')
	} else {
		w.buf = append(w.buf, ']')
	}
	return duplicate
}

// appendString appends s, which must be valid UTF-8, as a canonical string.
func appendString(dst, s []byte) []byte {
	dst = append(dst, '"')
	clean := 0 // s[clean:i] needs no escape
	for i, c := range s {
		if c >= ' ' && c != '"' && c != '\\' {
			continue
		}
		dst = appendEscape(append(dst, s[clean:i]...), c)
		clean = i + 1
	}
	return append(append(dst, s[clean:]...), '"')
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
// not printable: control sequences, and those that reverse the direction of
// text. What is not UTF-8 becomes U+FFFD.
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
