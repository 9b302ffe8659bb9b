package egress

import (
	"bytes"
	"strconv"
)

// decodeChunked returns the content of a chunked body (RFC 9112 section 7.1)
// that is complete in memory. Extensions and trailers have no place to go in a
// request that is sent with its length, so they are refused.
func decodeChunked(body []byte) ([]byte, error) {
	var content []byte
	for {
		line, rest, ok := bytes.Cut(body, []byte(crlf))
		size, valid := chunkSize(line)
		if !ok || !valid {
			return nil, malformed("the chunked body has no chunk size at %s", quote(string(line)))
		}
		if size == 0 {
			if string(rest) != crlf {
				return nil, malformed("the chunked body does not end with its last chunk: trailers are not supported")
			}
			return content, nil
		}
		if uint64(len(rest)) < size+uint64(len(crlf)) || string(rest[size:size+2]) != crlf {
			return nil, malformed("a chunk of the body is not %d bytes long", size)
		}
		content = append(content, rest[:size]...)
		body = rest[size+2:]
	}
}

// chunkSize reads 1 to 8 hexadecimal digits and nothing else.
func chunkSize(line []byte) (uint64, bool) {
	n, err := strconv.ParseUint(string(line), 16, 32)
	return n, err == nil && len(line) <= 8
}
