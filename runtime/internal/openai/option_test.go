package openai_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/starling-host/starling/runtime/internal/converse"
	"github.com/starling-host/starling/runtime/internal/openai"
	"github.com/starling-host/starling/runtime/provider"
	"github.com/starling-host/starling/runtime/provider/providertest"
)

// answering is a client whose requests are all answered the same way.
type answering struct {
	status int
	header http.Header
	body   string

	got  *http.Request
	sent []byte
}

func (a *answering) RoundTrip(req *http.Request) (*http.Response, error) {
	a.got = req
	a.sent, _ = io.ReadAll(req.Body)
	return &http.Response{StatusCode: a.status, Header: a.header, Body: io.NopCloser(strings.NewReader(a.body)), Request: req}, nil
}

// ask returns the HTTP request for a request, and the error for the answer 400.
func ask(t *testing.T, req *provider.Request, s openai.Server, c converse.Config) (*http.Request, map[string]any, error) {
	t.Helper()
	server := &answering{status: 400, body: `{"error":"no"}`}
	c.HTTP = &http.Client{Transport: server}
	p, err := s.New(c)
	if err != nil {
		t.Fatal(err)
	}
	_, err = p.Stream(t.Context(), req)
	if server.got == nil {
		return nil, nil, err
	}
	var body map[string]any
	dec := json.NewDecoder(bytes.NewReader(server.sent))
	if err := dec.Decode(&body); err != nil {
		t.Fatal(err)
	}
	return server.got, body, err
}

func hello(model string) *provider.Request {
	return &provider.Request{Model: model, MaxOutputTokens: 9, Messages: []provider.Message{{Role: provider.RoleUser, Content: "Hello"}}}
}

func TestServers(t *testing.T) {
	for _, tc := range []struct {
		name    string
		server  openai.Server
		config  converse.Config
		url     string
		info    provider.Info
		limit   string // the field with MaxOutputTokens
		counted bool
	}{
		{"OpenAI", openai.OpenAI, converse.Config{APIKey: "k"}, "https://api.openai.com/v1/chat/completions", provider.Info{ID: "openai", APIVersion: "v1"}, "max_completion_tokens", true},
		{"another version", openai.OpenAI, converse.Config{APIKey: "k", APIVersion: "v2"}, "https://api.openai.com/v2/chat/completions", provider.Info{ID: "openai", APIVersion: "v2"}, "max_completion_tokens", true},
		{"a version in place of the one in the URL", openai.OpenAI, converse.Config{BaseURL: "http://h/api/v1/", APIVersion: "v3"}, "http://h/api/v3/chat/completions", provider.Info{ID: "openai", APIVersion: "v3"}, "max_tokens", true},
		{"a host", openai.OpenAI, converse.Config{BaseURL: "http://h:1"}, "http://h:1/v1/chat/completions", provider.Info{ID: "openai", APIVersion: "v1"}, "max_tokens", true},
		{"a path without a version", openai.OpenAI, converse.Config{BaseURL: "http://h/gateway"}, "http://h/gateway/chat/completions", provider.Info{ID: "openai", APIVersion: "v1"}, "max_tokens", true},
		{"a version inside", openai.OpenAI, converse.Config{BaseURL: "http://h/v1beta/openai/"}, "http://h/v1beta/openai/chat/completions", provider.Info{ID: "openai", APIVersion: "v1"}, "max_tokens", true},
		{"Groq by its address", openai.OpenAI, converse.Config{BaseURL: "https://api.groq.com/openai/v1", APIKey: "k", ID: "groq"}, "https://api.groq.com/openai/v1/chat/completions", provider.Info{ID: "groq", APIVersion: "v1"}, "max_completion_tokens", true},
		{"Groq", openai.Groq, converse.Config{APIKey: "k"}, "https://api.groq.com/openai/v1/chat/completions", provider.Info{ID: "groq", APIVersion: "v1"}, "max_completion_tokens", true},
		{"Together", openai.Together, converse.Config{APIKey: "k"}, "https://api.together.xyz/v1/chat/completions", provider.Info{ID: "together", APIVersion: "v1"}, "max_tokens", true},
		{"Ollama", openai.Ollama, converse.Config{}, "http://localhost:11434/v1/chat/completions", provider.Info{ID: "ollama", APIVersion: "v1"}, "max_tokens", true},
		{"vLLM", openai.VLLM, converse.Config{BaseURL: "http://gpu:8000"}, "http://gpu:8000/v1/chat/completions", provider.Info{ID: "vllm", APIVersion: "v1"}, "max_tokens", true},
		{"Azure", openai.Azure, converse.Config{BaseURL: "https://r.openai.azure.com/", APIVersion: "2024-10-21", APIKey: "k"}, "https://r.openai.azure.com/openai/deployments/a%2Fb%20c/chat/completions?api-version=2024-10-21", provider.Info{ID: "azure", APIVersion: "2024-10-21"}, "max_completion_tokens", true},
		{"Azure behind a gateway", openai.Azure, converse.Config{BaseURL: "https://gateway/openai", APIVersion: "2025-01-01-preview", APIKey: "k"}, "https://gateway/openai/deployments/a%2Fb%20c/chat/completions?api-version=2025-01-01-preview", provider.Info{ID: "azure", APIVersion: "2025-01-01-preview"}, "max_completion_tokens", true},
		{"Azure by its address, an old version", openai.OpenAI, converse.Config{BaseURL: "https://r.openai.azure.com/openai", APIVersion: "2024-08-01-preview", APIKey: "k"}, "https://r.openai.azure.com/openai/deployments/a%2Fb%20c/chat/completions?api-version=2024-08-01-preview", provider.Info{ID: "openai", APIVersion: "2024-08-01-preview"}, "max_tokens", false},
		{"Azure's version 1", openai.Azure, converse.Config{BaseURL: "https://r.openai.azure.com", APIVersion: "", APIKey: "k"}, "https://r.openai.azure.com/openai/v1/chat/completions", provider.Info{ID: "azure", APIVersion: "v1"}, "max_completion_tokens", true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p, err := tc.server.New(tc.config)
			if err != nil || p.Info() != tc.info {
				t.Fatalf("got %+v, %v, want %+v", p.Info(), err, tc.info)
			}
			req, body, _ := ask(t, hello("a/b c"), tc.server, tc.config)
			if got := req.URL.String(); got != tc.url {
				t.Errorf("got  %s\nwant %s", got, tc.url)
			}
			if _, counted := body["stream_options"]; body[tc.limit] != 9.0 || counted != tc.counted {
				t.Errorf("got the body %v, want the limit in %s and counts %v", body, tc.limit, tc.counted)
			}
		})
	}
}

