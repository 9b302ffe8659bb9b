package canon

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"fmt"
	"math"
	"reflect"
	"slices"

	"github.com/fxamacker/cbor/v2"
	"github.com/x448/float16"
)

// The major types of RFC 8949 section 3.1.
const (
	majorUint   = 0
	majorNegint = 1
	majorBytes  = 2
	majorText   = 3
	majorArray  = 4
	majorMap    = 5
	majorTag    = 6
	majorSimple = 7
)

// The initial bytes of the simple values and of the three widths of floats.
const (
	cborFalse  = 0xf4
	cborTrue   = 0xf5
	cborNull   = 0xf6
	cborHalf   = 0xf9
	cborSingle = 0xfa
	cborDouble = 0xfb
)

// The tags of RFC 8949 sections 3.4.1 to 3.4.3: times and big integers.
const (
	tagTimeText   = 0
	tagTimeNumber = 1
	tagPosBig     = 2
	tagNegBig     = 3
)

// AppendUint appends the encoding of u to dst.
func AppendUint(dst []byte, u uint64) []byte { return appendHead(dst, majorUint, u) }

// AppendInt appends the encoding of i to dst.
func AppendInt(dst []byte, i int64) []byte {
	if i < 0 {
		return appendHead(dst, majorNegint, uint64(^i)) // ^i is -1-i
	}
	return appendHead(dst, majorUint, uint64(i))
}

// AppendText appends the encoding of s, which must be valid UTF-8, to dst.
func AppendText(dst []byte, s string) []byte {
	return append(appendHead(dst, majorText, uint64(len(s))), s...)
}

// AppendBytes appends the encoding of the byte string b to dst.
func AppendBytes(dst, b []byte) []byte { return append(AppendBytesHead(dst, len(b)), b...) }

// AppendBytesHead appends the head of a byte string to dst. Its n bytes follow.
func AppendBytesHead(dst []byte, n int) []byte { return appendHead(dst, majorBytes, uint64(n)) }

// AppendNull appends null to dst.
func AppendNull(dst []byte) []byte { return append(dst, cborNull) }

// AppendArray appends the head of an array to dst. Its n elements follow.
func AppendArray(dst []byte, n int) []byte { return appendHead(dst, majorArray, uint64(n)) }

// AppendMap appends the head of a map to dst. Its n pairs follow, keys in
// ascending order of their encodings.
func AppendMap(dst []byte, n int) []byte { return appendHead(dst, majorMap, uint64(n)) }

// appendHead appends the initial byte and argument of an item in their
// shortest form.
func appendHead(dst []byte, major byte, arg uint64) []byte {
	m := major << 5
	switch {
	case arg < 24:
		return append(dst, m|byte(arg))
	case arg <= math.MaxUint8:
		return append(dst, m|24, byte(arg))
	case arg <= math.MaxUint16:
		return binary.BigEndian.AppendUint16(append(dst, m|25), uint16(arg))
	case arg <= math.MaxUint32:
		return binary.BigEndian.AppendUint32(append(dst, m|26), uint32(arg))
	}
	return binary.BigEndian.AppendUint64(append(dst, m|27), arg)
}

// headSize returns how many bytes appendHead appends for arg.
func headSize(arg uint64) int {
	var head [9]byte
	return len(appendHead(head[:0], 0, arg))
}

// appendFloat appends f in the shortest of the three widths that holds it
// exactly. Every NaN becomes f97e00.
func appendFloat(dst []byte, f float64) []byte {
	single := float32(f)
	if math.IsNaN(f) {
		return append(dst, cborHalf, 0x7e, 0x00)
	}
	if float64(single) != f {
		return binary.BigEndian.AppendUint64(append(dst, cborDouble), math.Float64bits(f))
	}
	if half := float16.Fromfloat32(single); half.Float32() == single {
		return binary.BigEndian.AppendUint16(append(dst, cborHalf), half.Bits())
	}
	return binary.BigEndian.AppendUint32(append(dst, cborSingle), math.Float32bits(single))
}

// Raw is one encoded CBOR item. A nil Raw is encoded as null. A Raw filled in by [Unmarshal] is a
// part of the input bytes, which must not be changed.
type Raw []byte

// IsZero reports whether the item is empty, for the option omitzero of a struct tag.
func (r Raw) IsZero() bool { return len(r) == 0 }

// MarshalCBOR implements cbor.Marshaler.
func (r Raw) MarshalCBOR() ([]byte, error) {
	if len(r) == 0 {
		return []byte{cborNull}, nil
	}
	return r, nil
}

// UnmarshalCBOR implements cbor.Unmarshaler.
func (r *Raw) UnmarshalCBOR(item []byte) error {
	*r = item[:len(item):len(item)]
	return nil
}

const (
	// MaxDepth is how deep the arrays and objects of a JSON document may nest.
	// A scalar has depth 0, an empty array depth 1.
	MaxDepth = 64

	// MaxNesting is how deep the arrays, maps and tags of a CBOR item may nest.
	// It exceeds MaxDepth by the layers that an event adds around a value: the
	// tag of a big integer inside it, and at most four maps and arrays of payload
	// and envelope outside. So a document that was accepted can be recorded, and
	// a record that was written can be read.
	MaxNesting = MaxDepth + 8
)

// encMode is RFC 8949 section 4.2.1 with the choices of the Starling
// format: NaN is f97e00, infinities are half floats, nil slices and maps are
// null. Times are RFC 3339 text with nanoseconds, because the integer seconds
// that are the codec's default would lose the rest without a word.
var encMode = func() cbor.EncMode {
	o := cbor.CoreDetEncOptions()
	o.Time = cbor.TimeRFC3339NanoUTC
	return constant(o.EncMode())
}()

