//go:build !js

package mcptool

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/modelcontextprotocol/go-sdk/auth"
	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/internal/await"
	"github.com/starling-host/starling/runtime/egress"
	"github.com/starling-host/starling/runtime/tool"
)

// Client presents the tools of one server. It is safe for concurrent use, and so
// are its tools.
type Client struct {
	presented
	dial func(*wire) mcp.Transport // nil for a transport that can be used only once
	told *tail                     // the end of the server's other output, on standard error and between its messages

	// closing is cancelled when the client is closed, which ends every call in flight.
	closing context.Context
	close   context.CancelFunc

	greeting atomic.Pointer[Greeting] // of the last session

	using chan struct{} // capacity 1: held while a goroutine uses the fields below
	conn  *connection   // nil without a server
}

// connection is one session with the server.
type connection struct {
	line    *line
	wire    *wire
	session *mcp.ClientSession
	gone    chan struct{} // closed when the session has ended
	lost    atomic.Bool   // set by a call that finds the session ended
	stale   chan struct{} // capacity 1: the server has announced a changed list
	relist  atomic.Bool   // the list of tools has changed
	calls   inFlight
}

// New connects to a server over a transport, which must not be used otherwise, and lists
// its tools. Ctx bounds the connecting and the listing, not the life of the connection.
//
// It fails if the server cannot be reached, does not speak the protocol, does not list a name
// of Include, or lists more than 1000 tools or 4 MiB of them. A tool without a name, with a
// duplicate name, or without a JSON Schema of type "object" is left out: see
// [Client.Refused].
func New(ctx context.Context, transport mcp.Transport, o Options) (*Client, error) {
	return open(ctx, func(w *wire) mcp.Transport { return wired{transport, w} }, false, o)
}

// open opens a client. Dial makes the transport of each session.
func open(ctx context.Context, dial func(*wire) mcp.Transport, again bool, o Options) (*Client, error) {
	c := newClient(o)
	err := c.connect(ctx, dial)
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	if again {
		c.dial = dial
	}
	return c, nil
}

// NewCommand starts a program and connects to it over its standard input and output. The
// command must not have been started, and its Stdin, Stdout and Stderr must be nil.
// [Client.Close] ends the program, with the processes that it has started. A program that
// has exited is restarted when one of its tools is called.
func NewCommand(ctx context.Context, cmd *exec.Cmd, o Options) (*Client, error) {
	return open(ctx, func(w *wire) mcp.Transport {
		return program{&exec.Cmd{Path: cmd.Path, Args: cmd.Args, Env: cmd.Env, Dir: cmd.Dir, Err: cmd.Err}, w}
	}, true, o)
}

// NewHTTP connects to an endpoint over streamable HTTP. The operator chooses the endpoint, which may be
// anywhere. Where the server leads, as in a login, package egress decides. If the server has ended the session, the next call
// opens a new one.
func NewHTTP(ctx context.Context, endpoint string, o Options) (*Client, error) {
	if u, err := url.Parse(endpoint); err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, fmt.Errorf("mcptool: %q is not an http or https URL", o.hide(endpoint))
	}
	var origin *egress.Origin
	if o.HTTP == nil {
		origin = egress.Fetch(endpoint)
		o.HTTP = origin
	}
	var oauth auth.OAuthHandler
	if hasKey := slices.ContainsFunc(slices.Collect(maps.Keys(o.Headers)), func(name string) bool { return strings.EqualFold(name, "Authorization") }); o.Tokens != "" && !hasKey {
		a := newAuthorizer(endpoint, o, origin)
		oauth, o.moreSecrets = a, a.secrets
	}
	return open(ctx, func(w *wire) mcp.Transport {
		return &mcp.StreamableClientTransport{Endpoint: endpoint, HTTPClient: &http.Client{Transport: wiredHTTP{w, o}}, OAuthHandler: oauth}
	}, true, o)
}

