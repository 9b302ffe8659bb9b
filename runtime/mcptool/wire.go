//go:build !js

package mcptool

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/internal/rpcline"
)

// maxMessageBytes bounds one message of a server.
const maxMessageBytes = mcp.DefaultMaxLineLength

// maxAsked bounds a server's unanswered requests. At the bound the client stops reading from
// the server, so a server that does not read the answers stops itself.
const maxAsked = 64

// wire sits between a server and the SDK. The SDK decodes messages into its own types, which drop
// unknown members and round large integers. So whatever has to arrive word for word goes past it,
// and the SDK handles a message of its own in its place: an empty answer for each that is awaited,
// and a request for roots for each request of the server.
type wire struct {
	told      *tail      // keeps other output of the server
	assistant *Assistant // whose words greet the server; nil for ours
	calls     *inFlight
	asked     chan struct{} // capacity maxAsked: requests of the server
	cut       chan struct{} // closed with the connection
	cutOnce   sync.Once

	mu        sync.Mutex
	waiting   map[string]*exchange // by the id of the request, as JSON; guarded by mu
	questions map[string]*question // requests of the server, likewise
	greeting  exchange             // the handshake; likewise
}

// exchange is a message that is sent word for word, and its original answer.
type exchange struct {
	method  string          // in place of the SDK's; empty keeps that
	params  json.RawMessage // likewise; nil keeps them
	id      string
	result  json.RawMessage // nil if there is none
	refused json.RawMessage // the server's error
	failed  error           // of HTTP, with what the server wrote
	read    []mcp.Tool      // of a list, those that the SDK can read
	kept    []*mcp.Tool     // those that it lets be called
}

type exchangeKey struct{}

// question is a request of the server to its client.
type question struct {
	method string
	params json.RawMessage // nil for none
	during *exchange       // the call in whose stream it came; nil if the transport does not say

	of     *assisted     // the call that it belongs to, of those that had begun when it came; nil for none
	answer chan answer   // of capacity one
	sent   chan struct{} // closed when the answer has been sent, or will not be
}

// outgoing returns the message to send in place of the SDK's. Call sent afterwards.
func (w *wire) outgoing(ctx context.Context, data []byte) (instead []byte, sent func()) {
	m := canon.Split(data)
	if m["method"] == nil { // the answer to a request of the server
		var id string
		if json.Unmarshal(m["id"], &id) == nil {
			m["id"] = json.RawMessage(id)
		}
		if refused := canon.Split(m["result"])[refusedKey]; refused != nil {
			delete(m, "result")
			m["error"] = refused
		}
		return canon.Join(m), func() {
			w.settled(id)
			select {
			case <-w.asked:
			default:
			}
		}
	}
	x, _ := ctx.Value(exchangeKey{}).(*exchange)
	if string(m["method"]) == `"notifications/cancelled"` { // the SDK sends it in the context of the request
		x = nil
	}
	params := canon.Split(m["params"])
	meta := canon.Split(params["_meta"])
	if x != nil && x.params != nil {
		own := meta // of this connection: its version and its client
		params = canon.Split(x.params)
		meta = canon.Split(params["_meta"])
		maps.Copy(meta, own)
	}
	if a := w.assistant; a != nil {
		if params["clientInfo"] != nil || meta[mcp.MetaKeyClientInfo] != nil {
			meta[gatewayKey] = slices.Concat(params["clientInfo"], meta[mcp.MetaKeyClientInfo]) // there is one of them
		}
		a.introduce(params, "clientInfo", "capabilities")
		a.introduce(meta, mcp.MetaKeyClientInfo, mcp.MetaKeyClientCapabilities)
	}
	if len(meta) > 0 {
		params["_meta"] = canon.Join(meta)
	}
	switch {
	case len(params) > 0:
		m["params"] = canon.Join(params)
	case x != nil && len(x.params) > 0:
		m["params"] = x.params
	case x != nil && x.params != nil:
		delete(m, "params")
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if method := string(m["method"]); method == `"initialize"` || method == `"server/discover"` {
		w.greeting = exchange{}
		x = &w.greeting
	}
	if x != nil && x.method != "" {
		m["method"] = canon.Quote(x.method)
	}
	if x != nil && m["id"] != nil {
		x.id = string(m["id"])
		w.waiting[x.id] = x
	}
	return canon.Join(m), func() {}
}

// gatewayKey is the member of _meta in which this program is named beside the client that it speaks for.
const gatewayKey = "io.github.starling-host/gateway"

// emptyResult is valid for every called method but the handshake.
const emptyResult = `"content":[],"contents":[],"messages":[],"resources":[],"resourceTemplates":[],"prompts":[],"completion":{"values":[]}`

// incoming returns the message for the SDK in place of the server's, or nil for none. It waits while
// too many requests of the server are unanswered. During is the call in whose stream the message
// came, or nil.
func (w *wire) incoming(data []byte, during *exchange) []byte {
	m := canon.Split(data)
	var method string
	_ = json.Unmarshal(m["method"], &method) // the SDK refuses another value
	switch {
	case method == "" && m["id"] != nil:
		return w.answered(m, data)
	case method == "notifications/cancelled":
		params := canon.Split(m["params"])
		return fmt.Appendf(nil, `{"jsonrpc":"2.0","method":%q,"params":{"requestId":%s}}`, method, canon.Quote(string(params["requestId"])))
	case method == "" || m["id"] == nil && strings.HasSuffix(method, "/list_changed"):
		return data
	case m["id"] == nil:
		w.calls.hear(during, method, m["params"])
		return nil
	}
	select {
	case w.asked <- struct{}{}:
	case <-w.cut:
	}
	if method == "ping" {
		return fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%s,"method":%q}`, canon.Quote(string(m["id"])), method)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	q := &question{method, m["params"], during, nil, make(chan answer, 1), make(chan struct{})}
	w.calls.arrived(q)
	if other := w.questions[string(m["id"])]; other != nil { // whose id should be another one
		close(other.sent)
	}
	w.questions[string(m["id"])] = q
	return fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%s,"method":%q,"params":{"_meta":{%q:%s}}}`, canon.Quote(string(m["id"])), methodRoots, questionKey, canon.Quote(string(m["id"])))
}

