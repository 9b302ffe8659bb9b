package worker

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// A frame is one message on a pipe: the length of its body in four bytes,
// little-endian, its kind in one, and the body.
const headerBytes = 5

// kind is the type of a frame.
type kind byte

// The kinds. At any time only one side may speak, except that the host may
// cancel a call while the worker is busy with it.
const (
	kindReady    kind = iota + 1 // worker: it is locked down
	kindModule                   // host: a module to load, to read or to link
	kindDone                     // worker: the result for the module
	kindCall                     // host: one call
	kindEffect                   // worker: the guest calls an import
	kindAnswer                   // host: the result of an effect
	kindEnd                      // host: the guest ends where it stands
	kindCancel                   // host: the call is not wanted any more
	kindResult                   // worker: how the call ended
	kindDescribe                 // host: the module's description is wanted
	kindObserved                 // worker: reports to the observers of a call
	kindCompile                  // host: the module that was read is to be compiled
	kindLinked                   // worker: the module that a component has become
)

// errProtocol is why a worker is not listened to any more.
var errProtocol = errors.New("worker: the process broke the protocol")

// frameReader reads frames whose bodies have at most limit bytes.
type frameReader struct {
	r      *bufio.Reader
	limit  uint64
	honest bool // lengths are believed
	header [headerBytes]byte
	body   bytes.Buffer
}

func newFrameReader(r io.Reader, limit uint64) *frameReader {
	return &frameReader{r: bufio.NewReaderSize(r, 64<<10), limit: limit}
}

// maxKept is the size up to which a buffer is kept for the next frame.
const maxKept = 1 << 20

// next returns the next frame. The body is valid until the next call.
func (f *frameReader) next() (kind, []byte, error) {
	if _, err := io.ReadFull(f.r, f.header[:]); err != nil {
		return 0, nil, err
	}
	length := binary.LittleEndian.Uint32(f.header[:])
	if uint64(length) > f.limit {
		return 0, nil, fmt.Errorf("%w: a frame of %d bytes, more than %d", errProtocol, length, f.limit)
	}
	if f.body.Cap() > maxKept {
		f.body = bytes.Buffer{}
	}
	f.body.Reset()
	room := int(length)
	if !f.honest { // it grows with what comes, so that a false length takes no more memory
		room = min(room, maxKept)
	}
	f.body.Grow(room + bytes.MinRead) // so that reading an honest one never grows it
	if _, err := io.CopyN(&f.body, f.r, int64(length)); err != nil {
		return 0, nil, err
	}
	return kind(f.header[4]), f.body.Bytes(), nil
}

// begin starts a frame in a buffer that may be used again.
func begin(buffer []byte, k kind) []byte {
	return append(buffer[:0], 0, 0, 0, 0, byte(k))
}

// send completes a frame and writes it in one piece.
func send(w io.Writer, frame []byte) error {
	binary.LittleEndian.PutUint32(frame, uint32(len(frame)-headerBytes))
	_, err := w.Write(frame)
	return err
}
