package mcptool

import (
	"context"
	"errors"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/starling-host/starling/runtime/tool"
)

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
