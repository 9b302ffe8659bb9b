package gemini

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
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
// the version. The default is https://generativelanguage.googleapis.com.
func WithBaseURL(url string) Option { return func(c *config) { c.baseURL = url } }

// WithAPIVersion sets the version in the path. The default is v1beta.
func WithAPIVersion(version string) Option { return func(c *config) { c.info.APIVersion = version } }

// WithProviderID sets the ID of the provider in the log. The default is "gemini".
func WithProviderID(id string) Option { return func(c *config) { c.info.ID = id } }

// WithHTTPClient sets the client. The default, and nil, is [http.DefaultClient].
// Redirections are followed only by a client that has a CheckRedirect.
func WithHTTPClient(client *http.Client) Option { return func(c *config) { c.client = client } }

// client implements [provider.Capabler].
type client struct {
	info provider.Info
	base *url.URL
	key  string
	api  converse.API
}

// New returns the provider. It fails without a key, or with a base URL that is
// not one.
func New(opts ...Option) (provider.Provider, error) {
	c := config{
		baseURL: "https://generativelanguage.googleapis.com",
		info:    provider.Info{ID: "gemini", APIVersion: "v1beta"},
	}
	for _, opt := range opts {
		opt(&c)
	}
	if err := c.check(); err != nil {
		return nil, fmt.Errorf("gemini: %w", err)
	}
	base, err := url.Parse(c.baseURL)
	if err != nil {
		return nil, errors.New("gemini: the base URL cannot be parsed") // and may have a password in it
	}
	return &client{c.info, base.JoinPath(c.info.APIVersion), c.key, converse.API{
		Name: "gemini", Key: c.key, HTTP: converse.Client(c.client), Fault: fault,
		RequestID: func(http.Header) string { return "" }, // the events have it
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
	return provider.Capabilities{Tools: true, ToolChoice: true, Reasoning: true, StopSequences: true, RequestID: true}
}

// Stream implements [provider.Provider].
func (c *client) Stream(ctx context.Context, req *provider.Request) (provider.EventStream, error) {
	body, err := translate(req)
	if err != nil {
		return nil, fmt.Errorf("gemini: %w", err)
	}
	target, err := c.target(req.Model)
	if err != nil {
		return nil, fmt.Errorf("gemini: %w", err)
	}
	ids, err := converse.NewIDs(req)
	if err != nil {
		return nil, fmt.Errorf("gemini: %w", err)
	}
	return c.api.Ask(ctx, target, http.Header{"X-Goog-Api-Key": {c.key}}, body, &reader{ids: ids})
}

// target is the address for a model, whose name may have the kind of model before it.
func (c *client) target(model string) (string, error) {
	if strings.ContainsAny(model, "?&") || strings.Contains(model, "..") {
		return "", fmt.Errorf("invalid model %q", model)
	}
	if !strings.HasPrefix(model, "models/") && !strings.HasPrefix(model, "tunedModels/") {
		model = "models/" + model
	}
	u := *c.base
	u.Path += "/" + model + ":streamGenerateContent"
	u.RawPath, u.RawQuery = "", "alt=sse"
	return u.String(), nil
}
