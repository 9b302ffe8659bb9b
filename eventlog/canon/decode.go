package canon

import (
	"bytes"
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/x448/float16"
)

// Valid reports whether data is exactly one canonical CBOR item: encoding its
// value gives the same bytes again. The error names the first byte that breaks
// a rule, counted from 0.
//
// Lengths, integers and floats have their shortest form, map keys ascend in
// the order of their encodings, no length is indefinite, text is UTF-8, big
// integers exceed the range of integers, NaN is f97e00, and nothing nests
// deeper than [MaxNesting].
func Valid(data []byte) error { return ValidInside(data, 0) }

// ValidInside is [Valid] for an item that is going to be inside of that many arrays and maps.
func ValidInside(data []byte, outer int) error {
	if err := (&reader{data: data}).whole(outer); err != nil {
		return fmt.Errorf("canon: %w", err)
	}
	return nil
}

func (r *reader) whole(outer int) error {
	if err := r.check(outer); err != nil {
		return err
	}
	if r.off != len(r.data) {
		return r.errorAt(r.off, "%d bytes after the end of the item", len(r.data)-r.off)
	}
	return nil
}

// reader walks over encoded items.
type reader struct {
	data []byte
	off  int // of the next byte

	// oddMaps are the places of maps that check found to have a key that is not
	// text. Searching again in each map on the way down would read the deepest items
	// once for every level.
	oddMaps map[int]bool
}

// head is the first part of an item: its type and its argument, which is a
// value, a length, a count, a tag or the bits of a float.
type head struct {
	major, info byte
	arg         uint64
}

func (r *reader) errorAt(off int, format string, args ...any) error {
	return fmt.Errorf("byte %d: %s", off, fmt.Sprintf(format, args...))
}

func (r *reader) truncated() error { return r.errorAt(len(r.data), "the item ends early") }

// head reads the head of the next item and refuses a head that is longer than necessary.
func (r *reader) head() (head, error) {
	if r.off >= len(r.data) {
		return head{}, r.truncated()
	}
	at := r.off
	b := r.data[at]
	h := head{major: b >> 5, info: b & 0x1f}
	r.off++
	if h.info < 24 {
		h.arg = uint64(h.info)
		return h, nil
	}
	if h.info > 27 {
		if h.info == 31 {
			return h, r.errorAt(at, "indefinite length")
		}
		return h, r.errorAt(at, "reserved initial byte %#02x", b)
	}
	size := 1 << (h.info - 24)
	if len(r.data)-r.off < size {
		return h, r.truncated()
	}
	for _, c := range r.data[r.off : r.off+size] {
		h.arg = h.arg<<8 | uint64(c)
	}
	r.off += size
	return h, r.checkShortest(at, h)
}

// checkShortest refuses arguments and floats that fit a shorter width, and simple values that fit the
// initial byte.
func (r *reader) checkShortest(at int, h head) error {
	var buf [9]byte
	switch {
	case h.major != majorSimple && headSize(h.arg) != r.off-at:
		return r.errorAt(at, "%d is not encoded in its shortest form", h.arg)
	case h.major == majorSimple && h.info == 24 && h.arg < 32:
		return r.errorAt(at, "simple value %d takes one byte", h.arg)
	case h.isFloat() && !bytes.Equal(appendFloat(buf[:0], h.float()), r.data[at:r.off]):
		return r.errorAt(at, "the float is not encoded in its shortest form")
	}
	return nil
}

// float is the value of a head that isFloat.
func (h head) float() float64 {
	switch h.info {
	case 25:
		return float64(float16.Frombits(uint16(h.arg)).Float32())
	case 26:
		return float64(math.Float32frombits(uint32(h.arg)))
	}
	return math.Float64frombits(h.arg)
}

func (h head) isFloat() bool { return h.major == majorSimple && h.info >= 25 }

