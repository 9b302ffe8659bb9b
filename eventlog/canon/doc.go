// Package canon holds the only two encodings that are ever hashed: canonical
// CBOR and canonical JSON.
//
// A hash is a promise about bytes, so every value must have one spelling.
// Events are CBOR. What tools, guests and models exchange is JSON, and enters
// the log as CBOR. Both forms are fixed here, and each has exactly one way
// into the other:
//
//	            JSON                     Marshal
//	document ---------> canonical JSON   Go value ---------> CBOR
//	document ---------> CBOR             CBOR     ---------> Go value
//	          FromJSON                            Unmarshal
//	CBOR     ---------> canonical JSON
//	           ToJSON
//
// ToJSON(FromJSON(doc)) is JSON(doc) for every document, so nothing is lost in
// the log that the canonical text has. [Valid] reports whether bytes are
// canonical, [Render] shows any item to people, and [Difference] finds the
// place where two items part.
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
//
// # Hashes
//
// [Sum] is the only hash function of the project: of envelopes, of modules, of
// schemas. Each event of a run carries the Sum of the envelope before it, so
// an event cannot be changed, removed or moved without changing all that
// follow. The last event of a run carries the root of a [Tree] over the hashes
// of all events before it, so one hash stands for the whole run, and [Prove]
// and [Verify] show that an event belongs to it without showing the others.
//
// # The shape of the tree
//
// The shape is that of the Starling format, whose logs must stay readable:
//
//	a leaf is the hash of an event, as it is
//	a parent is BLAKE3-256(left || right), 64 bytes without a prefix
//	a level with an odd number of nodes, more than one, repeats its last
//	the root of one leaf is the leaf, the root of none is 32 zero bytes
//
// Five leaves, for example, make
//
//	           r
//	       /       \
//	     x           y        y = H(z || z)
//	   /   \       /   \
//	  p     q     z     z     z = H(e || e)
//	 / \   / \   / \
//	a   b c   d e   e
//
// # What a root does not say
//
// A repeated node looks like a real one: the leaves a, b, c and a, b, c, c
// have one root. And since leaves and parents are hashed alike, a parent can
// be passed off as a leaf of a smaller tree. So a root means something only
// together with the number of leaves. In a log that number is bound: the
// terminal event which carries the root has a sequence number, one more than
// the number of leaves, and is itself hashed. [Verify] takes the number for
// that reason, and a caller must take it from there.
package canon
