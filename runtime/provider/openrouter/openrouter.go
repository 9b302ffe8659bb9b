// Package openrouter talks to OpenRouter, one address with the models of many
// vendors. The protocol is that of package openai, with two headers that name the
// application in OpenRouter's lists. Its options, such as provider, models or
// reasoning, are in [provider.Request.Params].
package openrouter

import (
	"cmp"
	"errors"
	"net/http"

	"github.com/starling-host/starling/runtime/provider"
	"github.com/starling-host/starling/runtime/provider/openai"
)

const defaultBaseURL = "https://openrouter.ai/api/v1"

// Option changes what [New] makes. Of two that set the same, the later counts.
type Option func(*settings)

type settings struct {
	key, base, referer, title, id string
	client                        *http.Client
}

// WithAPIKey sets the key, which OpenRouter itself needs.
func WithAPIKey(key string) Option { return func(s *settings) { s.key = key } }

// WithBaseURL sets the address of a gateway. The default, and "", is
// "https://openrouter.ai/api/v1".
func WithBaseURL(url string) Option { return func(s *settings) { s.base = url } }

// WithHTTPReferer sets the header HTTP-Referer: the address of the application.
func WithHTTPReferer(url string) Option { return func(s *settings) { s.referer = url } }

// WithXTitle sets the header X-Title: the name of the application.
func WithXTitle(title string) Option { return func(s *settings) { s.title = title } }

// WithProviderID sets the id that the log names the provider by. The default, and
// "", is "openrouter".
func WithProviderID(id string) Option { return func(s *settings) { s.id = id } }

// WithHTTPClient sets the client for all requests. The default, and nil, is
// [http.DefaultClient].
func WithHTTPClient(c *http.Client) Option { return func(s *settings) { s.client = c } }

// New returns a Provider. It fails without a key, unless another address than
// OpenRouter's is set, and when an option cannot be right.
func New(opts ...Option) (provider.Provider, error) {
	var s settings
	for _, o := range opts {
		o(&s)
	}
	if s.key == "" && s.base == "" {
		return nil, errors.New("openrouter: no API key: openrouter.ai needs WithAPIKey")
	}
	return openai.New(
		openai.OpenRouter(cmp.Or(s.base, defaultBaseURL)),
		openai.WithAPIKey(s.key),
		openai.WithProviderID(cmp.Or(s.id, "openrouter")),
		openai.WithHTTPClient(s.attributed()),
	)
}

// attributed returns the client with the two headers.
func (s *settings) attributed() *http.Client {
	c := *cmp.Or(s.client, http.DefaultClient)
	h := http.Header{}
	if s.referer != "" {
		h.Set("HTTP-Referer", s.referer)
	}
	if s.title != "" {
		h.Set("X-Title", s.title)
	}
	c.Transport = transport{inner: c.Transport, header: h}
	return &c
}

// transport adds headers to requests.
type transport struct {
	inner  http.RoundTripper // nil means http.DefaultTransport
	header http.Header
}

// RoundTrip implements [http.RoundTripper].
func (t transport) RoundTrip(req *http.Request) (*http.Response, error) {
	req = req.Clone(req.Context())
	for name, values := range t.header {
		req.Header[name] = values
	}
	if t.inner == nil {
		return http.DefaultTransport.RoundTrip(req)
	}
	return t.inner.RoundTrip(req)
}
