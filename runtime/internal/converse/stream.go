package converse

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/starling-host/starling/runtime/provider"
)

// stream is a response in progress.
type stream struct {
	api       *API
	reader    Reader
	body      io.ReadCloser
	events    Events // of the body
	requestID string // in the header
	message   Message
	hash      *provider.BodyHash

	ctx    context.Context // of the request; ends with the response
	cancel context.CancelFunc
	err    error // how it ended
}

// Stream implements [provider.Provider].
func (a *API) Stream(ctx context.Context, req *provider.Request) (provider.EventStream, error) {
	call, err := a.Translate(req)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", a.Name, err)
	}
	inner, cancel := context.WithCancel(ctx)
	inner, hash := provider.WithBodyHash(inner)
	s := &stream{api: a, reader: call.Reader, hash: hash, ctx: inner, cancel: cancel}
	resp, err := a.post(inner, call)
	if err != nil {
		err = s.failure(ctx, err)
		cancel()
		return nil, err
	}
	s.body, s.events, s.requestID = resp.Body, NewEventReader(resp.Body), a.RequestID(resp.Header)
	if a.Events != nil {
		s.events = a.Events(resp.Body)
	}
	s.message = Message{RequestID: s.requestID, open: map[int64]*block{}}
	return s, nil
}

// Next implements [provider.EventStream].
func (s *stream) Next(ctx context.Context) (provider.StreamChunk, error) {
	defer context.AfterFunc(ctx, s.stop)()
	for len(s.message.queue) == 0 {
		if s.err != nil {
			return provider.StreamChunk{}, s.err
		}
		if s.err = s.read(); s.err != nil && s.err != io.EOF {
			s.err = s.failure(ctx, s.err)
		}
	}
	next := s.message.queue[0]
	s.message.queue = s.message.queue[1:]
	return next, nil
}

var errCut = fmt.Errorf("the response ended before it was complete: %w", io.ErrUnexpectedEOF)

// read takes the next event into the message. It returns io.EOF, after the last chunk, when the body
// has ended with all that a complete response has.
func (s *stream) read() error {
	ev, err := s.events.Next()
	switch {
	case err == nil:
		err = s.reader.Event(&s.message, ev)
		if fault, ok := errors.AsType[*Fault](err); ok {
			fault.RequestID = cmp.Or(fault.RequestID, s.requestID)
		}
		return err
	case errors.Is(err, ErrEventTooLong):
		return Malformed("%w", err)
	case s.reader.Complete(err == io.EOF):
		return cmp.Or(s.message.end(s.hash.Sum()), io.EOF)
	case err == io.EOF:
		return errCut
	}
	return err
}

// failure gives an error its class and its words, without the key, which a server may have repeated. It
// prefers the end of a context, which caused the other failures, over those.
func (s *stream) failure(ctx context.Context, err error) error {
	err = cmp.Or(ctx.Err(), s.ctx.Err(), err)
	fault, ok := errors.AsType[*Fault](err)
	if !ok {
		return fmt.Errorf("%s: %w", s.api.Name, provider.ClassifyTransport(err))
	}
	text := s.api.Name + ": " + fault.Error()
	if s.api.Key != "" {
		text = strings.ReplaceAll(text, s.api.Key, "[key]")
	}
	return provider.WrapHTTPStatus(&Error{Text: text, Err: fault}, fault.Status)
}

// Close implements [provider.EventStream]. Next reports how the response
// ended, so Close never fails.
func (s *stream) Close() error {
	s.stop()
	return nil
}

func (s *stream) stop() {
	s.cancel()
	s.body.Close()
}

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

// Message makes chunks of the blocks of a response. The kind of a block is its
// chunks' kind, [provider.ChunkToolUseStart] for a tool use.
type Message struct {
	// StopReason and RequestID are for the last chunk.
	StopReason, RequestID string

	queue  []provider.StreamChunk
	open   map[int64]*block
	counts provider.Usage // as they were added last
}

// block is a block that has not been closed.
type block struct {
	kind   provider.ChunkKind
	callID string
	args   bool // some have been sent

	// held waits for the end of the block: a signature, opaque data, or arguments
	// in case none are sent.
	held []byte
}

// IsOpen reports whether the block with this number is open.
func (m *Message) IsOpen(index int64) bool { return m.open[index] != nil }