func newClient(o Options) *Client {
	c := &Client{presented: presented{options: o}, told: &tail{}, using: make(chan struct{}, 1)}
	c.closing, c.close = context.WithCancel(context.Background())
	c.greeting.Store(&Greeting{})
	return c
}

// connect opens a session and lists its tools. The caller has exclusive use of the
// connection. If it fails, Close closes the rest.
func (c *Client) connect(ctx context.Context, dial func(*wire) mcp.Transport) error {
	a := c.options.Assistant
	conn := &connection{gone: make(chan struct{}), stale: make(chan struct{}, 1), calls: inFlight{otherwise: a}}
	if c.options.OneAtATime {
		conn.calls.turn = make(chan struct{}, 1)
	}
	conn.wire = &wire{
		told: c.told, assistant: a, calls: &conn.calls, asked: make(chan struct{}, maxAsked), cut: make(chan struct{}),
		waiting: map[string]*exchange{}, questions: map[string]*question{},
	}
	conn.line = &line{Transport: dial(conn.wire)}
	c.conn = conn
	changed := func() { await.Offer(conn.stale, struct{}{}) }
	client := mcp.NewClient(&mcp.Implementation{Name: cmp.Or(c.options.ClientName, "starling"), Version: cmp.Or(c.options.ClientVersion, "1")}, &mcp.ClientOptions{
		Capabilities:               &mcp.ClientCapabilities{},
		MultiRoundTrip:             &mcp.MultiRoundTripOptions{Disabled: true}, // see conversation
		ToolListChangedHandler:     func(context.Context, *mcp.ToolListChangedRequest) { conn.relist.Store(true); changed() },
		PromptListChangedHandler:   func(context.Context, *mcp.PromptListChangedRequest) { changed() },
		ResourceListChangedHandler: func(context.Context, *mcp.ResourceListChangedRequest) { changed() },
	})
	client.AddReceivingMiddleware(conn.wire.answering)
	var version *mcp.ClientSessionOptions
	if a != nil && a.Version != "" {
		version = &mcp.ClientSessionOptions{ProtocolVersion: a.Version}
	}
	session, err := await.Do(ctx, func() (session *mcp.ClientSession, err error) { // until the line is cut
		defer tool.Recover(&err)
		return client.Connect(ctx, conn.line, version)
	})
	if err != nil {
		close(conn.gone)
		return c.explain("connect", err)
	}
	conn.session = session
	conn.wire.mu.Lock()
	c.greeting.Store(greetingOf(session.InitializeResult().ProtocolVersion, conn.wire.greeting.result))
	conn.wire.mu.Unlock()
	go func() { // ends with the session, which Close ends
		defer close(conn.gone)
		_ = session.Wait()
	}()
	if err := c.list(ctx, conn); err != nil {
		return c.explain("list tools", err)
	}
	go c.follow(conn)
	return nil
}

// end ends the session. The SDK waits for calls, which end when the line is cut, and cancels
// streams that would stay open.
func (c *connection) end() error {
	if c.session != nil {
		go func() { _ = c.session.Close() }()
	}
	return c.line.cut()
}

// explain returns why the session could not be opened, with the server's last output, which
// often has the reason.
func (c *Client) explain(doing string, err error) error {
	if said := c.LastWords(); said != "" {
		return fmt.Errorf("mcptool: %s: %w; the server wrote:\n%s", doing, c.options.clean(err), said)
	}
	if err = c.options.clean(err); errors.As(err, new(*loginError)) {
		return err
	}
	return fmt.Errorf("mcptool: %s: %w", doing, err)
}

// follow lists the tools again when the server announces a change, and passes on announcements
// of changed lists, until the session ends.
func (c *Client) follow(conn *connection) {
	for {
		select {
		case <-conn.gone:
			return
		case <-conn.stale:
		}
		var err error
		if conn.relist.Swap(false) {
			ctx, cancel := context.WithTimeout(c.closing, listTime)
			err = c.list(ctx, conn)
			cancel()
		}
		if err == nil && c.options.Changed != nil {
			c.options.Changed()
		}
		select { // a server may announce a change at every listing
		case <-conn.gone:
			return
		case <-time.After(relistTime):
		}
	}
}

