package wasm

import (
	"fmt"
	"unicode/utf8"

	"github.com/starling-host/starling/internal/work"
)

// FormatError describes where and why bytes are not a module that this package reads.
type FormatError struct {
	Offset  int    // of the byte in question, from the start of the module
	Msg     string // the error
	Feature string // the extension of WebAssembly that it belongs to, or ""
}

func (e *FormatError) Error() string {
	return fmt.Sprintf("wasm: offset %#x: %s", e.Offset, e.Msg)
}

// Reader reads the primitives of the format. The first error sticks: every
// later read returns zero, so a caller may read a whole structure and ask for
// [Reader.Err] once.
type Reader struct {
	buf      []byte // the whole module, so that positions are its offsets
	pos, end int
	err      error
	extended bool         // constants may be expressions
	work     *work.Budget // of [Decode]; nil if the caller charges
}

// NewReader returns a reader of buf[pos:end] whose errors have offsets in buf.
func NewReader(buf []byte, pos, end int) Reader {
	return Reader{buf: buf, pos: pos, end: end}
}

// Pos is the offset of the next byte.
func (r *Reader) Pos() int { return r.pos }

// Len is the number of bytes left, zero after an error.
func (r *Reader) Len() int {
	if r.err != nil {
		return 0
	}
	return r.end - r.pos
}

// Err returns the first error: nil, or a [*FormatError], unless a budget has ended.
func (r *Reader) Err() error { return r.err }

// charge draws n items of that many bytes each from the budget, before they are read.
func (r *Reader) charge(n, itemBytes int) {
	if r.err != nil || r.work == nil {
		return
	}
	if r.err = r.work.Spend(n); r.err == nil {
		r.err = r.work.Hold(n * itemBytes)
	}
}

// Failf records an error at the last byte that was read.
func (r *Reader) Failf(format string, args ...any) {
	r.failAt(max(r.pos-1, 0), format, args...)
}

func (r *Reader) failAt(offset int, format string, args ...any) {
	if r.err == nil {
		r.err = &FormatError{Offset: offset, Msg: fmt.Sprintf(format, args...)}
	}
}

// failFeature refuses an extension of the language by its name.
func (r *Reader) failFeature(offset int, feature, format string, args ...any) {
	if r.err == nil {
		msg := fmt.Sprintf(format, args...) + " (" + feature + ") is not supported"
		r.err = &FormatError{Offset: offset, Msg: msg, Feature: feature}
	}
}

// Byte reads one byte.
func (r *Reader) Byte() byte {
	if r.err == nil && r.pos < r.end {
		r.pos++
		return r.buf[r.pos-1]
	}
	r.failAt(r.pos, "unexpected end")
	return 0
}

// Bytes reads n bytes, which alias the module.
func (r *Reader) Bytes(n uint32) []byte {
	if r.err != nil {
		return nil
	}
	if uint64(n) > uint64(r.end-r.pos) {
		r.failAt(r.pos, "%d bytes expected, %d left", n, r.end-r.pos)
		return nil
	}
	b := r.buf[r.pos : r.pos+int(n) : r.pos+int(n)]
	r.pos += int(n)
	return b
}

// U32 reads an unsigned 32-bit LEB128. One byte is the common case.
func (r *Reader) U32() uint32 {
	if r.err == nil && r.pos < r.end && r.buf[r.pos] < 0x80 {
		r.pos++
		return uint32(r.buf[r.pos-1])
	}
	return r.unsigned()
}

// S32 reads a signed 32-bit LEB128.
func (r *Reader) S32() int32 { return int32(r.signed(32)) }

// S33 reads a signed 33-bit LEB128, the form of a block type.
func (r *Reader) S33() int64 { return r.signed(33) }

// S64 reads a signed 64-bit LEB128.
func (r *Reader) S64() int64 { return r.signed(64) }

// Count reads the length of a list whose items take at least itemBytes each.
// A count that the bytes left cannot hold is an error, so the caller may
// allocate that many items.
func (r *Reader) Count(what string, itemBytes int) int {
	start := r.pos
	n := r.U32()
	if r.err == nil && uint64(n)*uint64(itemBytes) > uint64(r.end-r.pos) {
		r.failAt(start, "%d %s in %d bytes", n, what, r.end-r.pos)
	}
	if r.err != nil {
		return 0
	}
	return int(n)
}

// Name reads a string, which must be valid UTF-8.
func (r *Reader) Name() string {
	start := r.pos
	b := r.Bytes(r.U32())
	if r.err == nil && !utf8.Valid(b) {
		r.failAt(start, "name is not valid UTF-8")
	}
	r.charge(1, len(b))
	if r.err != nil {
		return ""
	}
	return string(b)
}

// sub returns a reader of the next n bytes and steps over them.
func (r *Reader) sub(n uint32) Reader {
	start := r.pos
	r.Bytes(n)
	return Reader{buf: r.buf, pos: start, end: r.pos, err: r.err}
}

// finish makes left-over bytes an error.
func (r *Reader) finish(what string) {
	if r.err == nil && r.pos != r.end {
		r.failAt(r.pos, "%d bytes after the end of the %s", r.end-r.pos, what)
	}
}