// Open opens a block other than a tool use.
func (m *Message) Open(index int64, kind provider.ChunkKind) error {
	if m.IsOpen(index) {
		return Malformed("block %d is opened twice", index)
	}
	m.open[index] = &block{kind: kind}
	return nil
}

// OpenToolUse opens a tool use. The input counts if no delta follows; without
// either the arguments are an empty object, because models write none for a tool
// that takes none.
func (m *Message) OpenToolUse(index int64, callID, name, input string) error {
	if callID == "" || name == "" {
		return Malformed("the tool use in block %d has the id %q and the name %q", index, callID, name)
	}
	if err := m.Open(index, provider.ChunkToolUseStart); err != nil {
		return err
	}
	b := m.open[index]
	b.callID, b.held = callID, []byte(cmp.Or(input, "{}"))
	m.Push(provider.StreamChunk{Kind: provider.ChunkToolUseStart, ToolUse: &provider.ToolUseChunk{CallID: callID, Name: name}})
	return nil
}

// Delta adds text to a block of the kind.
func (m *Message) Delta(index int64, kind provider.ChunkKind, text string) error {
	b, err := m.block(index, kind)
	if err != nil || text == "" {
		return err
	}
	switch kind {
	case provider.ChunkRedactedThinking:
		b.held = append(b.held, text...)
	case provider.ChunkToolUseStart:
		b.args = true
		m.arguments(b, text)
	default:
		m.Push(provider.StreamChunk{Kind: kind, Text: text})
	}
	return nil
}

// Extend is Delta for a protocol in which the first delta opens a block.
func (m *Message) Extend(index int64, kind provider.ChunkKind, text string) error {
	if !m.IsOpen(index) {
		m.open[index] = &block{kind: kind}
	}
	return m.Delta(index, kind, text)
}

// Sign adds to the signature of a block of reasoning.
func (m *Message) Sign(index int64, signature string) error {
	b, err := m.block(index, provider.ChunkReasoning)
	if err == nil {
		b.held = append(b.held, signature...)
	}
	return err
}

func (m *Message) block(index int64, kind provider.ChunkKind) (*block, error) {
	switch b := m.open[index]; {
	case b == nil:
		return nil, Malformed("block %d is not open", index)
	case b.kind != kind:
		return nil, Malformed("block %d is a %v, and a piece of it a %v", index, b.kind, kind)
	default:
		return b, nil
	}
}

// Close closes a block.
func (m *Message) Close(index int64) error {
	b := m.open[index]
	if b == nil {
		return Malformed("block %d is closed and not open", index)
	}
	delete(m.open, index)
	switch {
	case b.kind == provider.ChunkToolUseStart:
		if !b.args {
			m.arguments(b, string(b.held))
		}
		m.Push(provider.StreamChunk{Kind: provider.ChunkToolUseEnd, ToolUse: &provider.ToolUseChunk{CallID: b.callID}})
	case b.kind == provider.ChunkRedactedThinking:
		m.Push(provider.StreamChunk{Kind: b.kind, Text: string(b.held)})
	case len(b.held) > 0:
		m.Push(provider.StreamChunk{Kind: b.kind, Signature: b.held})
	}
	return nil
}

func (m *Message) arguments(b *block, text string) {
	m.Push(provider.StreamChunk{Kind: provider.ChunkToolUseDelta, ToolUse: &provider.ToolUseChunk{CallID: b.callID, ArgsDelta: text}})
}

// Usage adds the counts so far.
func (m *Message) Usage(u provider.Usage) {
	m.Push(provider.StreamChunk{Kind: provider.ChunkUsage, Usage: &u})
}

// NewUsage adds the counts so far if they are new: some servers repeat them with every event.
func (m *Message) NewUsage(u provider.Usage) {
	if u != m.counts {
		m.counts = u
		m.Usage(u)
	}
}

// end adds the last chunk.
func (m *Message) end(hash []byte) error {
	if len(m.open) > 0 {
		return Malformed("it ends with %d open blocks", len(m.open))
	}
	m.Push(provider.StreamChunk{Kind: provider.ChunkEnd, StopReason: m.StopReason, RequestID: m.RequestID, RawResponseHash: hash})
	return nil
}

// Push adds a chunk for a protocol without blocks.
func (m *Message) Push(c provider.StreamChunk) { m.queue = append(m.queue, c) }
