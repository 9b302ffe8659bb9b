package pglog

import (
	"encoding/binary"
	"math"
)

// params are the parameters of a statement, all of them arrays, in the server's binary
// format (see array_recv in its arrayfuncs.c). pgx would make an interface of each element
// and a new buffer for each statement, which cost as much as all the rest that the client
// does to write a batch.
type params struct {
	buf  []byte
	ends []int    // of the parameters in buf
	all  [][]byte // what values returns
}

// keptParams is how many bytes are kept for the next statement.
const keptParams = 8 << 20

// reset forgets everything but the memory, unless it is too much.
func (p *params) reset() {
	if cap(p.buf) > keptParams {
		p.buf = nil
	}
	p.buf, p.ends = p.buf[:0], p.ends[:0]
}

// array adds an array of n elements, which the function appends one by one.
func (p *params) array(elementType uint32, n int, element func(i int)) {
	for _, word := range []uint32{1, 1, elementType, uint32(n), 1} { // dimensions, NULLs may occur, type, length, first index
		p.buf = binary.BigEndian.AppendUint32(p.buf, word)
	}
	for i := range n {
		element(i)
	}
	p.ends = append(p.ends, len(p.buf))
}

// values returns the parameters, until reset.
func (p *params) values() [][]byte {
	p.all = p.all[:0]
	from := 0
	for _, to := range p.ends {
		p.all = append(p.all, p.buf[from:to])
		from = to
	}
	return p.all
}

func (p *params) size(n uint32) { p.buf = binary.BigEndian.AppendUint32(p.buf, n) }

func (p *params) int2(v int16) {
	p.size(2)
	p.buf = binary.BigEndian.AppendUint16(p.buf, uint16(v))
}

func (p *params) int4(v int32) {
	p.size(4)
	p.buf = binary.BigEndian.AppendUint32(p.buf, uint32(v))
}

func (p *params) int8(v int64) {
	p.size(8)
	p.buf = binary.BigEndian.AppendUint64(p.buf, uint64(v))
}

func (p *params) float8(v float64) { p.int8(int64(math.Float64bits(v))) }

func (p *params) text(v string) {
	p.size(uint32(len(v)))
	p.buf = append(p.buf, v...)
}

func (p *params) bytes(v []byte) {
	p.size(uint32(len(v)))
	p.buf = append(p.buf, v...)
}

// bytesOrNull takes no bytes for NULL.
func (p *params) bytesOrNull(v []byte) {
	if len(v) == 0 {
		p.size(math.MaxUint32)
		return
	}
	p.bytes(v)
}
