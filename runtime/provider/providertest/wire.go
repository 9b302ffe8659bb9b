package providertest

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/starling-host/starling/runtime/provider"
)

// wireRequest is a sent request.
type wireRequest struct {
	Name   string      `json:"name"`
	Target string      `json:"target"` // method and URI
	Header http.Header `json:"header"`
	Body   any         `json:"body"`
}

// Wire compares an adapter's requests with the requests in a file, which a vendor's
// own SDK has sent for the same input: target, headers and body, whatever the order
// of its members. The file has no headers in which the SDK described itself.
func Wire(t *testing.T, file string, connect func(testing.TB, string, *http.Client) provider.Provider, requests map[string]*provider.Request) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var recorded []wireRequest
	if err := exact(text, &recorded); err != nil {
		t.Fatal(err)
	}
	if len(recorded) != len(requests) {
		t.Errorf("%d requests are recorded, and %d are to be sent", len(recorded), len(requests))
	}
	for _, want := range recorded {
		got := sent(t, connect, requests[want.Name])
		got.Name = want.Name
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-recorded +sent):\n%s", want.Name, diff)
		}
	}
}

// sent returns the one request that an adapter sends.
func sent(t *testing.T, connect func(testing.TB, string, *http.Client) provider.Provider, req *provider.Request) (got wireRequest) {
	t.Helper()
	requests := 0
	_, err := converse(t.Context(), connect(t, memoryURL, &http.Client{Transport: transport(func(r *http.Request) (*http.Response, error) {
		requests++
		body, err := io.ReadAll(r.Body)
		if err == nil {
			err = exact(body, &got.Body)
		}
		if err != nil {
			t.Error(err)
		}
		got.Target, got.Header = r.Method+" "+r.URL.RequestURI(), r.Header
		return &http.Response{StatusCode: http.StatusBadRequest, Header: http.Header{}, Body: http.NoBody, Request: r}, nil
	})}), req)
	if requests != 1 {
		t.Errorf("%d requests: %v", requests, err)
	}
	return got
}

// exact decodes JSON with numbers as written.
func exact(text []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	return d.Decode(into)
}

type transport func(*http.Request) (*http.Response, error)

// RoundTrip implements [http.RoundTripper].
func (t transport) RoundTrip(r *http.Request) (*http.Response, error) { return t(r) }
