package anthropic

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/starling-host/starling/runtime/provider"
	"github.com/starling-host/starling/runtime/provider/internal/converse"
)

// Option configures [New].
type Option func(*config)

type config struct {
	key, baseURL string
	info         provider.Info
	client       *http.Client
}

// WithAPIKey sets the key. It is required.
func WithAPIKey(key string) Option { return func(c *config) { c.key = key } }

// WithBaseURL sets where the API is, for proxies and gateways: what comes before
// /v1/messages. The default is https://api.anthropic.com.
func WithBaseURL(url string) Option { return func(c *config) { c.baseURL = url } }

// WithAPIVersion sets the header anthropic-version. The default is 2023-06-01.
func WithAPIVersion(version string) Option { return func(c *config) { c.info.APIVersion = version } }

// WithProviderID sets the ID of the provider in the log. The default is
// "anthropic".
func WithProviderID(id string) Option { return func(c *config) { c.info.ID = id } }

// WithHTTPClient sets the client. The default is [http.DefaultClient]. Redirections are
// followed only by a client that has a CheckRedirect.
func WithHTTPClient(client *http.Client) Option { return func(c *config) { c.client = client } }

// client implements [provider.Capabler].
type client struct {
	info provider.Info
	url  string
	key  string
	api  converse.API
}

// New returns the provider. It fails without a key, or with a base URL that is
// not one.
func New(opts ...Option) (provider.Provider, error) {
	c := config{
		baseURL: "https://api.anthropic.com",
		info:    provider.Info{ID: "anthropic", APIVersion: "2023-06-01"},
	}
	for _, opt := range opts {
		opt(&c)
	}
	if err := c.check(); err != nil {
		return nil, fmt.Errorf("anthropic: %w", err)
	}
	return &client{c.info, strings.TrimSuffix(c.baseURL, "/") + "/v1/messages", c.key, converse.API{
		Name: "anthropic", Key: c.key, HTTP: converse.Client(c.client), Fault: fault,
		RequestID: func(h http.Header) string { return h.Get("Request-Id") },
	}}, nil
}

func (c *config) check() error {
	if c.key == "" {
		return errors.New("no API key, see WithAPIKey")
	}
	if err := converse.CheckURL("the base URL", c.baseURL); err != nil {
		return err
	}
	if c.info.ID == "" || c.info.APIVersion == "" {
		return errors.New("the provider id and the API version cannot be empty")
	}
	return nil
}

// Info implements [provider.Provider].
func (c *client) Info() provider.Info { return c.info }

// Capabilities implements [provider.Capabler].
func (c *client) Capabilities() provider.Capabilities {
	return provider.Capabilities{
		Tools: true, ToolChoice: true, Reasoning: true, StopSequences: true, CacheControl: true, RequestID: true,
	}
}

// Stream implements [provider.Provider].
func (c *client) Stream(ctx context.Context, req *provider.Request) (provider.EventStream, error) {
	body, betas, err := translate(req)
	if err != nil {
		return nil, fmt.Errorf("anthropic: %w", err)
	}
	header := http.Header{"Accept": {"application/json"}, "Anthropic-Version": {c.info.APIVersion}, "X-Api-Key": {c.key}}
	if len(betas) > 0 {
		header["Anthropic-Beta"] = betas
	}
	return c.api.Ask(ctx, c.url, header, body, &reader{})
}
