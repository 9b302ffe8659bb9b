//go:build !js

package mcptool

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/runtime/tool"
)

// Client presents the tools of one server. It is safe for concurrent use, and so
// are its tools.
type Client struct {
	options     Options
	dial        func() mcp.Transport // nil for a transport that can be used once
	tools       []tool.Tool          // as they were listed
	definitions []Definition         // of the tools, in their order

	// closing ends every call in flight when the client is closed.
	closing context.Context
	close   context.CancelFunc

	using chan struct{} // capacity 1: a goroutine puts something in while it uses what follows
	conn  *connection   // nil without a server
}

// connection is one session with the server.
type connection struct {
	line    *line
	session *mcp.ClientSession
	gone    chan struct{}   // closed when the session has ended
	lost    atomic.Bool     // a call has found that it has ended
	changed map[string]bool // tools that are not what they were in the first session, by their name at the server
}

// New connects to a server over a transport, which must not be used for anything
// else, and lists its tools. Ctx bounds the connecting and the listing, not the
// life of the connection.
//
// It is an error if the server cannot be reached or does not speak the protocol. So it is if
// the server lists a name twice, does not list a name of Include, lists more than 1000 tools
// or 4 MiB of them, or presents a tool without a name or without a JSON Schema of type
// "object". A tool that Exclude leaves out may have any schema.
func New(ctx context.Context, transport mcp.Transport, o Options) (*Client, error) {
	return open(ctx, transport, nil, o)
}

// open opens a client. Dial makes the transport of a later session, if there can be one.
func open(ctx context.Context, first mcp.Transport, dial func() mcp.Transport, o Options) (*Client, error) {
	c := newClient(o)
	c.dial = dial
	definitions, err := c.connect(ctx, first)
	if err == nil {
		err = c.present(definitions)
	}
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

// NewCommand starts a program and connects to it over its standard input and
// output. The command must not have been started, and its Stdin and Stdout must
// be nil. [Client.Close] ends the program. A program that has ended is started again when
// one of its tools is called.
func NewCommand(ctx context.Context, cmd *exec.Cmd, o Options) (*Client, error) {
	dial := func() mcp.Transport {
		again := &exec.Cmd{Path: cmd.Path, Args: cmd.Args, Env: cmd.Env, Dir: cmd.Dir, Stderr: cmd.Stderr, Err: cmd.Err}
		return &mcp.CommandTransport{Command: again}
	}
	return open(ctx, &mcp.CommandTransport{Command: cmd}, dial, o)
}

// NewHTTP connects to an endpoint over streamable HTTP. The operator chooses the endpoint,
// so the connection does not go through package egress. A session that the server has ended
// is followed by another one when a tool is called.
func NewHTTP(ctx context.Context, endpoint string, o Options) (*Client, error) {
	if u, err := url.Parse(endpoint); err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, fmt.Errorf("mcptool: %q is no http or https URL", endpoint)
	}
	dial := func() mcp.Transport {
		return &mcp.StreamableClientTransport{
			Endpoint: endpoint, HTTPClient: &http.Client{Transport: boundedTransport{http.DefaultTransport}},
			DisableStandaloneSSE: true, // what the server might say on its own account is of no use here
		}
	}
	return open(ctx, dial(), dial, o)
}

func newClient(o Options) *Client {
	c := &Client{options: o, using: make(chan struct{}, 1)}
	c.closing, c.close = context.WithCancel(context.Background())
	return c
}

// connect opens a session and lists its tools. It offers the server nothing to call. The
// caller uses the connection alone. If it fails, Close closes what was opened.
func (c *Client) connect(ctx context.Context, transport mcp.Transport) ([]Definition, error) {
	c.conn = &connection{line: &line{Transport: transport}, gone: make(chan struct{}), changed: map[string]bool{}}
	client := mcp.NewClient(&mcp.Implementation{Name: "starling", Version: "1"}, &mcp.ClientOptions{
		Capabilities:   &mcp.ClientCapabilities{},
		MultiRoundTrip: &mcp.MultiRoundTripOptions{Disabled: true},
	})
	session, err := await(ctx, func() (*mcp.ClientSession, error) { return client.Connect(ctx, c.conn.line, nil) })
	if err != nil {
		close(c.conn.gone)
		return nil, fmt.Errorf("mcptool: connect: %w", err)
	}
	c.conn.session = session
	go func(gone chan struct{}) { // ends with the session, which Close ends
		defer close(gone)
		_ = session.Wait()
	}(c.conn.gone)
	definitions, err := list(ctx, session)
	if err != nil {
		return nil, fmt.Errorf("mcptool: list tools: %w", err)
	}
	return definitions, nil
}

