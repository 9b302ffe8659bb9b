package mcptool

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os/exec"
	"slices"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/starling-host/starling/runtime/tool"
)

// Client presents the tools of one server. It is safe for concurrent use, and so
// are its tools.
type Client struct {
	config  config
	session *mcp.ClientSession // nil without a server
	line    *line              // nil without a server

	// closing ends every call in flight when the client is closed.
	closing context.Context
	close   context.CancelFunc

	// mu guards what was listed last.
	mu          sync.Mutex
	definitions []Definition
	tools       []tool.Tool
}

// New connects to a server over a transport, which must not be used for anything
// else, and lists its tools. Ctx bounds the connecting and the listing, not the
// life of the connection.
//
// It is an error if the server cannot be reached or does not speak the protocol,
// and if its list cannot be presented: see [Client.RefreshTools].
func New(ctx context.Context, transport mcp.Transport, opts ...Option) (*Client, error) {
	if transport == nil {
		return nil, errors.New("mcptool: the transport is nil")
	}
	c := newClient(opts)
	c.line = &line{Transport: transport}
	if err := c.connect(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("mcptool: connect: %w", err), c.Close())
	}
	if _, err := c.RefreshTools(ctx); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

// NewCommand starts a program and connects to it over its standard input and
// output. The command must not have been started, and its Stdin and Stdout must
// be nil. [Client.Close] ends the program.
func NewCommand(ctx context.Context, cmd *exec.Cmd, opts ...Option) (*Client, error) {
	if cmd == nil {
		return nil, errors.New("mcptool: the command is nil")
	}
	return New(ctx, &mcp.CommandTransport{Command: cmd}, opts...)
}

// NewHTTP connects to an endpoint over streamable HTTP. A nil client means one
// with Go's defaults. The operator chooses the endpoint, so the connection does
// not go through package egress; credentials belong into the client's transport.
func NewHTTP(ctx context.Context, endpoint string, client *http.Client, opts ...Option) (*Client, error) {
	if u, err := url.Parse(endpoint); err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, fmt.Errorf("mcptool: %q is no http or https URL", endpoint)
	}
	// Nothing that the server might say on its own account is of use here.
	const onlyAnswers = true
	return New(ctx, &mcp.StreamableClientTransport{
		Endpoint: endpoint, HTTPClient: bounded(client), DisableStandaloneSSE: onlyAnswers,
	}, opts...)
}

// Offline presents tools that were listed before, with the same options, where
// their server does not exist. They are for replaying a run; executed in a live
// run, each of them fails. It is an error if the definitions cannot be presented.
func Offline(definitions []Definition, opts ...Option) (*Client, error) {
	c := newClient(opts)
	if err := c.present(definitions); err != nil {
		return nil, err
	}
	return c, nil
}

func newClient(opts []Option) *Client {
	c := &Client{config: newConfig(opts)}
	c.closing, c.close = context.WithCancel(context.Background())
	return c
}

// connect opens the session. It offers the server nothing to call.
func (c *Client) connect(ctx context.Context) (err error) {
	client := mcp.NewClient(&c.config.info, &mcp.ClientOptions{
		Capabilities:   &mcp.ClientCapabilities{},
		MultiRoundTrip: &mcp.MultiRoundTripOptions{Disabled: true},
	})
	c.session, err = await(ctx, func() (*mcp.ClientSession, error) { return client.Connect(ctx, c.line, nil) })
	return err
}

// Tools returns the tools that were listed last, when the client connected or
// when [Client.RefreshTools] was called, in the order of their names. It does not
// ask the server and does not fail; context and error are there for the day
// when it has to.
func (c *Client) Tools(context.Context) ([]tool.Tool, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.tools), nil
}

// Definitions returns what the server said about its tools, before any option
// was applied. See [Offline].
func (c *Client) Definitions() []Definition {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.definitions)
}

// RefreshTools lists the tools again and returns them. A server may declare for
// how long a list holds; within that time the answer may be the one of before.
// Tools that were returned earlier stay as they are, and fail if the server does
// not have them any more.
//
// It is an error, and the list of before stays, if the server lists a name twice,
// does not list a name of [WithIncludeTools], lists more than 1000 tools or 4 MiB
// of them, or presents a tool without a name or without a JSON Schema of type
// "object". A tool that [WithExcludeTools] leaves out may have any schema.
func (c *Client) RefreshTools(ctx context.Context) ([]tool.Tool, error) {
	if c.session == nil {
		return nil, fmt.Errorf("mcptool: list tools: %w", errOffline)
	}
	definitions, err := c.list(ctx)
	if err != nil {
		return nil, fmt.Errorf("mcptool: list tools: %w", err)
	}
	if err := c.present(definitions); err != nil {
		return nil, err
	}
	return c.Tools(ctx)
}

// Close ends the calls in flight and the connection. A program gets five seconds
// to end after its standard input was closed, and five more after SIGTERM, before
// it is killed. The error is that of the transport, such as the program's exit
// code. Close may be called more than once.
func (c *Client) Close() error {
	c.close()
	if c.line == nil {
		return nil
	}
	if err := c.line.cut(); err != nil {
		return fmt.Errorf("mcptool: close: %w", err)
	}
	return nil
}

// within returns a context that also ends when the client is closed or the time
// for a call is over.
func (c *Client) within(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(c.closing, cancel)
	if c.config.callTimeout <= 0 {
		return ctx, func() { stop(); cancel() }
	}
	late := fmt.Errorf("no answer within %v: %w", c.config.callTimeout, context.DeadlineExceeded)
	ctx, end := context.WithTimeoutCause(ctx, c.config.callTimeout, late)
	return ctx, func() { end(); stop(); cancel() }
}