const unlimited = 1<<31 - 1 // counts are bounded by the bytes at hand

var decMode = constant(cbor.DecOptions{
	DupMapKey:         cbor.DupMapKeyEnforcedAPF,
	IndefLength:       cbor.IndefLengthForbidden,
	UTF8:              cbor.UTF8RejectInvalid,
	IntDec:            cbor.IntDecConvertSignedOrBigInt,
	BigIntDec:         cbor.BigIntDecodePointer,
	DefaultMapType:    reflect.TypeFor[map[string]any](),
	FieldNameMatching: cbor.FieldNameMatchingCaseSensitive,
	MaxNestedLevels:   MaxNesting,
	MaxArrayElements:  unlimited,
	MaxMapPairs:       unlimited,
}.DecMode())

// constant returns the mode of options that are constants, and therefore right.
func constant[T any](mode T, err error) T {
	if err != nil {
		panic(err)
	}
	return mode
}

// Marshal returns the canonical encoding of v. Struct fields are named by
// their cbor tag, else their json tag, else their Go name.
//
// Marshal refuses values that [Valid] would refuse: text that is not UTF-8, a [Raw] inside v that
// is not canonical, and nesting that reaches [MaxNesting], so that one more map, the envelope, fits
// around it. Every result can be read back.
func Marshal(v any) ([]byte, error) {
	b, err := Encode(v)
	if err != nil {
		return nil, err
	}
	if err := (&reader{data: b}).whole(1); err != nil {
		return nil, fmt.Errorf("canon: encode %T: %w", v, err)
	}
	return b, nil
}

// Encode is [Marshal] for an encoding that something else checks: it may be refused by
// [Valid], and is the same if it is not.
func Encode(v any) ([]byte, error) {
	b, err := encMode.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("canon: encode %T: %w", v, err)
	}
	return b, nil
}

// Unmarshal decodes the one item that is data into v, which must be a pointer.
//
// Unmarshal refuses duplicate map keys, indefinite lengths, text that is not UTF-8, bytes after the
// item, and nesting beyond [MaxNesting]. Map keys without a field in v are ignored, so that an
// older reader can read the additions of a newer writer. For a [Raw] field it checks only the form
// of the bytes; [Valid] checks them fully.
//
// In an any, integers become int64, or *big.Int where that is too small, and
// maps become map[string]any, so that the value can be encoded as JSON.
func Unmarshal(data []byte, v any) error {
	if err := decMode.Unmarshal(data, v); err != nil {
		return fmt.Errorf("canon: decode %T: %w", v, err)
	}
	return nil
}

// compareText orders texts as their encodings are ordered: the shorter first,
// because its head is smaller.
func compareText(a, b []byte) int {
	return cmp.Or(cmp.Compare(len(a), len(b)), bytes.Compare(a, b))
}

// layout tracks the members of the objects that are not closed yet.
type layout struct {
	members []member
	shapes  []shape // by depth
	scratch []byte
}

// member is a member of an object in the forms that are written of it, JSON and CBOR.
type member struct {
	key        []byte
	at         int    // position of the key in the source
	start, end [2]int // of key, value and what follows it
}

// shape is how the members of the last object at a depth were ordered: records have the same
// members again and again.
type shape struct {
	keys   [][]byte
	orders [2][]int32 // by form; nil as they are
}

// arrange removes the members from first on, which are the ends of the forms, and sorts them in
// each form. Most documents are in order already. The result duplicate is the position in the
// source of the first repeated key, or -1.
func (l *layout) arrange(depth, first int, forms ...[]byte) (duplicate int) {
	list := l.members[first:]
	l.members = l.members[:first]
	for len(l.shapes) <= depth {
		l.shapes = append(l.shapes, shape{})
	}
	s := &l.shapes[depth]
	if !slices.EqualFunc(list, s.keys, func(m member, key []byte) bool { return bytes.Equal(m.key, key) }) {
		s.keys = s.keys[:0]
		for _, m := range list {
			s.keys = append(s.keys, m.key)
		}
		for form, compare := range []func(a, b []byte) int{bytes.Compare, compareText} {
			if duplicate := s.order(form, list, compare); duplicate >= 0 {
				s.keys = nil
				return duplicate
			}
		}
	}
	for form, buf := range forms {
		if s.orders[form] == nil {
			continue
		}
		l.scratch = l.scratch[:0]
		for _, i := range s.orders[form] {
			l.scratch = append(l.scratch, buf[list[i].start[form]:list[i].end[form]]...)
		}
		copy(buf[list[0].start[form]:], l.scratch)
	}
	return -1
}

// order finds the order of the members in a form, or the first key that came before.
func (s *shape) order(form int, list []member, compare func(a, b []byte) int) (duplicate int) {
	order := s.orders[form][:0]
	s.orders[form] = nil
	sorted := true
	for i := 1; i < len(list) && sorted; i++ {
		sorted = compare(list[i-1].key, list[i].key) < 0
	}
	if sorted {
		return -1
	}
	for i := range list {
		order = append(order, int32(i))
	}
	slices.SortFunc(order, func(a, b int32) int { return cmp.Or(compare(list[a].key, list[b].key), cmp.Compare(a, b)) })
	first := -1
	for i := 1; i < len(order); i++ {
		m := list[order[i]]
		if bytes.Equal(list[order[i-1]].key, m.key) && (first < 0 || m.at < first) {
			first = m.at
		}
	}
	s.orders[form] = order
	return first
}