// The request that the SDK gets in place of one of the server, with the member of its _meta that has
// the id, and the member of its result that has an error of the client, which the SDK would reword. The SDK's id
// is the text of the server's, whose numbers the SDK would round.
const (
	methodRoots = "roots/list"
	questionKey = "starling/question"
	refusedKey  = "starling/refused"
)

// answering is middleware in which the calls answer the requests of the server.
func (w *wire) answering(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, r mcp.Request) (mcp.Result, error) {
		if method != methodRoots {
			return next(ctx, method, r)
		}
		id, _ := r.GetParams().GetMeta()[questionKey].(string)
		w.mu.Lock()
		q := w.questions[id]
		w.mu.Unlock()
		if q == nil {
			return nil, &jsonrpc.Error{Code: jsonrpc.CodeMethodNotFound, Message: "no such question"}
		}
		answer, err := w.calls.answer(ctx, q)
		if ctx.Err() != nil { // the server wants none any more
			w.settled(id)
		}
		if failure, ok := errors.AsType[*jsonrpc.Error](err); ok {
			answer, err = canon.Join(members{refusedKey: json.RawMessage(refusal(failure).Refused)}), nil
		}
		return exactResult{&mcp.ElicitResult{}, answer}, err
	}
}

// settled notes that the answer to a question has been sent.
func (w *wire) settled(id string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if q := w.questions[id]; q != nil {
		delete(w.questions, id)
		close(q.sent)
	}
}

// exactResult is an answer to the server, as the client wrote it.
type exactResult struct {
	mcp.Result
	answer json.RawMessage
}

// MarshalJSON implements [json.Marshaler].
func (r exactResult) MarshalJSON() ([]byte, error) { return r.answer, nil }

