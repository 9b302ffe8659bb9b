package sandbox

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/starling-host/starling/abi"
)

// The standard streams.
const (
	stdin  = 0
	stdout = 1
	stderr = 2
)

// Values of WASI's types that describe a stream.
const (
	characterDevice = 2
	rightRead       = 1 << 1
	rightWrite      = 1 << 6
)

// maxVectors bounds the areas of one read or write (POSIX: IOV_MAX).
const maxVectors = 1024

// fdFdstatGet reports a stream as a terminal: not seekable, and worth
// flushing line by line.
func (s *session) fdFdstatGet(a args) errno {
	if a.u32(0) > stderr {
		return eBadf
	}
	stat := make([]byte, 24)
	stat[0] = characterDevice
	binary.LittleEndian.PutUint64(stat[8:], rightRead|rightWrite)
	return s.store(a.u32(1), stat)
}

func (s *session) fdFilestatGet(a args) errno {
	if a.u32(0) > stderr {
		return eBadf
	}
	stat := make([]byte, 64)
	stat[16] = characterDevice
	return s.store(a.u32(1), stat)
}

// fdRead reads a command's input. A tool has its input already; its fd 0 is at end of file.
func (s *session) fdRead(a args) errno {
	if a.u32(0) != stdin {
		return eBadf
	}
	areas, e := s.areas(a)
	if e != success {
		return e
	}
	var total uint32
	for _, area := range areas {
		n := min(area.length, uint32(len(s.stdin)))
		s.charge(uint64(n))
		s.copyIn(area.address, s.stdin[:n])
		s.stdin = s.stdin[n:]
		total += n
	}
	return s.store(a.u32(3), binary.LittleEndian.AppendUint32(nil, total))
}

// fdWrite accepts everything, even beyond the limit of the log: a runtime that cannot write
// its last message would die of that instead.
func (s *session) fdWrite(a args) errno {
	fd := a.u32(0)
	if fd != stdout && fd != stderr {
		return eBadf
	}
	areas, e := s.areas(a)
	if e != success {
		return e
	}
	var total uint32
	for _, area := range areas {
		s.charge(uint64(area.length))
		s.write(fd, s.view(area))
		total += area.length
	}
	return s.store(a.u32(3), binary.LittleEndian.AppendUint32(nil, total))
}

// write appends to the stream. A command's fd 1 is its result, which is useless when
// truncated, so there the limit ends the call.
func (s *session) write(fd uint32, p []byte) {
	if fd != stdout || s.stdout == nil {
		s.log.write(p)
		return
	}
	if uint64(len(s.stdout)+len(p)) > s.limits.OutputBytes {
		s.end(fmt.Errorf("%w: output of more than %d bytes", abi.ErrLimit, s.limits.OutputBytes))
	}
	s.stdout = append(s.stdout, p...)
}

// area is a part of guest memory, WASI's iovec.
type area struct{ address, length uint32 }

// areas returns the areas that an fd_read or fd_write names, after it has
// checked them and the address of the result.
func (s *session) areas(a args) ([]area, errno) {
	list, count, result := a.u32(1), a.u32(2), a.u32(3)
	switch {
	case count > maxVectors:
		return nil, eInval
	case !s.instance.has(list, 8*uint64(count)), !s.instance.has(result, 4):
		return nil, eFault
	}
	s.charge(8 * uint64(count))
	areas := make([]area, count)
	var total uint64
	for i := range areas {
		at := list + 8*uint32(i)
		areas[i].address, _ = s.instance.memory.ReadUint32Le(at)
		areas[i].length, _ = s.instance.memory.ReadUint32Le(at + 4)
		if !s.instance.has(areas[i].address, uint64(areas[i].length)) {
			return nil, eFault
		}
		total += uint64(areas[i].length)
	}
	if total > math.MaxUint32 {
		return nil, eInval // the result has no room for the sum
	}
	return areas, success
}

// view returns a checked area of guest memory. It is valid until the guest
// runs again.
func (s *session) view(a area) []byte {
	if a.length == 0 {
		return nil
	}
	view, _ := s.instance.memory.Read(a.address, a.length)
	return view
}
