package gemini

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/starling-host/starling/runtime/internal/converse"
	"github.com/starling-host/starling/runtime/provider"
)

// client implements [provider.Capabler].
type client struct {
	converse.Config
	base *url.URL
	api  converse.API
}

// New returns the provider. It fails without a key, or with a base URL that is
// not one.
func New(c converse.Config) (provider.Provider, error) {
	c, err := c.Complete(converse.Config{ID: "gemini", BaseURL: "https://generativelanguage.googleapis.com", APIVersion: "v1beta"})
	if err != nil {
		return nil, err
	}
	base, err := url.Parse(c.BaseURL)
	if err != nil {
		return nil, errors.New("gemini: the base URL cannot be parsed") // and may have a password in it
	}
	return &client{c, base.JoinPath(c.APIVersion), converse.API{
		Name: "gemini", Key: c.APIKey, HTTP: converse.Client(c.HTTP), Fault: fault,
		RequestID: func(http.Header) string { return "" }, // the events have it
	}}, nil
}

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
	return c.api.Ask(ctx, target, http.Header{"X-Goog-Api-Key": {c.APIKey}}, body, &reader{ids: ids})
}

// target returns the address of a model, whose name may begin with the kind of model.
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