// check reads one item at the given depth of nesting.
func (r *reader) check(depth int) error {
	at := r.off
	if at < len(r.data) { // most items are short, and their head is one byte
		switch b := r.data[at]; {
		case b < majorNegint<<5+24 && b&0x1f < 24:
			r.off++
			return nil
		case b >= majorText<<5 && b < majorText<<5+24:
			if end := at + 1 + int(b&0x1f); end <= len(r.data) && isASCII(r.data[at+1:end]) {
				r.off = end
				return nil
			}
		}
	}
	h, err := r.head()
	if err != nil {
		return err
	}
	if h.major >= majorArray && h.major <= majorTag && depth >= MaxNesting {
		return r.errorAt(at, "nested deeper than %d", MaxNesting)
	}
	switch h.major {
	case majorBytes, majorText:
		text, err := r.bytes(h.arg)
		if err == nil && h.major == majorText && !utf8.Valid(text) {
			err = r.errorAt(at, "text that is not UTF-8")
		}
		return err
	case majorArray:
		for range h.arg { // ends with the data: every element takes a byte
			if err := r.check(depth + 1); err != nil {
				return err
			}
		}
	case majorMap:
		return r.checkMap(at, h.arg, depth+1)
	case majorTag:
		return r.checkTag(at, h.arg, depth+1)
	}
	return nil
}

// bytes takes the next n bytes.
func (r *reader) bytes(n uint64) ([]byte, error) {
	if n > uint64(len(r.data)-r.off) {
		return nil, r.truncated()
	}
	b := r.data[r.off : r.off+int(n)]
	r.off += int(n)
	return b, nil
}

// string takes the next item, which is text or a byte string.
func (r *reader) string() ([]byte, error) {
	h, err := r.head()
	if err != nil {
		return nil, err
	}
	return r.bytes(h.arg)
}

// isASCII is for short texts.
func isASCII(s []byte) bool {
	var all byte
	for _, c := range s {
		all |= c
	}
	return all < utf8.RuneSelf
}

func (r *reader) checkMap(at int, n uint64, depth int) error {
	var last []byte
	for i := range n {
		keyAt := r.off
		if err := r.check(depth); err != nil {
			return err
		}
		key := r.data[keyAt:r.off]
		if i > 0 {
			switch bytes.Compare(last, key) {
			case 0:
				return r.errorAt(keyAt, "map key appears twice")
			case 1:
				return r.errorAt(keyAt, "map key is out of order")
			}
		}
		if key[0]>>5 != majorText && !r.oddMaps[at] {
			if r.oddMaps == nil {
				r.oddMaps = map[int]bool{}
			}
			r.oddMaps[at] = true
		}
		last = key
		if err := r.check(depth); err != nil {
			return err
		}
	}
	return nil
}

// checkTag reads the content of a tag. For the four tags whose content RFC
// 8949 fixes it must be of the right kind, because codecs insist on that. A big
// integer must be one that no integer could hold.
func (r *reader) checkTag(at int, tag uint64, depth int) error {
	content := r.off
	if err := r.check(depth); err != nil {
		return err
	}
	b := r.data[content]
	switch tag {
	case tagTimeText:
		if b>>5 != majorText {
			return r.errorAt(content, "tag 0 is for text")
		}
	case tagTimeNumber:
		if b>>5 > majorNegint && (b < cborHalf || b > cborDouble) {
			return r.errorAt(content, "tag 1 is for numbers")
		}
	case tagPosBig, tagNegBig:
		if b>>5 != majorBytes {
			return r.errorAt(content, "a big integer must be a byte string")
		}
		in := reader{data: r.data, off: content}
		digits, err := in.string()
		if err == nil && (len(digits) <= 8 || digits[0] == 0) {
			err = r.errorAt(at, "a big integer that has a shorter form")
		}
		return err
	}
	return nil
}

// Difference finds the first position, in the order of the bytes, at which two items differ. It
// returns the path to it and the value in each item; nil means that the item has no value at this
// path.
//
// The path has the form tool_schemas[0].sandbox["odd key"]. It is empty if the items differ as a
// whole, or if one of them is not canonical, and then a and b themselves are returned. The items
// must not be equal.
func Difference(a, b Raw) (path string, inA, inB Raw) {
	if Valid(a) != nil || Valid(b) != nil {
		return "", a, b
	}
	path, inA, inB = difference(&reader{data: a}, &reader{data: b}, nil)
	return strings.TrimPrefix(path, "."), inA, inB
}