// connected returns the connection, or a new one if the server was lost and can be reached
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
		return c.conn, nil // its calls return the reason
	}
	_ = c.conn.end() // its server is gone
	if err := c.connect(ctx, c.dial); err != nil {
		c.conn.lost.Store(true)
		return nil, errors.Join(err, c.conn.end())
	}
	if c.options.Changed != nil {
		go c.options.Changed()
	}
	return c.conn, nil
}

// LastWords returns the end of the server's other output, on standard error or between its
// messages.
func (c *Client) LastWords() string { return c.options.hide(c.told.String()) }

// Greeting is what a server says of itself when it is connected.
type Greeting struct {
	Version      string                     // of the protocol
	Capabilities map[string]json.RawMessage // as the server wrote them, and so is the next
	Server       json.RawMessage            // its name and version
	Instructions string
}

// greetingOf reads the result of a handshake.
func greetingOf(version string, result json.RawMessage) *Greeting {
	said := canon.Split(result)
	g := &Greeting{Version: version, Capabilities: canon.Split(said["capabilities"]), Server: said["serverInfo"]}
	if g.Server == nil {
		g.Server = canon.Split(said["_meta"])[mcp.MetaKeyServerInfo]
	}
	_ = json.Unmarshal(said["instructions"], &g.Instructions) // the SDK has read it
	return g
}

// Greeting returns what the server said of itself.
func (c *Client) Greeting() Greeting { return *c.greeting.Load() }

// Close ends the calls in flight and the connection. A program has five seconds to exit
// after its standard input is closed, and five more after SIGTERM, before it is killed. The
// error comes from the transport, such as the program's exit code. Close may be called more
// than once.
func (c *Client) Close() error {
	c.close()
	c.using <- struct{}{} // waits for a connecting that was just cancelled
	defer func() { <-c.using }()
	if c.conn == nil {
		return nil
	}
	if err := c.conn.end(); err != nil {
		return fmt.Errorf("mcptool: close: %w", err)
	}
	return nil
}

// within returns a context that also ends when the client is closed, or when the rest of the time for a
// call is over.
func (c *Client) within(ctx context.Context, rest time.Duration) (context.Context, func()) {
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(c.closing, cancel)
	if c.options.Timeout <= 0 {
		return ctx, func() { stop(); cancel() }
	}
	late := fmt.Errorf("no answer within %v: %w", c.options.Timeout, context.DeadlineExceeded)
	ctx, end := context.WithTimeoutCause(ctx, rest, late)
	return ctx, func() { end(); stop(); cancel() }
}

var errClosed = errors.New("the client is closed")

