package coding

import "math/bits"

// The lengths and distances of RFC 1951, section 3.2.5: what a symbol stands for at least, and
// how many bits of the input are added.
var (
	lengthBase  = [...]uint16{3, 4, 5, 6, 7, 8, 9, 10, 11, 13, 15, 17, 19, 23, 27, 31, 35, 43, 51, 59, 67, 83, 99, 115, 131, 163, 195, 227, 258}
	lengthExtra = [...]uint8{0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3, 4, 4, 4, 4, 5, 5, 5, 5, 0}
	distBase    = [...]uint16{1, 2, 3, 4, 5, 7, 9, 13, 17, 25, 33, 49, 65, 97, 129, 193, 257, 385, 513, 769, 1025, 1537, 2049, 3073, 4097, 6145, 8193, 12289, 16385, 24577}
	distExtra   = [...]uint8{0, 0, 0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7, 8, 8, 9, 9, 10, 10, 11, 11, 12, 12, 13, 13}
	lengthOrder = [...]uint8{16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15}
)

// code is a prefix code: its table has for the next bits of the input the symbol, shifted by
// four, and the number of bits that it has; zero where there is none.
type code []uint16

// newCode returns the code in which each symbol has a number of bits, and whether there is one.
func newCode(lengths []uint8) (code, bool) {
	var count, next [16]int
	longest, sum := 0, 0
	for _, n := range lengths {
		count[n]++
		longest = max(longest, int(n))
	}
	count[0] = 0
	for n := 1; n <= longest; n++ {
		sum = (sum + count[n-1]) << 1
		next[n] = sum
	}
	if longest > 0 && sum+count[longest] != 1<<longest && (longest != 1 || count[1] != 1) {
		return nil, false // too few symbols, or too many
	}
	table := make(code, 1<<longest)
	for symbol, n := range lengths {
		if n > 0 {
			for i := int(bits.Reverse16(uint16(next[n])) >> (16 - n)); i < len(table); i += 1 << n {
				table[i] = uint16(symbol)<<4 | uint16(n)
			}
			next[n]++
		}
	}
	return table, true
}

// inflater reads compressed data (RFC 1951).
type inflater struct {
	in     []byte
	at     int    // the next byte of in
	bits   uint64 // read and not used
	have   uint   // the number of them
	failed bool   // the data is corrupt
}

func (r *inflater) fill() {
	for r.have <= 56 && r.at < len(r.in) {
		r.bits |= uint64(r.in[r.at]) << r.have
		r.at++
		r.have += 8
	}
}

// take returns the next n bits, at most 16.
func (r *inflater) take(n uint8) int {
	r.fill()
	if uint(n) > r.have {
		r.failed = true
		return 0
	}
	value := r.bits & (1<<n - 1)
	r.bits >>= n
	r.have -= uint(n)
	return int(value)
}

// symbol returns the next symbol of a code.
func (r *inflater) symbol(c code) int {
	r.fill()
	entry := c[r.bits&uint64(len(c)-1)]
	n := uint(entry & 15)
	if n == 0 || n > r.have {
		r.failed = true
		return 0
	}
	r.bits >>= n
	r.have -= n
	return int(entry >> 4)
}

// inflate appends the data that in begins with to out, and returns what follows it.
func inflate(out, in []byte) (_, rest []byte, err error) {
	r := inflater{in: in}
	for last := false; !last; {
		last = r.take(1) == 1
		switch kind := r.take(2); {
		case r.failed || kind == 3:
			return nil, nil, errCorrupt
		case kind == 0:
			out = r.stored(out)
		default:
			literals, distances := r.codes(kind == 2)
			if !r.failed {
				out = r.block(out, literals, distances)
			}
		}
		if len(out) > maxBody {
			return nil, nil, ErrTooLarge
		}
		if r.failed {
			return nil, nil, errCorrupt
		}
	}
	return out, in[r.at-int(r.have/8):], nil
}

// stored appends a block that is not compressed.
func (r *inflater) stored(out []byte) []byte {
	r.take(uint8(r.have & 7))
	n, complement := r.take(16), r.take(16)
	r.at -= int(r.have / 8)
	r.bits, r.have = 0, 0
	if n != complement^0xffff || n > len(r.in)-r.at {
		r.failed = true
		return out
	}
	r.at += n
	return append(out, r.in[r.at-n:r.at]...)
}

// codes reads the two codes of a block, or returns the fixed ones.
func (r *inflater) codes(own bool) (literals, distances code) {
	var lengths [288 + 32]uint8
	if !own {
		for i := range 288 {
			lengths[i] = [...]uint8{8, 9, 7, 8}[min(i/144, 1)+min(i/256, 1)+min(i/280, 1)]
		}
		for i := range 30 {
			lengths[288+i] = 5
		}
		lengths[318], lengths[319] = 5, 5 // which no data may use
		literals, _ = newCode(lengths[:288])
		distances, _ = newCode(lengths[288:])
		return literals, distances
	}
	n, m, short := r.take(5)+257, r.take(5)+1, r.take(4)+4
	var first [19]uint8
	for _, i := range lengthOrder[:short] {
		first[i] = uint8(r.take(3))
	}
	c, ok := newCode(first[:])
	for at := 0; ok && !r.failed && at < n+m; {
		symbol, times, length := r.symbol(c), 1, uint8(0)
		switch {
		case symbol < 16:
			length = uint8(symbol)
		case symbol == 16 && at == 0:
			r.failed = true
		case symbol == 16:
			times, length = 3+r.take(2), lengths[at-1]
		case symbol == 17:
			times = 3 + r.take(3)
		default:
			times = 11 + r.take(7)
		}
		if at+times > n+m {
			r.failed = true
			break
		}
		for ; times > 0; times-- {
			lengths[at] = length
			at++
		}
	}
	literals, okLiterals := newCode(lengths[:n])
	distances, okDistances := newCode(lengths[n : n+m])
	r.failed = r.failed || !ok || !okLiterals || !okDistances || n > 286
	return literals, distances
}

// block appends a block that is compressed with two codes.
func (r *inflater) block(out []byte, literals, distances code) []byte {
	for len(out) <= maxBody {
		symbol := r.symbol(literals)
		switch {
		case r.failed || symbol == 256:
			return out
		case symbol < 256:
			out = append(out, byte(symbol))
			continue
		case symbol > 285:
			r.failed = true
			return out
		}
		length := int(lengthBase[symbol-257]) + r.take(lengthExtra[symbol-257])
		symbol = r.symbol(distances)
		if r.failed || symbol > 29 {
			r.failed = true
			return out
		}
		distance := int(distBase[symbol]) + r.take(distExtra[symbol])
		if r.failed || distance > len(out) {
			r.failed = true
			return out
		}
		for ; length > 0; length-- {
			out = append(out, out[len(out)-distance])
		}
	}
	return out
}
