// Package rpcline reads messages of JSON-RPC that are a line each, from a program that may write
// lines without end and text that is none.
package rpcline

import (
	"bufio"
	"encoding/json"
	"errors"
	"regexp"

	"github.com/starling-host/starling/internal/lazy"
)

// edge is how many bytes are kept at either end of a line that is too long.
const edge = 4 << 10

// Read reads a line, with its end. Of one with more than most bytes it returns both ends and the size.
func Read(in *bufio.Reader, most int) (line []byte, size int, err error) {
	for {
		part, err := in.ReadSlice('\n')
		size += len(part)
		if line = append(line, part...); size > most && len(line) > 2*edge {
			line = append(line[:edge:edge], line[len(line)-edge:]...)
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return line, size, err
		}
	}
}

var (
	idFirst = lazy.Regexp(`^\s*\{\s*(?:"jsonrpc"\s*:\s*"2.0"\s*,\s*)?"id"\s*:\s*(-?\d{1,18}|"[^"\\]{0,100}")\s*,`)
	idLast  = lazy.Regexp(`^\s*\{(?s:.*),\s*"id"\s*:\s*(-?\d{1,18}|"[^"\\]{0,100}")\s*\}\s*$`)
)

// ID finds the id of a message that cannot be read: in its two ends, where programs write it. It
// returns nil if it is not there.
func ID(line []byte) []byte {
	for _, at := range []*regexp.Regexp{idFirst(), idLast()} {
		if m := at.FindSubmatch(line); m != nil && json.Valid(m[1]) {
			return m[1]
		}
	}
	return nil
}
