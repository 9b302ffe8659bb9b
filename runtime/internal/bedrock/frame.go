package bedrock

import (
	"cmp"
	"encoding/binary"
	"hash/crc32"
	"io"
	"net/http"

	"github.com/starling-host/starling/runtime/internal/converse"
)

// frameReader reads a body of the type application/vnd.amazon.eventstream. It is a row of
// frames, with all numbers in big endian:
//
//	length of the frame, length of its headers   4 bytes each
//	CRC32 of these 8 bytes                       4 bytes
//	headers, payload
//	CRC32 of all that is before                  4 bytes
type frameReader struct{ body io.Reader }

const preludeSize, sumSize = 12, 4

// Next implements [converse.Events]. Exceptions are returned as a [converse.Fault].
func (r *frameReader) Next() (converse.ServerEvent, error) {
	headers, payload, err := r.read()
	if err == io.ErrUnexpectedEOF {
		err = io.EOF // a truncated frame is treated as the end: the last event decides
	}
	if err != nil {
		return converse.ServerEvent{}, err
	}
	kind, name := headers[":message-type"], cmp.Or(headers[":event-type"], headers[":exception-type"])
	switch {
	case kind == "event" && name != "":
		return converse.ServerEvent{Name: name, Data: payload}, nil
	case kind == "exception" && name != "":
		if f := fault(0, http.Header{"X-Amzn-Errortype": {name}}, payload); f != nil {
			return converse.ServerEvent{}, f
		}
		return converse.ServerEvent{}, converse.Malformed("an exception that is not JSON")
	case kind == "error":
		return converse.ServerEvent{}, named(0, cmp.Or(headers[":error-code"], kind), headers[":error-message"])
	}
	return converse.ServerEvent{}, converse.Malformed("a frame of the type %q without a name", kind)
}

// read returns the headers and the payload of the next frame.
func (r *frameReader) read() (headers map[string]string, payload []byte, err error) {
	var prelude [preludeSize]byte
	if _, err := io.ReadFull(r.body, prelude[:]); err != nil {
		return nil, nil, err
	}
	if crc32.ChecksumIEEE(prelude[:8]) != binary.BigEndian.Uint32(prelude[8:]) {
		return nil, nil, converse.Malformed("the checksum of a frame's lengths is wrong")
	}
	length, size := int64(binary.BigEndian.Uint32(prelude[:])), int64(binary.BigEndian.Uint32(prelude[4:]))
	if length > converse.MaxEvent || size > length-preludeSize-sumSize {
		return nil, nil, converse.Malformed("a frame of %d bytes with %d bytes of headers", length, size)
	}
	rest := make([]byte, length-preludeSize)
	if _, err := io.ReadFull(r.body, rest); err != nil {
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		return nil, nil, err
	}
	rest, sum := rest[:len(rest)-sumSize], rest[len(rest)-sumSize:]
	if crc32.Update(crc32.ChecksumIEEE(prelude[:]), crc32.IEEETable, rest) != binary.BigEndian.Uint32(sum) {
		return nil, nil, converse.Malformed("the checksum of a frame is wrong")
	}
	headers, err = decodeHeaders(rest[:size])
	return headers, rest[size:], err
}

// The types of headers that say their size.
const (
	typeBytes  = 6
	typeString = 7
)

// fixedSizes has the sizes of the other types.
var fixedSizes = map[byte]int{0: 0, 1: 0, 2: 1, 3: 2, 4: 4, 5: 8, 8: 8, 9: 16}

// decodeHeaders returns the headers that are strings. Each is the length of its name, the
// name, its type and its value.
func decodeHeaders(b []byte) (map[string]string, error) {
	wrong := converse.Malformed("the headers of a frame are cut, or of an unknown type")
	all := map[string]string{}
	for len(b) > 0 {
		end := 1 + int(b[0])
		if end >= len(b) {
			return nil, wrong
		}
		name, kind := string(b[1:end]), b[end]
		b = b[end+1:]
		size, fixed := fixedSizes[kind]
		if !fixed {
			if kind != typeBytes && kind != typeString || len(b) < 2 {
				return nil, wrong
			}
			size, b = int(binary.BigEndian.Uint16(b)), b[2:]
		}
		if size > len(b) {
			return nil, wrong
		}
		if kind == typeString {
			all[name] = string(b[:size])
		}
		b = b[size:]
	}
	return all, nil
}
