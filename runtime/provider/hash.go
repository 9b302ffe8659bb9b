package provider

import (
	"cmp"
	"context"
	"hash"
	"io"
	"net/http"

	"github.com/starling-host/starling/eventlog/canon"
)

// BodyHash is filled while the body of a response is read.
type BodyHash struct{ state hash.Hash }

// Sum returns the BLAKE3-256 of the bytes read, or nil if nothing was sent
// through [HashBodies].
func (b *BodyHash) Sum() []byte {
	if b.state == nil {
		return nil
	}
	return b.state.Sum(nil)
}

type bodyHashKey struct{}

// WithBodyHash returns a context whose requests through [HashBodies] fill the BodyHash. If there
// are several attempts, the last one counts.
func WithBodyHash(ctx context.Context) (context.Context, *BodyHash) {
	b := &BodyHash{}
	return context.WithValue(ctx, bodyHashKey{}, b), b
}

// HashBodies returns a client that hashes the bodies of responses as they are read,
// before any SDK reads them, and records the delay for [WithRetryAfter]. Nil means
// [http.DefaultClient].
func HashBodies(c *http.Client) *http.Client {
	c = cmp.Or(c, http.DefaultClient)
	hashing := *c
	hashing.Transport = cmp.Or(hashing.Transport, http.DefaultTransport)
	hashing.Transport = hashingTransport{hashing.Transport}
	return &hashing
}

type hashingTransport struct{ inner http.RoundTripper }

// RoundTrip implements [http.RoundTripper].
func (t hashingTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := t.inner.RoundTrip(req)
	if r, ok := req.Context().Value(retryAfterKey{}).(*RetryAfter); ok && err == nil {
		r.note(resp)
	}
	if b, ok := req.Context().Value(bodyHashKey{}).(*BodyHash); ok && err == nil {
		b.state = canon.NewHash()
		resp.Body = hashingBody{resp.Body, b.state}
	}
	return resp, err
}

type hashingBody struct {
	io.ReadCloser
	state hash.Hash
}

// Read implements [io.Reader].
func (b hashingBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.state.Write(p[:n])
	return n, err
}