// answered returns the message for the SDK in place of the server's answer.
func (w *wire) answered(m members, data []byte) []byte {
	w.mu.Lock()
	defer w.mu.Unlock()
	x := w.waiting[string(m["id"])]
	if x == nil {
		return data
	}
	if m["error"] != nil {
		x.refused = bytes.Clone(m["error"])
		return data
	}
	if x.result = bytes.Clone(m["result"]); x == &w.greeting {
		delete(w.waiting, x.id)
		return data
	}
	var result members
	if json.Unmarshal(x.result, &result) != nil {
		return data
	}
	var listed []json.RawMessage
	_ = json.Unmarshal(result["tools"], &listed) // a tool's answer may contain anything
	understood := []json.RawMessage{}            // the SDK makes headers from a schema
	for _, t := range listed {
		var read mcp.Tool
		if json.Unmarshal(t, &read) == nil {
			understood, x.read = append(understood, t), append(x.read, read)
		}
	}
	tools, err := json.Marshal(understood)
	if err != nil {
		return data
	}
	return fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%s,"result":{%s,"tools":%s}}`, m["id"], emptyResult, tools)
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
	for {
		m, err := c.Connection.Read(ctx)
		if err != nil {
			return nil, err
		}
		data, err := jsonrpc.EncodeMessage(m)
		if err != nil {
			return nil, err
		}
		if data = c.incoming(data, nil); data != nil {
			return jsonrpc.DecodeMessage(data)
		}
	}
}

// Write implements [mcp.Connection].
func (c wiredConn) Write(ctx context.Context, m jsonrpc.Message) error {
	data, err := jsonrpc.EncodeMessage(m)
	if err != nil {
		return err
	}
	data, sent := c.outgoing(ctx, data)
	defer sent()
	if m, err = jsonrpc.DecodeMessage(data); err != nil {
		return err
	}
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
		instead, done := t.outgoing(req.Context(), sent)
		defer done()
		sent = instead
		req.Body, req.ContentLength = io.NopCloser(bytes.NewReader(sent)), int64(len(sent))
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
	during, _ := ctx.Value(exchangeKey{}).(*exchange)
	if during != nil && during.params != nil && req.Method == http.MethodPost && t.failed(resp) {
		defer resp.Body.Close()
		body, _ := io.ReadAll(io.LimitReader(resp.Body, maxTail)) // as much as there is
		refused := canon.Split(body)["error"]
		if canon.Split(refused)["code"] == nil {
			during.failed = fmt.Errorf("the server answered with %s, %s: %s", resp.Status, cmp.Or(resp.Header.Get("Content-Type"), "no type"), strings.ToValidUTF8(string(body), "\uFFFD"))
			return nil, during.failed
		}
		body = t.incoming(fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%s,"error":%s}`, during.id, refused), during)
		resp.StatusCode, resp.Body, resp.ContentLength = http.StatusOK, io.NopCloser(bytes.NewReader(body)), int64(len(body))
		resp.Header.Set("Content-Type", "application/json")
		return resp, nil
	}
	switch kind := resp.Header.Get("Content-Type"); {
	case strings.HasPrefix(kind, "text/event-stream"):
		resp.Body = &eventStream{Closer: resp.Body, wire: t.wire, during: during, in: bufio.NewReader(resp.Body)}
	case strings.HasPrefix(kind, "application/json") && resp.StatusCode == http.StatusOK:
		data, err := io.ReadAll(io.LimitReader(resp.Body, maxMessageBytes+1))
		resp.Body.Close()
		if err != nil {
			return nil, err
		}
		switch answer := t.incoming(data, nil); {
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

// failed reports whether a response to a call is no answer, and neither the end of the session nor for OAuth.
func (t wiredHTTP) failed(resp *http.Response) bool {
	kind := resp.Header.Get("Content-Type")
	switch resp.StatusCode {
	case http.StatusNotFound:
		return resp.Request.Header.Get("Mcp-Session-Id") == ""
	case http.StatusUnauthorized, http.StatusForbidden:
		return t.options.Tokens == ""
	}
	return resp.StatusCode != http.StatusOK || !strings.HasPrefix(kind, "application/json") && !strings.HasPrefix(kind, "text/event-stream")
}

var tooLong = fmt.Sprintf("it has more than %d bytes", maxMessageBytes)

// eventStream is a stream of events whose messages pass through the wire.
type eventStream struct {
	io.Closer
	*wire
	during *exchange // whose answer it brings; nil for a stream of its own
	in     *bufio.Reader
	data   []byte // of the current event
	out    []byte
	err    error
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
			if json.Compact(&one, s.incoming(s.data, s.during)) == nil {
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
