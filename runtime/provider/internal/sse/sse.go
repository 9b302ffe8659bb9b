// Package sse reads server-sent events (section 9.2 of the HTML standard), the
// form in which most models stream.
//
// It reads what the standard allows: lines that end in LF, CR or CRLF, a byte
// order mark, comments, data of several lines. An event counts once the empty line
// after it has come, so that what a broken connection leaves of one is dropped.
// The fields id and retry are for browsers and are passed over.
package sse

import (
	"bufio"
	"bytes"
	"errors"
	"io"
)

// MaxEvent bounds an event, in bytes as they are sent.
const MaxEvent = 16 << 20

// ErrTooLong says that an event has more than [MaxEvent] bytes.
var ErrTooLong = errors.New("sse: an event has more than 16 MiB")

// Event is one event that has data.
type Event struct {
	Name string // "" if the server named none, which means "message"
	Data []byte // the lines of data, joined by LF; the caller's to keep
}

// Reader reads events.
type Reader struct {
	in      *bufio.Reader
	left    int  // of MaxEvent
	afterCR bool // a LF now belongs to the line before
	begun   bool
	line    []byte
}

// NewReader returns a Reader of r.
func NewReader(r io.Reader) *Reader { return &Reader{in: bufio.NewReader(r)} }

// Next returns the next event. At the end of the stream it returns io.EOF, else
// [ErrTooLong] or the error of the reader below.
func (r *Reader) Next() (Event, error) {
	var ev Event
	r.left = MaxEvent
	for {
		line, err := r.readLine()
		switch {
		case err != nil:
			return Event{}, err
		case len(line) == 0 && ev.Data != nil:
			ev.Data = ev.Data[:len(ev.Data)-1]
			return ev, nil
		case len(line) == 0:
			ev = Event{}
			r.left = MaxEvent
		default:
			ev.add(line)
		}
	}
}

// add takes a line into account that is not empty.
func (ev *Event) add(line []byte) {
	field, value, _ := bytes.Cut(line, []byte(":"))
	value = bytes.TrimPrefix(value, []byte(" "))
	switch string(field) {
	case "data":
		ev.Data = append(append(ev.Data, value...), '\n')
	case "event":
		ev.Name = string(value)
	}
}

// readLine returns the next line without its end. It is valid until the next
// call. A line that the stream ends in is none.
func (r *Reader) readLine() ([]byte, error) {
	r.line = r.line[:0]
	for {
		chunk, err := r.available()
		if err != nil {
			return nil, err
		}
		end := bytes.IndexAny(chunk, "\r\n")
		taken := len(chunk)
		if end >= 0 {
			r.afterCR = chunk[end] == '\r'
			taken, chunk = end+1, chunk[:end]
		}
		if r.left -= taken; r.left < 0 {
			return nil, ErrTooLong
		}
		r.line = append(r.line, chunk...)
		r.in.Discard(taken)
		if end >= 0 {
			return r.withoutMark(), nil
		}
	}
}

// available waits for a byte and returns it with whatever is there behind it: a
// line may be complete although the stream is not going on.
func (r *Reader) available() ([]byte, error) {
	first, err := r.in.Peek(1)
	if err == nil && r.afterCR && first[0] == '\n' {
		r.in.Discard(1)
		_, err = r.in.Peek(1)
	}
	if err != nil {
		return nil, err
	}
	r.afterCR = false
	return r.in.Peek(r.in.Buffered())
}

// withoutMark returns the line without the byte order mark that the first may
// have.
func (r *Reader) withoutMark() []byte {
	if r.begun {
		return r.line
	}
	r.begun = true
	return bytes.TrimPrefix(r.line, []byte("\uFEFF"))
}
