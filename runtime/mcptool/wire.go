//go:build !js

package mcptool

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/starling-host/starling/internal/rpcline"
)

// maxMessageBytes bounds one message of a server.
const maxMessageBytes = mcp.DefaultMaxLineLength

// maxAsked bounds a server's unanswered requests. At the bound the client stops reading from
// the server, so a server that does not read the answers stops itself.
const maxAsked = 64

// wire sits between a server and the SDK. The SDK decodes an answer into its own types,
// which drop unknown members and round large integers. So the wire takes each awaited
// answer off its message, as the server wrote it, and passes an empty one to the SDK.
type wire struct {
	mu      sync.Mutex
	waiting map[string]*exchange // by the id of the request, as JSON; guarded by mu
	asked   chan struct{}        // capacity maxAsked: requests of the server
	cut     chan struct{}        // closed with the connection
	cutOnce sync.Once
	told    *tail // keeps other output of the server
}

// exchange is a request whose original answer is needed.
type exchange struct {
	id      string
	result  json.RawMessage // nil if there is none
	refused json.RawMessage // the server's error
}

type exchangeKey struct{}

func newWire(told *tail) *wire {
	return &wire{waiting: map[string]*exchange{}, asked: make(chan struct{}, maxAsked), cut: make(chan struct{}), told: told}
}

// exact makes a request with fn and returns the result or the error as the server wrote it.
func (w *wire) exact(ctx context.Context, fn func(context.Context) error) (result, refused json.RawMessage, err error) {
	x := &exchange{}
	_, err = await(ctx, func() (struct{}, error) { return struct{}{}, fn(context.WithValue(ctx, exchangeKey{}, x)) })
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.waiting, x.id)
	return x.result, x.refused, err
}

// outgoing inspects a message before it is sent. Call sent afterwards.
func (w *wire) outgoing(ctx context.Context, data []byte) (sent func()) {
	var m struct {
		ID     json.RawMessage `json:"id"`
		Method string          `json:"method"`
	}
	if json.Unmarshal(data, &m) != nil || m.ID == nil {
		return func() {}
	}
	if m.Method == "" { // the answer to a request of the server
		return func() {
			select {
			case <-w.asked:
			default:
			}
		}
	}
	if x, ok := ctx.Value(exchangeKey{}).(*exchange); ok {
		w.mu.Lock()
		delete(w.waiting, x.id) // of the earlier request, which asked for input
		x.id = string(m.ID)
		w.waiting[x.id] = x
		w.mu.Unlock()
	}
	return func() {}
}

// emptyResult is valid for every called method.
const emptyResult = `"content":[],"contents":[],"messages":[],"resources":[],"resourceTemplates":[],"prompts":[]`

// incoming returns the message for the SDK in place of the server's. It waits while too
// many requests of the server are unanswered.
func (w *wire) incoming(data []byte) []byte {
	var m struct {
		ID     json.RawMessage `json:"id"`
		Method json.RawMessage `json:"method"`
		Result json.RawMessage `json:"result"`
		Error  json.RawMessage `json:"error"`
	}
	if json.Unmarshal(data, &m) != nil || m.ID == nil {
		return data
	}
	if m.Method != nil {
		select {
		case w.asked <- struct{}{}:
		case <-w.cut:
		}
		return data
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	x := w.waiting[string(m.ID)]
	if x != nil && m.Error != nil {
		x.refused = bytes.Clone(m.Error)
		return data
	}
	var members map[string]json.RawMessage
	var listed []json.RawMessage
	notObject := json.Unmarshal(m.Result, &members) != nil
	if x == nil || string(members["resultType"]) == `"input_required"` {
		return data
	}
	if x.result = bytes.Clone(m.Result); notObject {
		return data
	}
	_ = json.Unmarshal(members["tools"], &listed) // a tool's answer may contain anything
	understood := []json.RawMessage{}             // the SDK makes headers from a schema
	for _, t := range listed {
		if json.Unmarshal(t, new(mcp.Tool)) == nil {
			understood = append(understood, t)
		}
	}
	tools, err := json.Marshal(understood)
	if err != nil {
		return data
	}
	return fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%s,"result":{%s,"tools":%s}}`, m.ID, emptyResult, tools)
}

// unreadable returns the message for the SDK in place of an unreadable one, or of both ends of one
// that is too long: an error for the call that it seems to answer, or nil for other text.
func (w *wire) unreadable(line []byte, why string) []byte {
	id := rpcline.ID(line)
	w.mu.Lock()
	defer w.mu.Unlock()
	if id == nil || w.waiting[string(id)] == nil {
		w.told.note(line)
		return nil
	}
	text, _ := json.Marshal("the answer of the server cannot be read: " + why) // a string cannot fail
	return fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%s,"error":{"code":%d,"message":%s}}`, id, jsonrpc.CodeParseError, text)
}

// close ends everything that waits for the server.
func (w *wire) close() { w.cutOnce.Do(func() { close(w.cut) }) }

// wired is a transport in this process with a wire.
type wired struct {
	mcp.Transport
	*wire
}

