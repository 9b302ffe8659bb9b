package canon

import (
	"encoding/binary"
	"math"
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
func AppendBytes(dst, b []byte) []byte {
	return append(appendHead(dst, majorBytes, uint64(len(b))), b...)
}

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

// headSize is how many bytes appendHead appends for arg.
func headSize(arg uint64) int {
	switch {
	case arg < 24:
		return 1
	case arg <= math.MaxUint8:
		return 2
	case arg <= math.MaxUint16:
		return 3
	case arg <= math.MaxUint32:
		return 5
	}
	return 9
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
	if half, exact := toHalf(single); exact {
		return binary.BigEndian.AppendUint16(append(dst, cborHalf), half)
	}
	return binary.BigEndian.AppendUint32(append(dst, cborSingle), math.Float32bits(single))
}

// toHalf converts f, which is not NaN, to IEEE 754 binary16, and reports
// whether nothing was lost.
func toHalf(f float32) (half uint16, exact bool) {
	bits := math.Float32bits(f)
	sign := uint16(bits >> 16 & 0x8000)
	exp := int(bits>>23&0xff) - 127
	frac := bits & (1<<23 - 1)
	switch {
	case bits<<1 == 0:
		return sign, true
	case exp == 128: // infinity
		return sign | 0x7c00, true
	case exp >= -14 && exp <= 15: // normal: ten bits of fraction
		return sign | uint16(exp+15)<<10 | uint16(frac>>13), frac&(1<<13-1) == 0
	case exp >= -24 && exp < -14: // subnormal: units of 2^-24
		shift := -1 - exp
		mant := frac | 1<<23
		return sign | uint16(mant>>shift), mant&(1<<shift-1) == 0
	}
	return 0, false
}

// fromHalf is the value of an IEEE 754 binary16.
func fromHalf(half uint16) float64 {
	exp, frac := int(half>>10&0x1f), float64(half&0x3ff)
	var f float64
	switch exp {
	case 0:
		f = math.Ldexp(frac, -24)
	case 31:
		f = math.Inf(1)
		if frac != 0 {
			f = math.NaN()
		}
	default:
		f = math.Ldexp(1024+frac, exp-25)
	}
	if half&0x8000 != 0 {
		return -f
	}
	return f
}
