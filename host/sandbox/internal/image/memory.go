package image

import "fmt"

// Memory is the linear memory of one instance, and what wazero calls a
// LinearMemory. It belongs to one goroutine at a time.
type Memory struct {
	image *Image
	bytes []byte // the whole reservation
	used  int    // the most of it that the guest has had since the last Reset
	found regions
}

// Reallocate gives the guest size bytes of the reservation, which never moves.
// It returns nil beyond the reservation.
func (m *Memory) Reallocate(size uint64) []byte {
	if size > uint64(len(m.bytes)) {
		return nil
	}
	m.used = max(m.used, int(size))
	return m.bytes[:size:len(m.bytes)]
}

// Verify compares the whole reservation, whether the guest had it or not, with
// the image and the zeros after it. It reads every page, so it is for tests
// and for samples.
func (m *Memory) Verify() error {
	for at := 0; at < len(m.bytes); at += verifyStep {
		if end := min(at+verifyStep, len(m.bytes)); !m.equal(at, end) {
			return fmt.Errorf("image: the %d bytes at %#x are not those of the image", end-at, at)
		}
	}
	return nil
}

// verifyStep is the precision of the place that Verify reports.
const verifyStep = 4096

// equal reports whether the bytes from at to end are as in the image.
func (m *Memory) equal(at, end int) bool {
	n := at
	if contents := m.image.contents; at < len(contents) {
		n = min(end, len(contents))
		if string(m.bytes[at:n]) != string(contents[at:n]) {
			return false
		}
	}
	return zero(m.bytes[n:end])
}

// restore copies the bytes from at to end from the image.
func (m *Memory) restore(at, end int) {
	n := at
	if contents := m.image.contents; at < len(contents) {
		n += copy(m.bytes[at:end], contents[at:])
	}
	clear(m.bytes[n:end])
}

func zero(b []byte) bool {
	for len(b) > len(zeros) {
		if string(b[:len(zeros)]) != string(zeros[:]) {
			return false
		}
		b = b[len(zeros):]
	}
	return string(b) == string(zeros[:len(b)])
}

var zeros [4096]byte
