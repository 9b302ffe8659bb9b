package gemini

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"google.golang.org/genai"

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
	info   provider.Info
	key    string
	models *genai.Models
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
	// Whatever is left empty here would be taken from environment variables.
	sdk, err := genai.NewClient(context.Background(), &genai.ClientConfig{
		Backend: genai.BackendGeminiAPI, APIKey: c.key, HTTPClient: tapped(converse.Client(c.client)),
		HTTPOptions: genai.HTTPOptions{BaseURL: c.baseURL, APIVersion: c.info.APIVersion},
	})
	if err != nil {
		return nil, errors.New("gemini: the SDK refuses the configuration") // its error has the key in it
	}
	return &client{c.info, c.key, sdk.Models}, nil
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
	settings, err := translate(req)
	if err != nil {
		return nil, fmt.Errorf("gemini: %w", err)
	}
	ids, err := newIDs(req)
	if err != nil {
		return nil, fmt.Errorf("gemini: %w", err)
	}
	t := &tap{}
	open := func(ctx context.Context) (converse.Source, error) {
		return begin(t, ids, c.models.GenerateContentStream(t.context(ctx), req.Model, nil, settings))
	}
	stream, err := converse.Begin(ctx, open, func(err error) error { return c.explain(t, err) })
	if err != nil {
		return nil, err
	}
	return stream, nil
}
