package canon

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

// writer receives a document in the order in which it is read.
type writer interface {
	null()
	boolean(v bool)
	integer(v integer)
	float(f float64)
	text(s []byte)

	open(isMap bool) container
	element(c *container)                 // before each element of an array
	key(c *container, key []byte, at int) // before each value of an object
	done(c *container)                    // after each element or value
	close(c *container) (duplicate int)   // position of a second equal key, or -1
}

// container is the state of one array or object that is being written. The
// reader keeps it, so that writers need no stack of their own.
type container struct {
	isMap    bool
	start    int  // of the container in the writer's buffer
	count    int  // of elements or members so far
	first    int  // of the members in the writer's list
	unsorted bool // a key came that is not greater than the one before
}
