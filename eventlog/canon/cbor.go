package canon

import (
	"fmt"
	"reflect"

	"github.com/fxamacker/cbor/v2"
)

// Raw is one encoded CBOR item. A nil Raw is encoded as null.
type Raw = cbor.RawMessage

const (
	// MaxDepth is how deep the arrays and objects of a JSON document may nest.
	// A scalar has depth 0, an empty array depth 1.
	MaxDepth = 64

	// MaxNesting is how deep the arrays, maps and tags of a CBOR item may nest.
	// It exceeds MaxDepth by what an event wraps around a value: the tag of a
	// big integer inside it, and at most four maps and arrays of payload and
	// envelope outside. So a document that was accepted can be recorded, and a
	// record that was written can be read.
	MaxNesting = MaxDepth + 8
)

var (
	encMode = newEncMode()
	decMode = newDecMode()
)

// newEncMode is RFC 8949 section 4.2.1 with the choices of the Starling
// format: NaN is f97e00, infinities are half floats, nil slices and maps are
// null. Times are RFC 3339 text with nanoseconds, because the integer seconds
// that are the codec's default would lose the rest without a word.
func newEncMode() cbor.EncMode {
	o := cbor.CoreDetEncOptions()
	o.Time = cbor.TimeRFC3339NanoUTC
	m, err := o.EncMode()
	if err != nil {
		panic(err) // the options above are constants
	}
	return m
}

func newDecMode() cbor.DecMode {
	const unlimited = 1<<31 - 1 // counts are bounded by the bytes at hand
	m, err := cbor.DecOptions{
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
	}.DecMode()
	if err != nil {
		panic(err)
	}
	return m
}

// Marshal returns the canonical encoding of v. Struct fields are named by
// their cbor tag, else their json tag, else their Go name.
//
// It refuses what [Valid] would refuse: text that is not UTF-8, a [Raw] inside
// v that is not canonical, nesting that reaches [MaxNesting], so that one more
// map, the envelope, fits around it. Whatever it returns can be read back.
func Marshal(v any) ([]byte, error) {
	b, err := encMode.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("canon: encode %T: %w", v, err)
	}
	if err := validWithin(b, 1); err != nil {
		return nil, fmt.Errorf("canon: encode %T: %w", v, err)
	}
	return b, nil
}

// Unmarshal decodes the one item that is data into v, which must be a pointer.
//
// It refuses duplicate map keys, indefinite lengths, text that is not UTF-8,
// bytes after the item and nesting beyond [MaxNesting]. Map keys that v has no
// field for are ignored, so that an older reader can read what a newer writer
// added. A [Raw] field receives its bytes with no more than their form
// checked; [Valid] checks them all.
//
// In an any, integers become int64, or *big.Int where that is too small, and
// maps become map[string]any, so that the value can be encoded as JSON.
func Unmarshal(data []byte, v any) error {
	if err := decMode.Unmarshal(data, v); err != nil {
		return fmt.Errorf("canon: decode %T: %w", v, err)
	}
	return nil
}