// Connect implements [mcp.Transport].
func (t wired) Connect(ctx context.Context) (mcp.Connection, error) {
	conn, err := t.Transport.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return wiredConn{conn, t.wire}, nil
}

type wiredConn struct {
	mcp.Connection
	*wire
}

// Read implements [mcp.Connection].
func (c wiredConn) Read(ctx context.Context) (jsonrpc.Message, error) {
	m, err := c.Connection.Read(ctx)
	if err != nil {
		return nil, err
	}
	data, err := jsonrpc.EncodeMessage(m)
	if err != nil {
		return nil, err
	}
	return jsonrpc.DecodeMessage(c.incoming(data))
}

// Write implements [mcp.Connection].
func (c wiredConn) Write(ctx context.Context, m jsonrpc.Message) error {
	data, err := jsonrpc.EncodeMessage(m)
	if err != nil {
		return err
	}
	defer c.outgoing(ctx, data)()
	return c.Connection.Write(ctx, m)
}

// Close implements [mcp.Connection].
func (c wiredConn) Close() error {
	c.wire.close()
	return c.Connection.Close()
}

// deleteTime bounds the wait for the end of a session.
const deleteTime = time.Second

// wiredHTTP is a wire within HTTP, below the SDK's transport, whose connections cannot be
// wrapped. It does not follow redirects, which would send arguments and keys to an address
// that the user did not name.
type wiredHTTP struct {
	*wire
	options Options
}

// RoundTrip implements [http.RoundTripper].
func (t wiredHTTP) RoundTrip(req *http.Request) (*http.Response, error) {
	ctx := req.Context()
	if req.Method == http.MethodDelete { // of a session; a hanging server ends it late
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, deleteTime)
		defer cancel()
	}
	req = req.Clone(ctx)
	for name, value := range t.options.Headers {
		req.Header.Set(name, value)
	}
	var sent []byte
	if req.Body != nil {
		var err error
		if sent, err = io.ReadAll(req.Body); err != nil {
			return nil, err
		}
		req.Body.Close()
		req.Body = io.NopCloser(bytes.NewReader(sent))
		defer t.outgoing(req.Context(), sent)()
	}
	resp, err := t.options.HTTP.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	if to, err := resp.Location(); err == nil && resp.StatusCode/100 == 3 {
		resp.Body.Close()
		to.User, to.RawQuery = nil, ""
		return nil, fmt.Errorf("the server redirects to %s, and redirects are not followed: use that address if it is the server's", to)
	}
	switch kind := resp.Header.Get("Content-Type"); {
	case strings.HasPrefix(kind, "text/event-stream"):
		resp.Body = &eventStream{Closer: resp.Body, wire: t.wire, in: bufio.NewReader(resp.Body)}
	case strings.HasPrefix(kind, "application/json") && resp.StatusCode == http.StatusOK:
		data, err := io.ReadAll(io.LimitReader(resp.Body, maxMessageBytes+1))
		resp.Body.Close()
		if err != nil {
			return nil, err
		}
		switch answer := t.incoming(data); {
		case len(data) > maxMessageBytes:
			data = t.unreadable(sent, tooLong)
		case json.Valid(data):
			data = answer
		default:
			data = t.unreadable(sent, "it is no JSON")
		}
		resp.Body, resp.ContentLength = io.NopCloser(bytes.NewReader(data)), int64(len(data))
	default:
		resp.Body = struct {
			io.Reader
			io.Closer
		}{io.LimitReader(resp.Body, maxMessageBytes), resp.Body}
	}
	return resp, nil
}

var tooLong = fmt.Sprintf("it has more than %d bytes", maxMessageBytes)

// eventStream is a stream of events whose messages pass through the wire.
type eventStream struct {
	io.Closer
	*wire
	in   *bufio.Reader
	data []byte // of the current event
	out  []byte
	err  error
}

// Read implements [io.Reader].
func (s *eventStream) Read(p []byte) (int, error) {
	for len(s.out) == 0 && s.err == nil {
		line, size, err := rpcline.Read(s.in, maxMessageBytes)
		s.err = err
		text := bytes.TrimRight(line, "\r\n")
		data, isData := bytes.CutPrefix(text, []byte("data:"))
		switch {
		case size > maxMessageBytes || len(s.data)+len(data) > maxMessageBytes:
			s.data = s.unreadable(data, tooLong)
		case isData && len(data) > 0:
			s.data = append(append(s.data, data...), '\n')
		case len(text) == 0 && len(s.data) > 0:
			var one bytes.Buffer // a message may have several lines
			if json.Compact(&one, s.incoming(s.data)) == nil {
				s.out = fmt.Appendf(s.out, "data: %s\n", one.Bytes())
			}
			s.data = nil
			s.out = append(s.out, '\n')
		default:
			s.out = append(append(s.out, text...), '\n')
		}
	}
	if len(s.out) == 0 {
		return 0, s.err
	}
	n := copy(p, s.out)
	s.out = s.out[n:]
	return n, nil
}
