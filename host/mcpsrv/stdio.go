package mcpsrv

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// ServeStdio serves one client over a pair of streams, one JSON-RPC message, or one
// batch of them, to a line, until the client closes its end and has been answered, or ctx
// ends. The tools are those that there are when it begins.
func ServeStdio(ctx context.Context, v View, o Options, in io.Reader, out io.Writer) error {
	server, err := newServer(ctx, v, o.normal())
	if err != nil {
		return err
	}
	err = server.Run(ctx, lines{in, out})
	if ctx.Err() != nil || errors.Is(err, io.EOF) {
		return ctx.Err()
	}
	return err
}

// lines is a transport of one client. That of the SDK ends with the first line that it
// cannot read, answers nothing in a batch with a notification, and sends responses to
// what the client has cancelled.
type lines struct {
	in  io.Reader
	out io.Writer
}

// Connect implements [mcp.Transport].
func (t lines) Connect(context.Context) (mcp.Connection, error) {
	c := &lineConn{
		messages: make(chan jsonrpc.Message), answered: make(chan struct{}, 1), closed: make(chan struct{}),
		out: t.out, calls: map[jsonrpc.ID]*call{},
	}
	go c.listen(bufio.NewReaderSize(t.in, 64<<10))
	return c, nil
}

type lineConn struct {
	messages chan jsonrpc.Message // closed at the end of the input
	ended    error                // of the input, once messages is closed
	answered chan struct{}        // capacity 1: a call has its response
	closed   chan struct{}
	once     sync.Once

	mu    sync.Mutex
	out   io.Writer            // guarded by mu
	calls map[jsonrpc.ID]*call // of the client, without a response so far; guarded by mu
}

// call is one that the client waits for.
type call struct {
	batch     *batch // it came in; nil if it came alone
	cancelled bool   // the client wants no response any more
}

// batch is a line with several messages, whose responses are one line as well.
type batch struct {
	open      int // calls without a response
	responses []json.RawMessage
}

// listen reads until the input ends or the connection is closed. A reader that does
// not notice the latter is left behind.
func (c *lineConn) listen(in *bufio.Reader) {
	defer close(c.messages)
	for {
		line, whole, err := readLine(in, maxBody)
		switch {
		case !whole:
			c.refuse(nil, fmt.Sprintf("a line has more than %d bytes", maxBody))
		case len(line) > 0 && !c.take(line):
			return
		}
		if err != nil {
			c.ended = err
			return
		}
	}
}

// readLine returns the next line without the space around it. Of one that is longer
// than most bytes it returns nothing, and that it is not whole.
func readLine(in *bufio.Reader, most int) (line []byte, whole bool, err error) {
	for whole = true; ; {
		part, err := in.ReadSlice('\n')
		if whole = whole && len(line)+len(part) <= most; whole {
			line = append(line, part...)
		} else {
			line = nil
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return bytes.TrimSpace(line), whole, err
		}
	}
}

// take passes the messages of a line on. It reports whether anybody listens.
func (c *lineConn) take(line []byte) bool {
	for _, msg := range c.read(line) {
		select {
		case c.messages <- msg:
		case <-c.closed:
			return false
		}
	}
	return true
}

// read returns the messages of a line, and answers what is none.
func (c *lineConn) read(line []byte) []jsonrpc.Message {
	if line[0] != '[' {
		msg, err := decode(line)
		if err != nil {
			c.refuse(line, err.Error())
			return nil
		}
		c.note(msg, nil)
		return []jsonrpc.Message{msg}
	}
	var parts []json.RawMessage
	if err := json.Unmarshal(line, &parts); err != nil || len(parts) == 0 {
		c.refuse(line, "a batch is an array of at least one message")
		return nil
	}
	var msgs []jsonrpc.Message
	b := &batch{open: 1} // the line itself, until all of it is read
	for _, part := range parts {
		msg, err := decode(part)
		if err != nil {
			b.responses = append(b.responses, refusal(part, err.Error()))
			continue
		}
		c.note(msg, b)
		msgs = append(msgs, msg)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	_ = c.close(b) // a client that does not read will not be served for long
	return msgs
}

// note remembers what becomes of the response to a message.
func (c *lineConn) note(msg jsonrpc.Message, b *batch) {
	asked, ok := msg.(*jsonrpc.Request)
	if !ok {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if id, ok := cancelledID(asked); ok && c.calls[id] != nil {
		c.calls[id].cancelled = true
	}
	if asked.IsCall() && c.calls[asked.ID] == nil { // or the SDK refuses it
		c.calls[asked.ID] = &call{batch: b}
		if b != nil {
			b.open++
		}
	}
}

// refuse answers what is no message.
func (c *lineConn) refuse(line []byte, why string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	_ = c.write(refusal(line, why)) // as above
}

// Read implements [mcp.Connection].
func (c *lineConn) Read(ctx context.Context) (jsonrpc.Message, error) {
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-c.closed:
		return nil, io.EOF
	case msg, ok := <-c.messages:
		if !ok {
			return nil, c.drain(ctx)
		}
		return msg, nil
	}
}

// drain waits, at the end of the input, until its calls have been answered: with the end
// of the input the SDK drops what is in progress. It returns why nothing more is read.
func (c *lineConn) drain(ctx context.Context) error {
	for c.waiting() {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-c.closed:
			return io.EOF
		case <-c.answered:
		}
	}
	return c.ended
}

// waiting reports whether the client waits for a response.
func (c *lineConn) waiting() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.calls) > 0
}

// Write implements [mcp.Connection]. The responses to a batch are written with the last
// of them, without those to what was cancelled.
func (c *lineConn) Write(_ context.Context, msg jsonrpc.Message) error {
	doc, err := jsonrpc.EncodeMessage(msg)
	if err != nil {
		return fmt.Errorf("mcpsrv: encode a message: %w", err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	response, ok := msg.(*jsonrpc.Response)
	if !ok || c.calls[response.ID] == nil {
		return c.write(doc)
	}
	asked := c.calls[response.ID]
	delete(c.calls, response.ID)
	defer c.stir()
	switch b := asked.batch; {
	case b == nil && asked.cancelled:
		return nil
	case b == nil:
		return c.write(doc)
	case !asked.cancelled:
		b.responses = append(b.responses, doc)
		fallthrough
	default:
		return c.close(b)
	}
}

// stir has drain look again.
func (c *lineConn) stir() {
	select {
	case c.answered <- struct{}{}:
	default:
	}
}

// close counts one of the open parts of a batch less, and writes its responses with the
// last one. mu must be held.
func (c *lineConn) close(b *batch) error {
	if b.open--; b.open > 0 || len(b.responses) == 0 {
		return nil
	}
	doc, err := json.Marshal(b.responses)
	if err != nil {
		return fmt.Errorf("mcpsrv: encode a batch: %w", err)
	}
	return c.write(doc)
}

// write writes one line. mu must be held.
func (c *lineConn) write(doc []byte) error {
	_, err := c.out.Write(append(doc, '\n'))
	return err
}

// Close implements [mcp.Connection].
func (c *lineConn) Close() error {
	c.once.Do(func() { close(c.closed) })
	return nil
}

// SessionID implements [mcp.Connection].
func (c *lineConn) SessionID() string { return "" }
