package canon

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
