package converse

import (
	"bufio"
	"bytes"
	"errors"
	"io"
)

// MaxEvent bounds an event, in bytes as sent.
const MaxEvent = 16 << 20

// ErrEventTooLong means that an event has more than [MaxEvent] bytes.
var ErrEventTooLong = errors.New("sse: an event has more than 16 MiB")

// ServerEvent is one event that has data.
type ServerEvent struct {
	Name string // "" if the server named none, which means "message"
	Data []byte // the lines of data, joined by LF; the caller's to keep
}

// EventReader reads server-sent events (section 9.2 of the HTML standard), the form in
// which most models stream.
//
// It reads everything the standard allows: lines that end in LF, CR or CRLF, a byte order
// mark, comments, data of several lines. An event counts once the empty line after it has
// arrived, so the rest of a broken connection is dropped. The fields id and retry are for
// browsers and are ignored.
type EventReader struct {
	lines   *bufio.Scanner
	left    int  // of MaxEvent
	looked  int  // bytes of the line at hand that have no end in them
	afterCR bool // a LF now belongs to the line before
	begun   bool
}

// NewEventReader returns an EventReader of r.
func NewEventReader(r io.Reader) *EventReader {
	in := &EventReader{lines: bufio.NewScanner(r)}
	in.lines.Buffer(nil, MaxEvent+1)
	in.lines.Split(in.line)
	return in
}

// Next returns the next event. At the end of the stream it returns io.EOF, else
// [ErrEventTooLong] or the error of the reader below.
func (r *EventReader) Next() (ServerEvent, error) {
	var ev ServerEvent
	for r.left = MaxEvent; r.lines.Scan(); {
		line := r.lines.Bytes()
		if !r.begun {
			line, r.begun = bytes.TrimPrefix(line, []byte("\uFEFF")), true
		}
		switch {
		case len(line) > 0:
			ev.add(line)
		case ev.Data != nil:
			ev.Data = ev.Data[:len(ev.Data)-1]
			return ev, nil
		default:
			ev = ServerEvent{}
			r.left = MaxEvent
		}
	}
	switch err := r.lines.Err(); {
	case err == nil:
		return ServerEvent{}, io.EOF
	case errors.Is(err, bufio.ErrTooLong):
		return ServerEvent{}, ErrEventTooLong
	default:
		return ServerEvent{}, err
	}
}

// line is a [bufio.SplitFunc]. A line is complete with its CR: the byte after it may be a
// minute away. An unfinished line at the end of the stream does not count.
func (r *EventReader) line(data []byte, _ bool) (taken int, line []byte, err error) {
	begin := 0
	if r.afterCR && len(data) > 0 && data[0] == '\n' {
		begin = 1
	}
	r.looked = max(r.looked, begin)
	end := bytes.IndexAny(data[r.looked:], "\r\n")
	if end < 0 {
		r.looked = len(data)
		return 0, nil, nil
	}
	end += r.looked
	r.looked, r.afterCR = 0, data[end] == '\r'
	if r.left -= end + 1 - begin; r.left < 0 {
		return 0, nil, ErrEventTooLong
	}
	return end + 1, data[begin:end], nil
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
