package sandbox

import (
	"encoding/binary"
	"math/rand/v2"
)

// argv returns all arguments. The first is the tool's name: Go's package flag needs it.
func (s *session) argv() []string { return append([]string{s.name}, s.args...) }

func (s *session) argsGet(a args) errno         { return s.storeTexts(a, s.argv()) }
func (s *session) argsSizesGet(a args) errno    { return s.storeSizes(a, s.argv()) }
func (s *session) environGet(a args) errno      { return s.storeTexts(a, s.env) }
func (s *session) environSizesGet(a args) errno { return s.storeSizes(a, s.env) }

// storeTexts writes the addresses of texts, and the texts, each with a zero byte behind it.
func (s *session) storeTexts(a args, texts []string) errno {
	var addresses, buf []byte
	for _, text := range texts {
		addresses = binary.LittleEndian.AppendUint32(addresses, a.u32(1)+uint32(len(buf)))
		buf = append(append(buf, text...), 0)
	}
	if e := s.store(a.u32(0), addresses); e != success {
		return e
	}
	return s.store(a.u32(1), buf)
}

func (s *session) storeSizes(a args, texts []string) errno {
	size := 0
	for _, text := range texts {
		size += len(text) + 1
	}
	if e := s.store(a.u32(0), binary.LittleEndian.AppendUint32(nil, uint32(len(texts)))); e != success {
		return e
	}
	return s.store(a.u32(1), binary.LittleEndian.AppendUint32(nil, uint32(size)))
}

// The supported clocks of WASI. The others count processor time, which guests
// cannot see.
const (
	clockRealtime  = 0
	clockMonotonic = 1
)

func (s *session) clockResGet(a args) errno {
	if a.u32(0) > clockMonotonic {
		return eInval
	}
	return s.store(a.u32(1), binary.LittleEndian.AppendUint64(nil, tick))
}

func (s *session) clockTimeGet(a args) errno {
	id, address := a.u32(0), a.u32(2)
	switch {
	case id > clockMonotonic:
		return eInval
	case !s.instance.has(address, 8):
		return eFault // before the reading, which may be an effect
	}
	return s.store(address, binary.LittleEndian.AppendUint64(nil, s.readClock(id)))
}

// tick moves the clock up to now, in the guest's time, and one reading on.
func (s *session) tick() {
	s.clock.run(s.instance.fuel.Get())
	s.clock.advance(tick)
}

// readClock moves the clock and returns it. The first reading of the
// time of day in a call is the one recorded effect of the clock; the monotonic
// clock is never recorded, since language runtimes read it whenever they
// collect garbage.
func (s *session) readClock(id uint32) uint64 {
	s.tick()
	if id == clockMonotonic {
		return s.clock.mono
	}
	s.anchor()
	return s.clock.realtime()
}

// anchor sets the time of day of the clock, if it is not set.
func (s *session) anchor() {
	if !s.clock.anchored {
		s.now("the time of day")
	}
}

// randomChunk is the number of random bytes made between two fuel checks.
const randomChunk = 64 << 10

// randomGet fills memory from the call's generator: ChaCha8 as C2SP specifies
// it (c2sp.org/chacha8rand), its 64-bit outputs in little-endian order. Its
// key is the one recorded effect of randomness.
func (s *session) randomGet(a args) errno {
	address, length := a.u32(0), a.u32(1)
	if !s.instance.has(address, uint64(length)) {
		return eFault
	}
	if s.random == nil {
		s.effect("random_get", 32)
		s.random = rand.NewChaCha8(cross(s, func() [32]byte { return s.imports.Seed(s.outside()) }))
	}
	buf := make([]byte, min(length, randomChunk))
	for length > 0 {
		n := min(length, randomChunk)
		s.charge(uint64(n))
		s.random.Read(buf[:n])
		s.copyIn(address, buf[:n])
		address, length = address+n, length-n
	}
	return success
}