// Further returns the keys that maps of b have and the maps of a lack, and whether the two
// items differ in nothing else.
func Further(a, b Raw) (keys []string, ok bool) {
	if Valid(a) != nil || Valid(b) != nil {
		return nil, false
	}
	_, inA, inB := difference(&reader{data: a}, &reader{data: b}, &keys)
	return keys, inA == nil && inB == nil
}

// difference reads one item of a and one of b, side by side, and stops at the first place
// at which they differ. If they are equal, it returns nothing. Keys that only b has go to
// further and are not a difference, unless further is nil.
func difference(a, b *reader, further *[]string) (path string, inA, inB Raw) {
	fromA, fromB := *a, *b
	ha, _ := a.head()
	hb, _ := b.head()
	switch {
	case ha.major == hb.major && ha.major == majorArray:
		for i := range max(ha.arg, hb.arg) {
			switch {
			case i >= ha.arg:
				inB = b.next()
			case i >= hb.arg:
				inA = a.next()
			default:
				path, inA, inB = difference(a, b, further)
			}
			if inA != nil || inB != nil {
				return "[" + strconv.FormatUint(i, 10) + "]" + path, inA, inB
			}
		}
	case ha.major == hb.major && ha.major == majorMap:
		// Keys ascend in both, so the smaller of two that differ is missing from the
		// other map.
		for i, j := uint64(0), uint64(0); i < ha.arg || j < hb.arg; i, j = i+1, j+1 {
			var ka, kb Raw
			before := *a
			if i < ha.arg {
				ka = a.next()
			}
			if j < hb.arg {
				kb = b.next()
			}
			switch {
			case further != nil && kb != nil && (ka == nil || bytes.Compare(ka, kb) > 0):
				*further = append(*further, strings.TrimPrefix(memberStep(kb), "."))
				b.next()
				*a = before
				i--
				continue
			case kb == nil, ka != nil && bytes.Compare(ka, kb) < 0:
				return memberStep(ka), a.next(), nil
			case ka == nil, bytes.Compare(ka, kb) > 0:
				return memberStep(kb), nil, b.next()
			}
			if path, inA, inB = difference(a, b, further); inA != nil || inB != nil {
				return memberStep(ka) + path, inA, inB
			}
		}
	default:
		*a, *b = fromA, fromB
		if inA, inB = a.next(), b.next(); !bytes.Equal(inA, inB) {
			return "", inA, inB
		}
	}
	return "", nil, nil
}

// next takes the next item, which is known to be valid.
func (r *reader) next() Raw {
	at := r.off
	_ = r.check(0)
	return r.data[at:r.off]
}

// memberStep writes a key as .name where that is clear and as ["name"] else.
func memberStep(key Raw) string {
	name, ok := Text(key)
	if !ok {
		rendered, _ := Render(key)
		return "[" + string(rendered) + "]"
	}
	if name == "" || strings.ContainsFunc(name, notWord) {
		return "[" + string(AppendString(nil, name)) + "]"
	}
	return "." + name
}

func notWord(r rune) bool {
	return r != '_' && (r < '0' || r > '9') && (r < 'A' || r > 'Z') && (r < 'a' || r > 'z')
}

// Cut returns the item that data begins with, and what follows it.
func Cut(data []byte) (item Raw, rest []byte, err error) {
	r := reader{data: data}
	err = r.check(0)
	return data[:r.off], data[r.off:], err
}

// CutBytes returns the byte string that data begins with, and what follows it.
func CutBytes(data []byte) (b, rest []byte, ok bool) {
	r := reader{data: data}
	h, err := r.head()
	if err == nil {
		b, err = r.bytes(h.arg)
	}
	return b, data[r.off:], err == nil && h.major == majorBytes
}

// Text returns the text that raw is, or that the bytes of raw are if these can
// be printed.
func Text(raw Raw) (text string, ok bool) {
	if Valid(raw) != nil {
		return "", false
	}
	r := reader{data: raw}
	h, err := r.head()
	if err != nil || h.major != majorText && h.major != majorBytes {
		return "", false
	}
	s, err := r.bytes(h.arg)
	return string(s), err == nil && (h.major == majorText || printable(s))
}
