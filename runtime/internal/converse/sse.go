package converse

import (
	"bufio"
	"bytes"
	"errors"
	"io"
)

// MaxEvent bounds an event, in bytes as they are sent.
const MaxEvent = 16 << 20

// ErrEventTooLong says that an event has more than [MaxEvent] bytes.
var ErrEventTooLong = errors.New("sse: an event has more than 16 MiB")

// ServerEvent is one event that has data.
type ServerEvent struct {
	Name string // "" if the server named none, which means "message"
	Data []byte // the lines of data, joined by LF; the caller's to keep
}

// EventReader reads server-sent events (section 9.2 of the HTML standard), the form in
// which most models stream.
//
// It reads what the standard allows: lines that end in LF, CR or CRLF, a byte order
// mark, comments, data of several lines. An event counts once the empty line after it
// has arrived, so the rest of a broken connection is dropped. The fields id and retry are
// for browsers and are ignored.
type EventReader struct {
	in      *bufio.Reader
	left    int  // of MaxEvent
	afterCR bool // a LF now belongs to the line before
	begun   bool
	line    []byte
}

// NewEventReader returns an EventReader of r.
func NewEventReader(r io.Reader) *EventReader { return &EventReader{in: bufio.NewReader(r)} }

// Next returns the next event. At the end of the stream it returns io.EOF, else
// [ErrEventTooLong] or the error of the reader below.
func (r *EventReader) Next() (ServerEvent, error) {
	var ev ServerEvent
	r.left = MaxEvent
	for {
		line, err := r.readLine()
		switch {
		case err != nil:
			return ServerEvent{}, err
		case len(line) == 0 && ev.Data != nil:
			ev.Data = ev.Data[:len(ev.Data)-1]
			return ev, nil
		case len(line) == 0:
			ev = ServerEvent{}
			r.left = MaxEvent
		default:
			ev.add(line)
		}
	}
}

// add takes a line into account that is not empty.
func (ev *ServerEvent) add(line []byte) {
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
func (r *EventReader) readLine() ([]byte, error) {
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
			return nil, ErrEventTooLong
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
func (r *EventReader) available() ([]byte, error) {
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
func (r *EventReader) withoutMark() []byte {
	if r.begun {
		return r.line
	}
	r.begun = true
	return bytes.TrimPrefix(r.line, []byte("\uFEFF"))
}