// connected returns the connection, or a new one if the server has gone and can be reached
// again.
func (c *Client) connected(ctx context.Context) (*connection, error) {
	select {
	case c.using <- struct{}{}:
		defer func() { <-c.using }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	if c.conn == nil {
		return nil, errOffline
	}
	select {
	case <-c.conn.gone:
		c.conn.lost.Store(true)
	default:
	}
	if !c.conn.lost.Load() || c.dial == nil || c.closing.Err() != nil {
		return c.conn, nil // whose calls say why they fail
	}
	_ = c.conn.line.cut() // its server is gone
	definitions, err := c.connect(ctx, c.dial())
	if err != nil {
		return nil, errors.Join(err, c.conn.line.cut())
	}
	now := make(map[string]canon.Hash, len(definitions))
	for _, d := range definitions {
		now[d.Name] = d.Hash()
	}
	for _, d := range c.definitions {
		c.conn.changed[d.Name] = now[d.Name] != d.Hash()
	}
	return c.conn, nil
}

// Tools returns the tools that were listed when the client connected, in the order of their
// names.
func (c *Client) Tools() []tool.Tool { return c.tools }

// Definitions returns what the server said of the tools, in their order.
func (c *Client) Definitions() []Definition { return c.definitions }

// Close ends the calls in flight and the connection. A program gets five seconds
// to end after its standard input was closed, and five more after SIGTERM, before
// it is killed. The error is that of the transport, such as the program's exit
// code. Close may be called more than once.
func (c *Client) Close() error {
	c.close()
	c.using <- struct{}{} // after a connecting that has just been ended
	defer func() { <-c.using }()
	if c.conn == nil {
		return nil
	}
	if err := c.conn.line.cut(); err != nil {
		return fmt.Errorf("mcptool: close: %w", err)
	}
	return nil
}

// within returns a context that also ends when the client is closed or the time
// for a call is over.
func (c *Client) within(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(c.closing, cancel)
	if c.options.Timeout <= 0 {
		return ctx, func() { stop(); cancel() }
	}
	late := fmt.Errorf("no answer within %v: %w", c.options.Timeout, context.DeadlineExceeded)
	ctx, end := context.WithTimeoutCause(ctx, c.options.Timeout, late)
	return ctx, func() { end(); stop(); cancel() }
}

var errClosed = errors.New("the client is closed")

// line is a transport that can be cut. The SDK closes a connection only after
// its calls have ended, and a server that does not read keeps them from ending.
type line struct {
	mcp.Transport

	mu     sync.Mutex     // guards what follows
	conn   mcp.Connection // nil before Connect
	closed bool
}

// Connect implements [mcp.Transport].
func (l *line) Connect(ctx context.Context) (mcp.Connection, error) {
	conn, err := l.Transport.Connect(ctx)
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	l.conn = conn
	closed := l.closed
	l.mu.Unlock()
	if closed {
		return nil, errors.Join(errClosed, conn.Close())
	}
	return conn, nil
}

// cut closes the connection that is there, and the one that is yet to come. It
// may be called more than once.
func (l *line) cut() error {
	l.mu.Lock()
	l.closed = true
	conn := l.conn
	l.mu.Unlock()
	if conn == nil {
		return nil
	}
	return conn.Close()
}

// await returns when fn does or when ctx ends, for functions that may wait
// longer than ctx allows. Those come back when the line is cut.
func await[T any](ctx context.Context, fn func() (T, error)) (T, error) {
	type outcome struct {
		value T
		err   error
	}
	done := make(chan outcome, 1)
	go func() {
		var o outcome
		defer func() { done <- o }()
		defer tool.Recover(&o.err)
		o.value, o.err = fn()
	}()
	select {
	case o := <-done:
		return o.value, o.err
	case <-ctx.Done():
		var none T
		return none, context.Cause(ctx)
	}
}

// maxBodyBytes bounds the body of an HTTP response that is no stream of events.
// It is what the SDK allows a line and an event to have.
const maxBodyBytes = mcp.DefaultMaxLineLength

type boundedTransport struct{ inner http.RoundTripper }

// RoundTrip implements [http.RoundTripper].
func (t boundedTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := t.inner.RoundTrip(req)
	if err == nil && !strings.HasPrefix(resp.Header.Get("Content-Type"), "text/event-stream") {
		resp.Body = &boundedBody{resp.Body, maxBodyBytes}
	}
	return resp, err
}

type boundedBody struct {
	io.ReadCloser
	left int
}

// Read implements [io.Reader].
func (b *boundedBody) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, fmt.Errorf("the body of the response has more than %d bytes", maxBodyBytes)
	}
	n, err := b.ReadCloser.Read(p[:min(len(p), b.left)])
	b.left -= n
	return n, err
}

// defaultMaxOutputBytes is what a zero of Options.MaxOutputBytes means.
const defaultMaxOutputBytes = 1 << 20

// What a list may have. A server has tens of tools, and a model can read no more.
const (
	maxPages     = 100
	maxTools     = 1000
	maxListBytes = 4 << 20
)

// list asks the server for all pages of its list.
func list(ctx context.Context, session *mcp.ClientSession) ([]Definition, error) {
	var all []Definition
	params := &mcp.ListToolsParams{}
	for range maxPages {
		page, err := await(ctx, func() (*mcp.ListToolsResult, error) { return session.ListTools(ctx, params) })
		if err != nil {
			return nil, err
		}
		if all, err = appendPage(all, page.Tools); err != nil {
			return nil, err
		}
		if page.NextCursor == "" {
			return all, nil
		}
		if page.NextCursor == params.Cursor {
			return nil, errors.New("the server says that the next page is the one that it has just sent")
		}
		params = &mcp.ListToolsParams{Cursor: page.NextCursor}
	}
	return nil, fmt.Errorf("the server has more than %d pages of them", maxPages)
}

func appendPage(all []Definition, page []*mcp.Tool) ([]Definition, error) {
	for _, t := range page {
		d := Definition{Name: t.Name, Title: t.Title, Description: t.Description}
		for part, value := range map[*json.RawMessage]any{&d.Schema: t.InputSchema, &d.Output: t.OutputSchema, &d.Hints: t.Annotations} {
			doc, err := json.Marshal(value)
			if err != nil {
				return nil, fmt.Errorf("tool %q: %w", t.Name, err)
			}
			if *part = doc; string(doc) == "null" && part != &d.Schema {
				*part = nil
			}
		}
		all = append(all, d)
	}
	size := 0
	for _, d := range all {
		size += len(d.Name) + len(d.Title) + len(d.Description) + len(d.Schema) + len(d.Output) + len(d.Hints)
	}
	if len(all) > maxTools || size > maxListBytes {
		return nil, fmt.Errorf("the server has more than %d tools or %d bytes of them", maxTools, maxListBytes)
	}
	return all, nil
}
