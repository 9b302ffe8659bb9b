package wasm

import "encoding/binary"

// AppendU32 appends v as the shortest unsigned LEB128.
func AppendU32(dst []byte, v uint32) []byte {
	return binary.AppendUvarint(dst, uint64(v))
}

// AppendS32 appends v as the shortest signed LEB128.
func AppendS32(dst []byte, v int32) []byte { return AppendS64(dst, int64(v)) }

// AppendS64 appends v as the shortest signed LEB128.
func AppendS64(dst []byte, v int64) []byte {
	for {
		low := byte(v & 0x7f)
		v >>= 7
		if v == 0 && low&0x40 == 0 || v == -1 && low&0x40 != 0 {
			return append(dst, low)
		}
		dst = append(dst, low|0x80)
	}
}

// AppendName appends s with its length in front.
func AppendName(dst []byte, s string) []byte {
	return append(AppendU32(dst, uint32(len(s))), s...)
}

// AppendItems returns a list of the binary format, its count first, with items added at the end. It
// begins one if list is nil.
func AppendItems(list []byte, items ...[]byte) []byte {
	r := NewReader(list, 0, len(list))
	count := r.U32() // 0 of nothing
	out := append(AppendU32(nil, count+uint32(len(items))), list[r.Pos():]...)
	for _, item := range items {
		out = append(out, item...)
	}
	return out
}

// unsigned reads an unsigned LEB128 of 32 bits. As the specification asks, it
// takes no more than five bytes, and no set bit beyond the 32nd.
func (r *Reader) unsigned() uint32 {
	var v uint32
	for shift := 0; ; shift += 7 {
		b := r.Byte()
		if r.err != nil {
			return 0
		}
		if shift == 28 && b > 0x0f {
			r.Failf("number has more than 32 bits")
			return 0
		}
		v |= uint32(b&0x7f) << shift
		if b < 0x80 {
			return v
		}
	}
}

// signed reads a signed LEB128 of at most bits bits; the unused bits of the
// last byte must repeat the sign.
func (r *Reader) signed(bits uint) int64 {
	if r.err == nil && r.pos < r.end && r.buf[r.pos] < 0x80 { // the common case, as in U32
		r.pos++
		return int64(int8(r.buf[r.pos-1]<<1) >> 1)
	}
	var v int64
	for shift := uint(0); ; shift += 7 {
		b := r.Byte()
		if r.err != nil {
			return 0
		}
		v |= int64(b&0x7f) << shift
		if left := bits - shift; left <= 7 {
			if top := int8(b<<1) >> left; b >= 0x80 || top != 0 && top != -1 {
				r.Failf("number has more than %d bits", bits)
				return 0
			}
		}
		if b < 0x80 {
			if shift+7 < 64 && b&0x40 != 0 {
				v |= -1 << (shift + 7)
			}
			return v
		}
	}
}
