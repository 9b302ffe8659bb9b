package source

import (
	"bytes"
	"strings"

	"github.com/starling-host/starling/internal/work"
)

// maxName is how many bytes are shown of the name of a function, a file or a type.
const maxName = 256

// cursor reads little-endian numbers. After the end of its bytes it reads zeros and has failed.
type cursor struct {
	b      []byte
	pos    int
	failed bool
	kept   []byte // receives what is read, unless it is nil
}

// at returns a cursor at an offset of b.
func at(b []byte, pos uint64) *cursor {
	if pos > uint64(len(b)) {
		return &cursor{failed: true}
	}
	return &cursor{b: b, pos: int(pos)}
}

func (c *cursor) take(n uint64) []byte {
	if c.failed || n > uint64(max(len(c.b)-c.pos, 0)) {
		c.failed = true
		return nil
	}
	part := c.b[c.pos : c.pos+int(n)]
	if c.kept != nil {
		copy(c.kept[c.pos:], part)
	}
	c.pos += int(n)
	return part
}

// uint reads a number of n bytes, at most 8.
func (c *cursor) uint(n int) (v uint64) {
	for i, b := range c.take(uint64(n)) {
		v |= uint64(b) << (8 * i)
	}
	return v
}

func (c *cursor) byte() byte { return byte(c.uint(1)) }

// leb reads a LEB128 number, and returns how many bits it has.
func (c *cursor) leb() (v uint64, bits int) {
	for b := byte(0x80); b >= 0x80 && !c.failed; bits += 7 {
		b = c.byte()
		v |= uint64(b&0x7f) << min(bits, 64)
	}
	return v, bits
}

func (c *cursor) uleb() uint64 {
	v, _ := c.leb()
	return v
}

// sleb reads a signed LEB128 number.
func (c *cursor) sleb() int64 {
	v, bits := c.leb()
	unused := 64 - min(bits, 64)
	return int64(v<<unused) >> unused
}

// zigzag reads a signed number whose lowest bit is the sign.
func (c *cursor) zigzag() int64 {
	u := c.uleb()
	return int64(u>>1) ^ -int64(u&1)
}

// text reads bytes up to a zero. Many entries can point to one text.
func (c *cursor) text(b *work.Budget) string {
	if c.failed {
		return ""
	}
	n, read := bytes.IndexByte(c.b[c.pos:], 0), len(c.b)-c.pos
	if n >= 0 {
		read = n
	}
	if b.Spend(1+read/64) != nil || n < 0 {
		c.failed = true
		return ""
	}
	return cut(c.take(uint64(n) + 1)[:n])
}

// cut returns text as valid UTF-8 of bounded length.
func cut(b []byte) string { return strings.ToValidUTF8(string(b[:min(len(b), maxName)]), "�") }
