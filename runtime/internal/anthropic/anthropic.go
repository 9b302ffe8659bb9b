package anthropic

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	"github.com/starling-host/starling/runtime/internal/converse"
	"github.com/starling-host/starling/runtime/provider"
)

// client implements [provider.Capabler].
type client struct {
	converse.Config
	api converse.API
}

// New returns the provider. It fails without a key, or with a base URL that is
// not one.
func New(c converse.Config) (provider.Provider, error) {
	c, err := c.Complete(converse.Config{ID: "anthropic", BaseURL: "https://api.anthropic.com", APIVersion: "2023-06-01"})
	if err != nil {
		return nil, err
	}
	return &client{c, converse.API{
		Name: "anthropic", Key: c.APIKey, HTTP: converse.Client(c.HTTP), Fault: fault,
		RequestID: func(h http.Header) string { return h.Get("Request-Id") },
	}}, nil
}

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
	header := http.Header{"Accept": {"application/json"}, "Anthropic-Version": {c.APIVersion}, "X-Api-Key": {c.APIKey}}
	if len(betas) > 0 {
		header["Anthropic-Beta"] = betas
	}
	return c.api.Ask(ctx, strings.TrimSuffix(c.BaseURL, "/")+"/v1/messages", header, body, &reader{})
}
