// Package coding undoes the content codings of HTTP responses: some servers compress
// although no request has asked them to.
//
// It has a decoder of its own, because compress/flate needs package fmt and with that
// adds half a megabyte to a module, and a checksum of its own for the same reason.
package coding

import (
	"bytes"
	"errors"
	"strconv"
	"strings"
)

// maxBody is the largest decoded body. A module has little memory, and a small response can
// expand a thousandfold.
const maxBody = 32 << 20

var (
	// ErrTooLarge is the error of a body that is larger than maxBody when it is decoded.
	ErrTooLarge = errors.New("decompressed, the response is larger than " + strconv.Itoa(maxBody>>20) + " MiB")
	errCorrupt  = errors.New("the compressed response is corrupt or cut short")
)

// Decode returns a body without its coding, which is the value of the header Content-Encoding.
func Decode(coding string, body []byte) (out []byte, err error) {
	switch strings.ToLower(coding) {
	case "", "identity":
		return body, nil
	case "gzip", "x-gzip":
		for len(body) > 0 && err == nil {
			out, body, err = gunzip(out, body)
		}
		return out, err
	case "deflate":
		if len(body) > 2 && body[0]&15 == 8 && (int(body[0])<<8|int(body[1]))%31 == 0 && body[1]&32 == 0 {
			body = body[2:] // the header of zlib, which some servers leave out
		}
		out, _, err = inflate(nil, body)
		return out, err
	}
	return nil, errors.New("the response is compressed with " + strconv.Quote(coding) + ", and the SDK reads gzip and deflate: to read it yourself, send the header Accept-Encoding")
}

// gunzip appends the first member of a gzip file (RFC 1952) to out, and returns what follows it.
func gunzip(out, in []byte) (_, rest []byte, err error) {
	const hasChecksum, hasExtra, hasName, hasComment = 2, 4, 8, 16
	if len(in) < 10 || in[0] != 0x1f || in[1] != 0x8b || in[2] != 8 {
		return nil, nil, errCorrupt
	}
	flags := in[3]
	in = in[10:]
	if flags&hasExtra != 0 && len(in) > 2 {
		in = in[min(len(in), 2+int(in[0])+int(in[1])<<8):]
	}
	for _, text := range []byte{hasName, hasComment} {
		if flags&text != 0 {
			_, in, _ = bytes.Cut(in, []byte{0})
		}
	}
	if flags&hasChecksum != 0 {
		in = in[min(len(in), 2):]
	}
	before := len(out)
	if out, in, err = inflate(out, in); err != nil {
		return nil, nil, err
	}
	if len(in) < 8 || uint32(in[0])|uint32(in[1])<<8|uint32(in[2])<<16|uint32(in[3])<<24 != checksum(out[before:]) {
		return nil, nil, errCorrupt
	}
	return out, in[8:], nil
}

// checksum returns the CRC-32 of data as gzip has it.
func checksum(data []byte) uint32 {
	var table [256]uint32
	for i := range table {
		c := uint32(i)
		for range 8 {
			c = c>>1 ^ -(c&1)&0xedb88320
		}
		table[i] = c
	}
	sum := ^uint32(0)
	for _, b := range data {
		sum = table[byte(sum)^b] ^ sum>>8
	}
	return ^sum
}
