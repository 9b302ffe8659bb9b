package providertest

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/runtime/provider"
)

// wireRequest is a sent request.
type wireRequest struct {
	Name   string      `json:"name"`
	Target string      `json:"target"` // method and URI
	Header http.Header `json:"header"`
	Body   any         `json:"body"`
}

// Wire compares an adapter's requests with the requests in a file, which a vendor's own SDK sent
// for the same input: target, headers and body, in any order of members. The file leaves out the
// headers that describe the SDK.
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
	_, err := Converse(t.Context(), connect(t, memoryURL, &http.Client{Transport: transport(func(r *http.Request) (*http.Response, error) {
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

// Sent returns the request that a provider makes of req, as a server sees it that answers with
// the body.
func Sent(t testing.TB, req *provider.Request, contentType, body string, connect func(url string) (provider.Provider, error)) (*http.Request, map[string]any, error) {
	t.Helper()
	var seen *http.Request
	doc := map[string]any{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen = r
		if err := json.NewDecoder(r.Body).Decode(&doc); err != nil {
			t.Error(err)
		}
		w.Header().Set("Content-Type", contentType)
		_, _ = io.WriteString(w, body)
	}))
	defer server.Close()
	p, err := connect(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	stream, err := p.Stream(t.Context(), req)
	if err != nil {
		return seen, doc, err
	}
	return seen, doc, stream.Close()
}

// Question is a short request with options.
func Question(params map[string]any) *provider.Request {
	req := &provider.Request{Model: "m", Messages: []provider.Message{{Role: provider.RoleUser, Content: "Hello?"}}}
	if params != nil {
		raw, err := canon.Marshal(params)
		if err != nil {
			panic(err)
		}
		req.Params = raw
	}
	return req
}
