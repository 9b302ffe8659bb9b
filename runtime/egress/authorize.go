package egress

import (
	"context"
	"errors"
	"slices"

	"github.com/starling-host/starling/abi"
)

// Access is what a request asks for, in the one spelling that decisions are made
// about.
type Access struct {
	Method string
	Scheme string // "http" or "https"
	Host   string // lower-case name, IPv4 address, or IPv6 address in brackets
	Port   uint16
	Path   string // begins with a slash; percent-encoded as the guest wrote it, without the query

	// Secrets are the placeholders that stand in the request.
	Secrets []Placeholder
}

// Origin returns scheme, host and port, for a reader.
func (a Access) Origin() string {
	return a.Scheme + "://" + target{scheme: a.Scheme, host: a.Host, port: a.Port}.hostPort()
}

// Access returns what the request asks for. The error is an [*Error].
func (r *Request) Access() (Access, error) {
	t, err := r.check()
	if err != nil {
		return Access{}, err
	}
	return r.access(t)
}

func (r *Request) access(t target) (Access, error) {
	path, _ := cutQuery(t.uri)
	a := Access{Method: r.Method, Scheme: t.scheme, Host: t.host, Port: t.port, Path: path}
	var err error
	a.Secrets, err = r.placeholders(t)
	return a, err
}

// Grant says under which conditions a request is made.
type Grant struct {
	// Private lets the name resolve to loopback, RFC 1918 and unique local
	// addresses. Link-local addresses, metadata services and all other special
	// ranges stay refused.
	Private bool

	// MaxResponse bounds the response in bytes, as it is handed on, beside the
	// bounds of Config. Zero: only those.
	MaxResponse int64

	// Secrets are put where their placeholders stand in the request, and taken
	// out of the response. That a placeholder may stand where it does, the
	// [Authorizer] has decided; one that is not among them denies the request.
	Secrets []Secret

	// Plain keeps the response in a form that can be searched for secrets: it is
	// asked for without compression and in one piece.
	Plain bool
}

// Authorizer decides about requests before anything of them leaves the host,
// the look-up of the name included. It must be safe for concurrent use.
type Authorizer interface {
	// Authorize returns the conditions of a request, or why it is not made. An
	// [*Error] is the guest's answer; for any other error that is StatusDenied
	// with a text that says nothing of it.
	Authorize(ctx context.Context, a Access) (Grant, error)
}

// Rules is the [Authorizer] that allows what one of its rules names. The zero
// Rules allow nothing.
type Rules struct {
	Allow []Rule

	// Private lets rules that name a host in full reach the addresses of
	// Grant.Private. Whoever controls a domain decides what the names below it
	// resolve to.
	Private bool
}

// Authorize implements [Authorizer].
func (r Rules) Authorize(_ context.Context, a Access) (Grant, error) {
	allowed := false
	grant := Grant{}
	for _, rule := range r.Allow {
		if rule.Matches(a) {
			allowed = true
			grant.Private = grant.Private || r.Private && rule.exact()
		}
	}
	if !allowed {
		return Grant{}, failf(abi.StatusDenied, "%s is not an allowed destination", a.Origin())
	}
	return grant, nil
}

// both is the Authorizer that allows what two of them allow, under the conditions of
// each. The second is not asked about what the first refuses.
type both [2]Authorizer

// Authorize implements [Authorizer].
func (b both) Authorize(ctx context.Context, a Access) (Grant, error) {
	first, err := b[0].Authorize(ctx, a)
	if err != nil {
		return Grant{}, err
	}
	second, err := b[1].Authorize(ctx, a)
	if err != nil {
		return Grant{}, err
	}
	grant := Grant{
		Private: first.Private && second.Private, Plain: first.Plain || second.Plain,
		MaxResponse: max(first.MaxResponse, second.MaxResponse), Secrets: slices.Concat(first.Secrets, second.Secrets),
	}
	if first.MaxResponse > 0 && second.MaxResponse > 0 {
		grant.MaxResponse = min(first.MaxResponse, second.MaxResponse)
	}
	return grant, nil
}

// Denied returns the error of an [Authorizer] that refuses a request. The text is
// for the guest.
func Denied(format string, args ...any) *Error { return failf(abi.StatusDenied, format, args...) }

// TooLarge returns the error of an exchange for which not enough bytes are left. The
// text is for the guest.
func TooLarge(format string, args ...any) *Error { return failf(abi.StatusTooLarge, format, args...) }

// authorize asks the authorizer.
func (c *Client) authorize(ctx context.Context, a Access) (Grant, error) {
	var decide Authorizer = Rules{}
	if c.config.Authorize != nil {
		decide = c.config.Authorize
	}
	grant, err := decide.Authorize(ctx, a)
	var known *Error
	switch {
	case err == nil:
		return grant, nil
	case errors.As(err, &known):
		return Grant{}, known
	}
	return Grant{}, failf(abi.StatusDenied, "nobody could decide about %s", a.Origin())
}
