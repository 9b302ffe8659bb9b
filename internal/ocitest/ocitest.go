// Package ocitest starts OCI registries for tests.
package ocitest

import (
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/registry"
)

// Registry starts an OCI registry on this machine until the test ends, and returns its HOST:PORT.
// Wrap, unless it is nil, is between the registry and its clients.
func Registry(t testing.TB, wrap func(http.Handler) http.Handler) string {
	t.Helper()
	s := httptest.NewServer(NewRegistry(wrap))
	t.Cleanup(s.Close)
	return strings.TrimPrefix(s.URL, "http://")
}

// NewRegistry returns an OCI registry in memory.
func NewRegistry(wrap func(http.Handler) http.Handler) http.Handler {
	h := registry.New(registry.Logger(log.New(io.Discard, "", 0)), registry.WithReferrersSupport(true))
	if wrap != nil {
		h = wrap(h)
	}
	return h
}
