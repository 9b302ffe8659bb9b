package mcptool

import (
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// maxBodyBytes bounds the body of an HTTP response that is no stream of events.
// It is what the SDK allows a line and an event to have.
const maxBodyBytes = mcp.DefaultMaxLineLength

// bounded returns a client that reads no longer bodies. Nil means one with Go's
// defaults.
func bounded(c *http.Client) *http.Client {
	if c == nil {
		c = &http.Client{}
	}
	copied := *c
	if copied.Transport == nil {
		copied.Transport = http.DefaultTransport
	}
	copied.Transport = boundedTransport{copied.Transport}
	return &copied
}

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
