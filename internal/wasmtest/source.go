package wasmtest

// source hands out the seed as choices. Behind its end the choices are those of
// a fixed generator, for the few that are left to make.
type source struct {
	seed  []byte
	state uint64
}

func (s *source) spent() bool { return len(s.seed) == 0 }

func (s *source) byte() byte {
	if s.spent() {
		s.state = s.state*6364136223846793005 + 1442695040888963407 // Knuth's MMIX
		return byte(s.state >> 56)
	}
	b := s.seed[0]
	s.seed = s.seed[1:]
	return b
}

// below returns a number from 0 to n-1; n is at most 256.
func (s *source) below(n int) int { return int(s.byte()) % n }

// oneIn is true once in n times.
func (s *source) oneIn(n int) bool { return s.below(n) == n-1 }

// bits returns 64 bits.
func (s *source) bits() (v uint64) {
	for range 8 {
		v = v<<8 | uint64(s.byte())
	}
	return v
}

// share takes the n-th part of what is left.
func (s *source) share(n int) source {
	size := len(s.seed) / n
	part := source{seed: s.seed[:size], state: s.state + uint64(n)}
	s.seed = s.seed[size:]
	return part
}

// pick returns one of the items.
func pick[T any](s *source, items []T) T { return items[s.below(len(items))] }
