package canon

import (
	"bytes"
	"math"
	"strconv"
)

// jsonWriter writes canonical JSON. Every element and member is followed by a
// comma until its container is closed, so that members can change places.
type jsonWriter struct {
	buf []byte
	members
}

func (w *jsonWriter) null() { w.buf = append(w.buf, "null"...) }

func (w *jsonWriter) boolean(v bool) { w.buf = strconv.AppendBool(w.buf, v) }

func (w *jsonWriter) integer(v integer) { w.buf = v.appendDecimal(w.buf) }

func (w *jsonWriter) float(f float64) { w.buf = appendFloatJSON(w.buf, f) }

func (w *jsonWriter) text(s []byte) { w.buf = appendString(w.buf, s) }

func (w *jsonWriter) open(isMap bool) container {
	c := container{isMap: isMap, start: len(w.buf), first: len(w.list)}
	if isMap {
		w.buf = append(w.buf, '{')
	} else {
		w.buf = append(w.buf, '[')
	}
	return c
}

func (w *jsonWriter) element(c *container) { c.count++ }

func (w *jsonWriter) key(c *container, key []byte, at int) {
	w.add(c, member{key: key, at: at, start: len(w.buf)}, bytes.Compare)
	w.buf = append(appendString(w.buf, key), ':')
}

func (w *jsonWriter) done(c *container) {
	w.buf = append(w.buf, ',')
	if c.isMap {
		w.list[len(w.list)-1].end = len(w.buf)
	}
}

func (w *jsonWriter) close(c *container) (duplicate int) {
	duplicate = -1
	if c.isMap {
		duplicate = w.sort(c, w.buf, bytes.Compare)
	}
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

// appendString appends s, which must be valid UTF-8, as a JSON string.
func appendString(dst, s []byte) []byte {
	const hex = "0123456789abcdef"
	dst = append(dst, '"')
	clean := 0 // s[clean:i] needs no escape
	for i, c := range s {
		if c >= ' ' && c != '"' && c != '\\' {
			continue
		}
		dst = append(dst, s[clean:i]...)
		clean = i + 1
		switch c {
		case '"', '\\':
			dst = append(dst, '\\', c)
		case '\b':
			dst = append(dst, '\\', 'b')
		case '\f':
			dst = append(dst, '\\', 'f')
		case '\n':
			dst = append(dst, '\\', 'n')
		case '\r':
			dst = append(dst, '\\', 'r')
		case '\t':
			dst = append(dst, '\\', 't')
		default:
			dst = append(dst, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
		}
	}
	return append(append(dst, s[clean:]...), '"')
}

// appendFloatJSON appends a finite f as ECMAScript's Number::toString does
// (ECMA-262 section 6.1.6.1.20), with ".0" added to what looks like an integer
// and the sign of zero kept.
func appendFloatJSON(dst []byte, f float64) []byte {
	abs := math.Abs(f)
	if abs != 0 && (abs < 1e-6 || abs >= 1e21) {
		dst = strconv.AppendFloat(dst, f, 'e', -1, 64)
		if n := len(dst); dst[n-2] == '0' { // e-07 is e-7
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

// AppendJSONString appends s as a canonical JSON string to dst. Bytes that are
// not UTF-8 become U+FFFD.
func AppendJSONString(dst []byte, s string) []byte {
	return appendString(dst, bytes.ToValidUTF8([]byte(s), []byte("\ufffd")))
}
