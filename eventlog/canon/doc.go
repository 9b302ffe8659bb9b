// Package canon holds the only two encodings that are ever hashed: canonical
// CBOR and canonical JSON.
//
// A hash is a promise about bytes, so whatever has a meaning must have one
// spelling. Events are CBOR. What tools, guests and models exchange is JSON,
// and enters the log as CBOR. Both forms are fixed here, and each has exactly
// one way into the other:
//
//	            JSON                     Marshal
//	document ---------> canonical JSON   Go value ---------> CBOR
//	document ---------> CBOR             CBOR     ---------> Go value
//	          FromJSON                            Unmarshal
//	CBOR     ---------> canonical JSON
//	           ToJSON
//
// ToJSON(FromJSON(doc)) is JSON(doc) for every document, so nothing is lost in
// the log that the canonical text has. [Valid] says whether bytes are
// canonical, [Render] shows any item to people, and [Difference] finds the
// place where two of them part.
//
// # A worked example
//
// The document
//
//	{ "n": 1, "pi": 3.5, "id": 18446744073709551616, "s": "\u0061\/" }
//
// has this canonical JSON. Members are in the order of their keys' bytes, the
// integer is exact, the string has only the escapes that it needs:
//
//	{"id":18446744073709551616,"n":1,"pi":3.5,"s":"a/"}
//
// and this CBOR. A shorter key comes first, because its head is smaller:
//
//	a4                          map of 4
//	   61 6e  01                "n": 1
//	   61 73  62 61 2f          "s": "a/"
//	   62 69 64                 "id":
//	      c2 49 01 00 .. 00        tag 2, 9 bytes: 2^64
//	   62 70 69  f9 43 00       "pi": 3.5 as a half float
//
// # What is refused
//
// JSON comes from the other side of a trust boundary, so reading is strict and
// errors are a [*SyntaxError] with line, column, pointer and hint. Two readers
// of one document must never see different things: a key that appears twice,
// half of a surrogate pair and bytes that are not UTF-8 are errors, and so is
// a number that would become infinite. Work and memory are bounded by the size
// of the document: nesting by [MaxDepth], integers by [MaxDigits].
//
// CBOR is accepted in its core deterministic form (RFC 8949 section 4.2.1)
// alone. spec/event.md is the normative text, and the files json.jsonl,
// json-refused.jsonl, cbor.jsonl and cbor-refused.jsonl of spec/vectors hold
// cases for other implementations.
package canon
