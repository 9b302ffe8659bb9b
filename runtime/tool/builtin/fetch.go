package builtin

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"time"
	"unicode/utf8"

	"github.com/starling-host/starling/abi"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/runtime/egress"
	"github.com/starling-host/starling/runtime/step"
	"github.com/starling-host/starling/runtime/tool"
)

// The bounds of one fetch.
const (
	fetchTimeout   = 15 * time.Second
	fetchBytes     = 1 << 20
	fetchRedirects = 5
)

type fetchInput struct {
	URL string `json:"url" jsonschema:"description=The http or https URL to get"`
}

type fetchOutput struct {
	URL         string `json:"url"` // after redirects
	Status      int    `json:"status"`
	ContentType string `json:"content_type,omitempty"`
	Body        string `json:"body"`
}

// Fetch returns the tool "fetch", which gets a URL with GET and answers with
// status, content type and text. It reaches public addresses only, follows up to
// five redirects, each under the same rules, and takes at most 15 seconds and
// 1 MiB. Where the context has a [Decider], that must allow each request as well. A body that is not UTF-8 text is an error.
func Fetch() tool.Tool {
	anywhere, err := egress.ParseRule("*")
	if err != nil {
		panic(err) // the rule is a constant
	}
	return fetchWith(egress.New(egress.Config{
		Authorize: egress.Rules{Allow: []egress.Rule{anywhere}}, Timeout: fetchTimeout, MaxResponseBytes: fetchBytes,
	}))
}

// Decider decides about the requests of the built-in tools of a run.
type Decider interface {
	// Decide returns the authorizer of one call of a tool, by its name in the run,
	// and what it has decided so far, for the record.
	Decide(tool string) (egress.Authorizer, func() event.Verdicts)
}

type deciderKey struct{}

// WithDecider returns a context in which d decides.
func WithDecider(ctx context.Context, d Decider) context.Context {
	return context.WithValue(ctx, deciderKey{}, d)
}

// fetched is what is recorded of a fetch: what the tool returns, and what was
// decided about it.
type fetched struct {
	fetchOutput
	Decision event.Verdicts `json:"decision,omitempty"`
}

func fetchWith(client *egress.Client) tool.Tool {
	return tool.WithSource(tool.Typed("fetch", "Get a public web page or API resource by URL. Answers with status, content type and text.",
		func(ctx context.Context, in fetchInput) (fetchOutput, error) {
			client, decided := decidedBy(ctx, client)
			effect := step.Effect{Name: "fetch", Request: []byte(in.URL)}
			out, err := step.Do(ctx, effect, func(ctx context.Context, _ string) (fetched, error) {
				ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
				defer cancel()
				out, err := fetch(ctx, client, in.URL)
				return fetched{out, decided()}, err
			})
			return out.fetchOutput, err
		}), sourcePrefix+"fetch")
}

// decidedBy returns the client under the decider of the context, if there is one.
func decidedBy(ctx context.Context, client *egress.Client) (*egress.Client, func() event.Verdicts) {
	d, ok := ctx.Value(deciderKey{}).(Decider)
	if !ok {
		return client, func() event.Verdicts { return nil }
	}
	call, _ := step.CallInfo(ctx)
	authorizer, decided := d.Decide(call.Tool)
	return client.And(authorizer), decided
}

// fetch follows redirects, of which every hop is a request of its own to the
// client, which decides about each.
func fetch(ctx context.Context, client *egress.Client, target string) (fetchOutput, error) {
	for range fetchRedirects + 1 {
		raw, err := client.Do(ctx, &egress.Request{Method: "GET", URL: target}, "")
		if err != nil {
			return fetchOutput{}, classify(err)
		}
		response, err := egress.ParseResponse(raw)
		if err != nil {
			return fetchOutput{}, err
		}
		location := response.Header.Get("Location")
		if !redirects(response.Status) || location == "" {
			return text(target, response)
		}
		if target, err = resolve(target, location); err != nil {
			return fetchOutput{}, err
		}
	}
	return fetchOutput{}, fmt.Errorf("fetch: more than %d redirects", fetchRedirects)
}

// classify marks what may be over the next time, and what never will.
func classify(err error) error {
	failure := (*egress.Error)(nil)
	switch {
	case !errors.As(err, &failure):
		return err
	case failure.Transient():
		return fmt.Errorf("%w: %w", err, tool.ErrTransient)
	case failure.Status == abi.StatusDenied, failure.Status == abi.StatusMalformed:
		return tool.ToolDiscard(err)
	}
	return err
}

func redirects(status int) bool {
	switch status {
	case 301, 302, 303, 307, 308:
		return true
	}
	return false
}

func resolve(base, location string) (string, error) {
	from, err := url.Parse(base)
	if err != nil {
		return "", fmt.Errorf("fetch: %w", err)
	}
	to, err := from.Parse(location)
	if err != nil {
		return "", fmt.Errorf("fetch: redirect to %q: %w", location, err)
	}
	to.Fragment = ""
	next := egress.Request{Method: "GET", URL: to.String()}
	if access, err := next.Access(); err == nil && len(access.Secrets) > 0 {
		// whoever answers would have a secret sent where, and for what, it likes
		return "", tool.ToolDiscard(errors.New("fetch: a redirect to an address with the placeholder of a secret is not followed"))
	}
	return next.URL, nil
}

func text(target string, r *egress.Response) (fetchOutput, error) {
	if !utf8.Valid(r.Body) {
		return fetchOutput{}, fmt.Errorf("fetch: the body is %d bytes of something that is not UTF-8 text", len(r.Body))
	}
	return fetchOutput{URL: target, Status: r.Status, ContentType: r.Header.Get("Content-Type"), Body: string(r.Body)}, nil
}
