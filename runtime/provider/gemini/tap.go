package gemini

import (
	"bytes"
	"context"
	"io"
	"mime"
	"net/http"

	"github.com/starling-host/starling/runtime/provider/internal/converse"
	"github.com/starling-host/starling/runtime/provider/internal/sse"
)

// maxErrorBody bounds what is read of a response that is an error.
const maxErrorBody = 64 << 10

// tap stands between a response and the SDK. It hands on whole events, one for
// each that the SDK reads, and keeps to itself what the SDK would print to the
// standard logger.
type tap struct {
	status int // 0 before the response
	body   io.ReadCloser
	events *sse.Reader

	data []byte // of the event that the SDK is at
	rest []byte // of that, as it is still to be read
	err  error  // how the events ended, or nil
}

type tapKey struct{}

// context returns a context in which a request is tapped.
func (t *tap) context(ctx context.Context) context.Context {
	return context.WithValue(ctx, tapKey{}, t)
}

// tapped returns a client that looks for a tap in the context of a request.
func tapped(c *http.Client) *http.Client {
	copied := *c
	copied.Transport = tapTransport{c.Transport}
	return &copied
}

type tapTransport struct{ inner http.RoundTripper }

// RoundTrip implements [http.RoundTripper].
func (t tapTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := t.inner.RoundTrip(req)
	if tap, ok := req.Context().Value(tapKey{}).(*tap); ok && err == nil {
		err = tap.attach(resp)
	}
	if err != nil {
		return nil, err
	}
	return resp, nil
}

// attach puts the tap into the place of the body.
func (t *tap) attach(resp *http.Response) error {
	t.status, t.body = resp.StatusCode, resp.Body
	if t.status != http.StatusOK {
		resp.Body = &bounded{io.LimitReader(t.body, maxErrorBody), t.body}
		return nil
	}
	if media, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type")); media != "text/event-stream" {
		t.body.Close()
		return converse.Malformed("its type is %q", media)
	}
	t.events = sse.NewReader(t.body)
	resp.Body = t
	return nil
}

type bounded struct {
	io.Reader
	io.Closer
}

// Read implements [io.Reader].
func (t *tap) Read(p []byte) (int, error) {
	if len(t.rest) == 0 && t.err == nil {
		t.err = t.next()
	}
	if len(t.rest) == 0 {
		return 0, io.EOF
	}
	n := copy(p, t.rest)
	t.rest = t.rest[n:]
	return n, nil
}

// next goes on to the next event.
func (t *tap) next() error {
	ev, err := t.events.Next()
	if err != nil {
		return err
	}
	t.data = bytes.ReplaceAll(ev.Data, []byte("\n"), []byte(" ")) // JSON allows either
	t.rest = append(append([]byte("data: "), t.data...), "\n\n"...)
	return nil
}

// Close implements [io.Closer]. There is nothing left that it could say.
func (t *tap) Close() error {
	t.body.Close()
	return nil
}