// line is a transport that can be cut. The SDK closes a connection only after
// its calls have ended, and a server that does not read keeps them from ending.
type line struct {
	mcp.Transport

	mu     sync.Mutex     // guards the fields below
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

// cut closes the connection, and any later one. It may be called more than once.
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

// Bounds on a list. Servers have tens of tools, and models cannot read more.
const (
	maxPages     = 100
	maxItems     = 1000
	maxListBytes = 4 << 20
	listTime     = 30 * time.Second
	relistTime   = time.Second // between two lists of tools
)

// list lists the server's tools and presents them.
func (c *Client) list(ctx context.Context, conn *connection) error {
	said, err := conn.pages(ctx, "tools/list")
	if err != nil {
		return err
	}
	var all []Definition
	for i, one := range said {
		d := definition(one)
		d.Exact, d.At = one, i
		all = append(all, d)
	}
	return c.present(c, all)
}

// List returns the items of the list method "resources/list", "resources/templates/list" or
// "prompts/list", as the server wrote them. If the server lacks the method, it returns none.
func (c *Client) List(ctx context.Context, method string) ([]json.RawMessage, error) {
	ctx, release := c.within(ctx, c.options.Timeout)
	defer release()
	var all []json.RawMessage
	conn, err := c.connected(ctx)
	if err == nil {
		all, err = conn.pages(ctx, method)
	}
	if refused, ok := errors.AsType[*jsonrpc.Error](err); ok && refused.Code == jsonrpc.CodeMethodNotFound {
		return []json.RawMessage{}, nil
	}
	if err != nil {
		return nil, c.options.clean(err)
	}
	return all, nil
}

// pages reads all pages of a list.
func (c *connection) pages(ctx context.Context, method string) ([]json.RawMessage, error) {
	all, size, cursor := []json.RawMessage{}, 0, ""
	for range maxPages {
		params := map[string]mcp.Params{
			"tools/list": &mcp.ListToolsParams{Cursor: cursor}, "prompts/list": &mcp.ListPromptsParams{Cursor: cursor},
			"resources/list": &mcp.ListResourcesParams{Cursor: cursor}, "resources/templates/list": &mcp.ListResourceTemplatesParams{Cursor: cursor},
		}[method]
		x := &exchange{}
		raw, _, err := c.exact(ctx, x, params)
		var page struct {
			Tools, Prompts, Resources, ResourceTemplates []json.RawMessage
			NextCursor                                   string
		}
		if err == nil {
			err = json.Unmarshal(raw, &page)
		}
		if err != nil {
			return nil, err
		}
		for _, t := range x.read { // headers that a schema asks for and that HTTP does not take
			if !slices.ContainsFunc(x.kept, func(kept *mcp.Tool) bool { return kept.Name == t.Name }) {
				page.Tools = slices.DeleteFunc(page.Tools, func(raw json.RawMessage) bool { return definition(raw).Name == t.Name })
				c.wire.told.note([]byte("the tool " + t.Name + " is left out: its x-mcp-header is not valid"))
			}
		}
		size += len(raw)
		all = slices.Concat(all, page.Tools, page.Prompts, page.Resources, page.ResourceTemplates)
		switch {
		case len(all) > maxItems || size > maxListBytes:
			return nil, fmt.Errorf("the server has more than %d %s or %d bytes of them", maxItems, strings.TrimSuffix(method, "/list"), maxListBytes)
		case page.NextCursor == "":
			return all, nil
		case page.NextCursor == cursor:
			return nil, errors.New("the server returns the same page twice")
		}
		cursor = page.NextCursor
	}
	return nil, fmt.Errorf("the list has more than %d pages", maxPages)
}

// definition reads a server's definition of a tool member by member, and leaves out members
// that violate the protocol instead of the tool.
func definition(raw json.RawMessage) (d Definition) {
	said := canon.Split(raw) // a tool without a name is refused
	for name, to := range map[string]any{"name": &d.Name, "title": &d.Title, "description": &d.Description} {
		_ = json.Unmarshal(said[name], to)
	}
	d.Schema, d.Output, d.Meta, d.Icons = remade(said["inputSchema"]), remade(said["outputSchema"]), said["_meta"], said["icons"]
	if d.Schema == nil {
		d.Schema = json.RawMessage("null")
	}
	var told map[string]json.RawMessage
	if json.Unmarshal(said["annotations"], &told); told != nil {
		hints := &mcp.ToolAnnotations{}
		for name, value := range told {
			_ = json.Unmarshal(fmt.Appendf(nil, "{%q:%s}", name, value), hints)
		}
		d.Hints, _ = json.Marshal(hints) // strings and booleans cannot fail
	}
	return d
}

// remade returns a schema in the SDK's form, nil for none: pins and logs have this form.
func remade(schema json.RawMessage) json.RawMessage {
	var value any
	if json.Unmarshal(schema, &value) != nil || value == nil {
		return nil
	}
	schema, _ = json.Marshal(value) // it was read as JSON
	return schema
}
