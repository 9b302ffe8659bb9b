// Package zstd compresses what the program stores or carries, such as modules and archives, to frames of
// RFC 8878. Reading is bounded: a frame cannot become more bytes than the caller expects, and a stream
// takes a bounded memory.
package zstd

import (
	"bytes"
	"fmt"
	"io"
	"sync"

	"github.com/klauspost/compress/zstd"
)

var magic = []byte{0x28, 0xb5, 0x2f, 0xfd}

// Is reports whether b begins like a frame. A WebAssembly module does not.
func Is(b []byte) bool { return bytes.HasPrefix(b, magic) }

// Compress returns a frame with the bytes of b. The frame has no checksum: those who keep
// frames have a digest of what is in them.
func Compress(b []byte) []byte { return encoder().EncodeAll(b, nil) }

// encoder has tables of some megabytes, which take longer to make than a short text to compress.
// EncodeAll keeps nothing in it.
var encoder = sync.OnceValue(func() *zstd.Encoder {
	w, err := zstd.NewWriter(nil, zstd.WithEncoderCRC(false), zstd.WithEncoderLevel(zstd.SpeedBetterCompression))
	if err != nil {
		panic(err) // of the options
	}
	return w
})

// Decompress returns the bytes in a frame, of which there must be at most so many.
func Decompress(frame []byte, most int) ([]byte, error) {
	const window = 1 << 20 // the smallest bound that also admits the windows of short frames
	r, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(uint64(max(most, window))))
	if err != nil {
		return nil, fmt.Errorf("zstd: %w", err)
	}
	defer r.Close()
	b, err := r.DecodeAll(frame, nil)
	if err == nil && len(b) > most {
		err = zstd.ErrDecoderSizeExceeded
	}
	if err != nil {
		return nil, fmt.Errorf("zstd: decompress %d bytes: %w", len(frame), err)
	}
	return b, nil
}

// window bounds what a stream refers back to, and so the memory of its reader.
const window = 8 << 20

// NewWriter returns a writer that compresses to w as one frame, which ends when it is closed.
func NewWriter(w io.Writer) (io.WriteCloser, error) {
	return zstd.NewWriter(w, zstd.WithEncoderConcurrency(1), zstd.WithWindowSize(window))
}

// NewReader returns a reader of the bytes in the frames of r. It must be closed.
func NewReader(r io.Reader) (*zstd.Decoder, error) {
	return zstd.NewReader(r, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(window))
}
