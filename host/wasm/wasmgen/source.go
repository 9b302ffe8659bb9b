package wasmgen

import "encoding/binary"

// source hands out the seed as choices. Behind its end it is all zeros, and
// zero is always the choice that leads to an end.
type source []byte

func (s *source) spent() bool { return len(*s) == 0 }

// below returns a number from 0 to n-1; n is at most 256.
func (s *source) below(n int) int {
	if s.spent() {
		return 0
	}
	b := (*s)[0]
	*s = (*s)[1:]
	return int(b) % n
}

// oneIn is true once in n times, and false at the end of the seed.
func (s *source) oneIn(n int) bool { return s.below(n) == n-1 }

// bits returns 64 bits.
func (s *source) bits() uint64 {
	var b [8]byte
	*s = (*s)[copy(b[:], *s):]
	return binary.LittleEndian.Uint64(b[:])
}

// share takes the n-th part of what is left.
func (s *source) share(n int) source {
	size := len(*s) / n
	part := (*s)[:size]
	*s = (*s)[size:]
	return part
}

// pick returns one of the items.
func pick[T any](s *source, items []T) T { return items[s.below(len(items))] }
