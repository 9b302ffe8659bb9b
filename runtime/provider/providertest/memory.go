package providertest

import (
	"cmp"
	"context"
	"errors"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
)

// memoryURL is the address of the server in memory. Nothing resolves it.
const memoryURL = "http://provider.invalid"

// memory is a server without a network.
type memory struct {
	status int // 0 means 200
	header http.Header
	reply  *reply // to the next request

	requests atomic.Int64
	open     atomic.Int64 // bodies that have not been closed
}

// reply describes how a body is read: one piece of first bytes, unless that is 0, and
// then pieces of size bytes, unless that is 0.
type reply struct {
	body        []byte
	first, size int
	hangs       bool  // at the end, until the reader stops it
	end         error // nil means io.EOF
	lastWithEnd bool  // the last piece comes together with the end
}

// RoundTrip implements [http.RoundTripper].
func (m *memory) RoundTrip(req *http.Request) (*http.Response, error) {
	m.requests.Add(1)
	if req.Body != nil {
		defer req.Body.Close()
		if _, err := io.Copy(io.Discard, req.Body); err != nil {
			return nil, err
		}
	}
	if err := req.Context().Err(); err != nil {
		return nil, err
	}
	m.open.Add(1)
	status := cmp.Or(m.status, http.StatusOK)
	return &http.Response{
		Status: http.StatusText(status), StatusCode: status, Header: m.header.Clone(), ContentLength: -1,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Request: req,
		Body: &body{reply: *m.reply, ctx: req.Context(), closed: make(chan struct{}), open: &m.open},
	}, nil
}

type body struct {
	reply
	ctx    context.Context
	closed chan struct{}
	once   sync.Once
	open   *atomic.Int64
}

var errClosed = errors.New("providertest: read from a closed body")

// Read implements [io.Reader]. Like the body of a real response it fails once
// the context of the request is done.
func (b *body) Read(p []byte) (int, error) {
	select {
	case <-b.ctx.Done():
		return 0, b.ctx.Err()
	case <-b.closed:
		return 0, errClosed
	default:
	}
	if len(b.body) == 0 {
		return 0, b.atEnd()
	}
	n := copy(p, b.body[:b.piece()])
	b.first = max(0, b.first-n)
	b.body = b.body[n:]
	if len(b.body) == 0 && b.lastWithEnd {
		return n, b.atEnd()
	}
	return n, nil
}

func (b *body) piece() int {
	n := b.size
	if b.first > 0 {
		n = b.first
	}
	if n == 0 || n > len(b.body) {
		return len(b.body)
	}
	return n
}

func (b *body) atEnd() error {
	if b.hangs {
		select {
		case <-b.ctx.Done():
			return b.ctx.Err()
		case <-b.closed:
			return errClosed
		}
	}
	if b.end != nil {
		return b.end
	}
	return io.EOF
}

// Close implements [io.Closer].
func (b *body) Close() error {
	b.once.Do(func() {
		close(b.closed)
		b.open.Add(-1)
	})
	return nil
}
