package pglog

import (
	"encoding/binary"
	"math"

	"github.com/jackc/pgx/v5/pgtype"
)

// params are the parameters of a statement, nearly all of them arrays, in the server's
// binary format (see array_recv in its arrayfuncs.c). pgx would make an interface of each element
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
	p.elements(n, element, 1, 1, elementType, uint32(n), 1) // dimensions, NULLs may occur, type, length, first index
}

// matrix adds an array of n rows of m numbers, which the function appends row by row.
func (p *params) matrix(n, m int, row func(i int)) {
	p.elements(n, row, 2, 0, pgtype.Int8OID, uint32(n), 1, uint32(m), 1)
}

func (p *params) elements(n int, element func(i int), header ...uint32) {
	for _, word := range header {
		p.size(word)
	}
	for i := range n {
		element(i)
	}
	p.end()
}

// boolean adds what is no array.
func (p *params) boolean(v bool) {
	b := byte(0)
	if v {
		b = 1
	}
	p.buf = append(p.buf, b)
	p.end()
}

// end ends a parameter.
func (p *params) end() { p.ends = append(p.ends, len(p.buf)) }

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

func (p *params) int4(v int32) {
	p.size(4)
	p.buf = binary.BigEndian.AppendUint32(p.buf, uint32(v))
}

func (p *params) int8(v int64) {
	p.size(8)
	p.buf = binary.BigEndian.AppendUint64(p.buf, uint64(v))
}

func (p *params) int8s(all ...int64) {
	for _, v := range all {
		p.int8(v)
	}
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
