package mcpsrv

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/starling-host/starling/internal/await"
	"github.com/starling-host/starling/internal/rpcline"
)

// ServeStdio serves one client over a pair of streams, one JSON-RPC message to a line, until the
// client closes its end and has been answered, or ctx ends. A line that is not a message, or has
// more than 16 MiB, is answered with an error. If the tools are a [Mirror], the client is
// notified when they change.
func ServeStdio(ctx context.Context, v View, o Options, in io.Reader, out io.Writer) error {
	wire := newWire()
	server, stop, err := newLocalServer(ctx, v, o, wire)
	if err != nil {
		return err
	}
	defer stop()
	calls, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	defer context.AfterFunc(ctx, func() { cancel(errCancelled) })() // the SDK waits for the requests of a session that it closes
	writer := &lockedWriter{to: out, wire: wire}
	reader := &lines{in: bufio.NewReader(in), out: writer, wire: wire}
	err = server.Run(context.WithValue(ctx, cancelKey{}, calls), transport{&mcp.IOTransport{Reader: io.NopCloser(reader), Writer: writer, MaxLineLength: 4 * maxMessage}})
	if ctx.Err() != nil || errors.Is(err, io.EOF) {
		return ctx.Err()
	}
	return err
}

// transport is the SDK's, whose connections drop calls in progress at the end of the
// input, and send responses to calls that the client has cancelled.
type transport struct{ mcp.Transport }

// Connect implements [mcp.Transport].
func (t transport) Connect(ctx context.Context) (mcp.Connection, error) {
	inner, err := t.Transport.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return &connection{Connection: inner, id: rand.Text(), calls: map[jsonrpc.ID]bool{}, answered: make(chan struct{}, 1), closed: make(chan struct{})}, nil
}

// connection reports the end of the input once all calls have ended, and drops responses
// to cancelled calls.
type connection struct {
	mcp.Connection
	id       string        // of the session: the assistant's, as long as it runs
	answered chan struct{} // capacity 1: a call has ended
	closed   chan struct{}
	once     sync.Once // closes closed

	mu    sync.Mutex
	calls map[jsonrpc.ID]bool // in progress, and whether the client has cancelled it; guarded by mu
}

// SessionID implements [mcp.Connection].
func (c *connection) SessionID() string { return c.id }

// Read implements [mcp.Connection].
func (c *connection) Read(ctx context.Context) (jsonrpc.Message, error) {
	msg, err := c.Connection.Read(ctx)
	c.mu.Lock()
	defer c.mu.Unlock()
	if asked, ok := msg.(*jsonrpc.Request); ok && err == nil {
		if id, ok := cancelledID(asked); ok {
			if _, known := c.calls[id]; known {
				c.calls[id] = true
			}
		} else if asked.IsCall() {
			c.calls[asked.ID] = false
		}
	}
	for errors.Is(err, io.EOF) && len(c.calls) > 0 {
		c.mu.Unlock()
		select {
		case <-c.answered:
		case <-c.closed:
			err = io.ErrClosedPipe
		case <-ctx.Done():
			err = ctx.Err()
		}
		c.mu.Lock()
	}
	return msg, err
}

// Write implements [mcp.Connection].
func (c *connection) Write(ctx context.Context, msg jsonrpc.Message) error {
	response, ok := msg.(*jsonrpc.Response)
	if !ok {
		return c.Connection.Write(ctx, msg)
	}
	c.mu.Lock()
	cancelled := c.calls[response.ID]
	c.mu.Unlock()
	var err error
	if !cancelled {
		err = c.Connection.Write(ctx, msg)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.calls, response.ID)
	await.Offer(c.answered, struct{}{})
	return err
}

// Close implements [mcp.Connection].
func (c *connection) Close() error {
	c.once.Do(func() { close(c.closed) })
	return c.Connection.Close()
}

// lines filters a client's input so that no line ends its session: lines that are not
// messages, or too long, are answered with an error instead.
type lines struct {
	in   *bufio.Reader
	out  io.Writer // safe for concurrent use
	wire *wire     // replaces messages
	rest []byte    // of the message that is being read
}

// Read implements [io.Reader].
func (l *lines) Read(p []byte) (int, error) {
	for len(l.rest) == 0 {
		line, size, err := rpcline.Read(l.in, maxMessage)
		id, why, code := "null", "", jsonrpc.CodeParseError
		switch {
		case size > maxMessage:
			id, why, code = idOf(line), fmt.Sprintf("the message has %d bytes, and may have %d", size, maxMessage), jsonrpc.CodeInvalidRequest
		case len(bytes.TrimSpace(line)) == 0:
			if err != nil {
				return 0, err
			}
			continue
		case !json.Valid(line):
			why = "the line is not JSON: a message is one line"
		default:
			if err := checkMessages(line); err != nil {
				id, why, code = idOf(line), err.Error(), jsonrpc.CodeInvalidRequest
			}
		}
		if why == "" {
			l.rest = append(l.wire.incoming("", bytes.TrimRight(line, "\r\n")), '\n')
			break
		}
		text, _ := json.Marshal(why) // a string cannot fail
		if _, err := fmt.Fprintf(l.out, `{"jsonrpc":"2.0","id":%s,"error":{"code":%d,"message":%s}}`+"\n", id, code, text); err != nil {
			return 0, err
		}
	}
	n := copy(p, l.rest)
	l.rest = l.rest[n:]
	return n, nil
}

// checkMessages returns an error if a JSON document is neither a message nor a batch of them.
func checkMessages(doc []byte) error {
	var batch []json.RawMessage
	if !bytes.HasPrefix(bytes.TrimSpace(doc), []byte("[")) {
		batch = append(batch, doc)
	} else if err := json.Unmarshal(doc, &batch); err != nil || len(batch) == 0 {
		return errors.New("the batch is empty")
	}
	ids := map[jsonrpc.ID]bool{}
	for _, one := range batch {
		msg, err := jsonrpc.DecodeMessage(one)
		if err != nil {
			return err
		}
		if asked, ok := msg.(*jsonrpc.Request); ok && asked.IsCall() {
			if ids[asked.ID] {
				return errors.New("the batch has an id twice")
			}
			ids[asked.ID] = true
		}
	}
	return nil
}

// idOf is the id of a message that is not one, or null.
func idOf(line []byte) string { return cmp.Or(string(rpcline.ID(line)), "null") }

// lockedWriter serialises writes. Its owner closes the underlying writer.
type lockedWriter struct {
	wire *wire // replaces messages

	mu sync.Mutex
	to io.Writer // guarded by mu
}

// Write implements [io.Writer].
func (w *lockedWriter) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, err := w.to.Write(w.wire.outgoing("", p)); err != nil {
		return 0, err
	}
	return len(p), nil
}

// Close implements [io.Closer].
func (*lockedWriter) Close() error { return nil }