func TestKeys(t *testing.T) {
	for _, tc := range []struct {
		name                  string
		server                openai.Server
		config                converse.Config
		authorization, apiKey string
	}{
		{"bearer", openai.OpenAI, converse.Config{APIKey: "k"}, "Bearer k", ""},
		{"azure", openai.Azure, converse.Config{APIKey: "k", BaseURL: "https://r.openai.azure.com", APIVersion: "v1"}, "", "k"},
		{"none", openai.Ollama, converse.Config{}, "", ""},
	} {
		req, _, _ := ask(t, hello("m"), tc.server, tc.config)
		if a, k := req.Header.Get("Authorization"), req.Header.Get("Api-Key"); a != tc.authorization || k != tc.apiKey {
			t.Errorf("%s: got %q and %q", tc.name, a, k)
		}
	}
}

func TestNewRefuses(t *testing.T) {
	for _, tc := range []struct {
		name, want string
		config     converse.Config
	}{
		{"no key for OpenAI", "no API key", converse.Config{}},
		{"no key for OpenAI by its address", "no API key", converse.Config{BaseURL: "https://api.openai.com:443/v1"}},
		{"the end of a line in the key", "white space", converse.Config{APIKey: "k\n"}},
		{"no scheme", "https://host/v1", converse.Config{BaseURL: "localhost:11434/v1"}},
		{"no host", "https://host/v1", converse.Config{BaseURL: "http:///v1"}},
		{"a query", "https://host/v1", converse.Config{BaseURL: "http://h/v1?a=b"}},
		{"a password", "xxxxx", converse.Config{BaseURL: "http://u:geheim@h/v1"}},
		{"not a URL", "base URL", converse.Config{BaseURL: "http://u:geheim@h:x"}},
	} {
		_, err := openai.OpenAI.New(tc.config)
		if err == nil || !strings.Contains(err.Error(), tc.want) || strings.Contains(err.Error(), "geheim") {
			t.Errorf("%s: got %v, want %q in it", tc.name, err, tc.want)
		}
	}
}

// TestRedirection checks that neither the prompt nor the key goes where a server
// points to.
func TestRedirection(t *testing.T) {
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("the redirection was followed") }))
	defer elsewhere.Close()
	server := httptest.NewServer(http.RedirectHandler(elsewhere.URL, http.StatusTemporaryRedirect))
	defer server.Close()
	p, err := openai.Azure.New(converse.Config{APIKey: "k", BaseURL: server.URL, APIVersion: "v1"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Stream(t.Context(), hello("m")); err == nil || !strings.Contains(err.Error(), "status 307") || provider.Transient(err) {
		t.Errorf("got %v", err)
	}
}

// stream returns the chunks of a body of events.
func stream(ctx context.Context, req *provider.Request, body string) ([]provider.StreamChunk, error) {
	server := &answering{status: 200, header: http.Header{"Content-Type": {"text/event-stream"}}, body: body}
	p, err := openai.Ollama.New(converse.Config{HTTP: &http.Client{Transport: server}})
	if err != nil {
		return nil, err
	}
	return providertest.Chunks(ctx, p, req)
}

func expect(t *testing.T, got, want any) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
