// Customer-lookup is a tool that fetches a customer from an HTTP API. It shows
// a named effect, and which answer of a server becomes which kind of failure.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	starling "github.com/starling-host/starling/guest-sdk/go"
	"github.com/starling-host/starling/guest-sdk/go/typed"
)

const (
	defaultBaseURL = "https://api.example.com"

	// maxID is the longest customer id, in bytes. The id is part of the effect's
	// name, which has a limit.
	maxID = 128
)

type input struct {
	ID      string `json:"id" jsonschema:"description=Customer id"`
	BaseURL string `json:"base_url,omitempty" jsonschema:"description=Where the API is, without the path /customers. Without it: https://api.example.com"`
}

type output struct {
	Name     string `json:"name"`
	Plan     string `json:"plan"`
	LookedUp string `json:"looked_up_at"`
}

func init() {
	lookup := typed.Tool("customer_lookup", "Fetch customer name and plan by id.", lookup)
	lookup.Effects = []string{"api.example.com"}
	lookup.Idempotent = true
	starling.Register(lookup)
}

func main() {}

func lookup(_ *starling.Call, in input) (output, error) {
	url, err := customerURL(in)
	if err != nil {
		return output{}, starling.Discard(err)
	}
	out, err := starling.SideEffect("customer/"+in.ID, func() (output, error) { return fetch(url, in.ID) })
	if err != nil {
		return output{}, fmt.Errorf("customer lookup: %w", err)
	}
	out.LookedUp = time.Unix(0, starling.Now()).UTC().Format(time.RFC3339)
	return out, nil
}

// customerURL returns the customer's URL. The id becomes one segment of its
// path, whatever it holds: dot segments, which no escape protects, are refused.
func customerURL(in input) (string, error) {
	switch {
	case in.ID == "" || len(in.ID) > maxID:
		return "", fmt.Errorf("id has %d bytes: it must have 1 to %d", len(in.ID), maxID)
	case in.ID == "." || in.ID == "..":
		return "", fmt.Errorf("id is %q, which is a path and not an id", in.ID)
	case strings.TrimSpace(in.ID) != in.ID || strings.ContainsFunc(in.ID, isControl):
		return "", fmt.Errorf("id is %q: it must not hold control characters, nor space at its ends", in.ID)
	}
	base := in.BaseURL
	if base == "" {
		base = defaultBaseURL
	}
	scheme, rest, _ := strings.Cut(base, "://")
	if s := strings.ToLower(scheme); s != "http" && s != "https" || rest == "" || strings.ContainsAny(base, "?#") {
		return "", fmt.Errorf("base_url is %q: it must be http://HOST/PATH or https://HOST/PATH", in.BaseURL)
	}
	return strings.TrimRight(base, "/") + "/customers/" + starling.PathEscape(in.ID), nil
}

func isControl(r rune) bool { return r < ' ' || r == 0x7f }

func fetch(url, id string) (output, error) {
	resp, err := starling.Do(starling.Request{URL: url, Header: starling.Header{{"Accept", "application/json"}}})
	switch {
	case errors.Is(err, starling.ErrMalformed):
		return output{}, starling.Discard(err) // base_url is the only part that can be wrong
	case err != nil:
		return output{}, err // a denial cancels, a broken connection is transient
	case resp.Status == 200:
		return decode(resp.Body)
	}
	return output{}, refused(resp.Status, id)
}

// refused says what a status means for whoever asked.
func refused(status int, id string) error {
	switch {
	case status == 404:
		return starling.Discard(fmt.Errorf("there is no customer with the id %q", id))
	case status == 401 || status == 403:
		return starling.Cancel(fmt.Errorf("the API refuses access: status %d", status))
	case status == 429 || status >= 500:
		return starling.Transient(fmt.Errorf("the API answers with status %d", status))
	default:
		return fmt.Errorf("the API answers with status %d", status)
	}
}

// decode reads the API's answer. Members that it does not need are none of its
// business.
func decode(body []byte) (output, error) {
	var customer struct{ Name, Plan *string }
	if err := json.Unmarshal(body, &customer); err != nil {
		return output{}, fmt.Errorf("the API's answer is not a customer: %w", err)
	}
	if customer.Name == nil || customer.Plan == nil {
		return output{}, errors.New("the API's answer is not a customer: it lacks name or plan")
	}
	return output{Name: *customer.Name, Plan: *customer.Plan}, nil
}
