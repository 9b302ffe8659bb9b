package egress

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/starling-host/starling/abi"
	"github.com/starling-host/starling/eventlog/event"
)

// Access describes a request in the one spelling that decisions use.
type Access struct {
	Method string
	Scheme string // "http" or "https"
	Host   string // lower-case name, IPv4 address, or IPv6 address in brackets
	Port   uint16
	Path   string // begins with a slash; percent-encoded as the guest wrote it, without the query

	// Headers are the canonical names of the headers, sorted.
	Headers []string

	// Secrets are the placeholders in the request.
	Secrets []Placeholder
}

// Origin returns scheme, host and port, for a reader.
func (a Access) Origin() string {
	return a.Scheme + "://" + target{scheme: a.Scheme, host: a.Host, port: a.Port}.hostPort()
}

// Access returns the request's access. The error is an [*Error].
func (r *Request) Access() (Access, error) {
	t, err := r.check()
	if err != nil {
		return Access{}, err
	}
	return r.access(t)
}

func (r *Request) access(t target) (Access, error) {
	path, _, _ := strings.Cut(t.uri, "?")
	a := Access{Method: r.Method, Scheme: t.scheme, Host: t.host, Port: t.port, Path: path, Headers: sortedNames(r.Header)}
	var err error
	a.Secrets, err = r.placeholders(t)
	return a, err
}

// Grant is the conditions under which a request is made.
type Grant struct {
	// Private lets the name resolve to loopback, RFC 1918 and unique local
	// addresses. Link-local addresses, metadata services and all other special
	// ranges stay refused.
	Private bool

	// MaxResponse bounds the response in bytes, as handed on, beside the bounds
	// of Config. Zero: only those.
	MaxResponse int64

	// Limits replace the defaults of Config, and lower what Config sets.
	Limits Limits

	// Secrets replace their placeholders in the request, and are taken out of the
	// response. The [Authorizer] has decided that a placeholder may stand where
	// it does; a placeholder without a secret here denies the request.
	Secrets []Secret

	// Plain keeps the response in a form that can be searched for secrets: it is
	// asked for without compression and in one piece.
	Plain bool
}

// Limits bound one exchange. Zero means no bound.
type Limits struct {
	Timeout           time.Duration // see Config.Timeout
	Request, Response int64         // bytes of the bodies
}

// And returns the smaller of each bound.
func (l Limits) And(other Limits) Limits {
	return Limits{Least(l.Timeout, other.Timeout), Least(l.Request, other.Request), Least(l.Response, other.Response)}
}

// Least returns the smaller of two bounds, where zero means no bound.
func Least[T int64 | uint64 | uint32 | time.Duration](a, b T) T {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}

// Authorizer decides about requests before anything of them leaves the host,
// including the look-up of the name. It must be safe for concurrent use.
type Authorizer interface {
	// Authorize returns the conditions of a request, or the reason to refuse it. The guest receives
	// an [*Error]; any other error becomes StatusDenied with a text that reveals nothing about it.
	Authorize(ctx context.Context, a Access) (Grant, error)
}

// Rules is an [Authorizer] that allows requests matching one of its rules.
// The zero Rules allow nothing.
type Rules struct {
	Allow []Rule

	// Private lets rules that name a host in full reach the addresses of
	// Grant.Private. The owner of a domain decides what the names below it resolve to.
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

// both is an Authorizer that allows what two of them allow, under the conditions of
// each. The second is not asked if the first refuses.
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
	return Grant{
		Private: first.Private && second.Private, Plain: first.Plain || second.Plain, Limits: first.Limits.And(second.Limits),
		MaxResponse: Least(first.MaxResponse, second.MaxResponse), Secrets: slices.Concat(first.Secrets, second.Secrets),
	}, nil
}

// Denied returns the error of an [Authorizer] that refuses a request. The text is
// for the guest.
func Denied(format string, args ...any) *Error { return failf(abi.StatusDenied, format, args...) }

// TooLarge returns the error of an exchange without enough bytes left. The text is
// for the guest.
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
	return Grant{}, failf(abi.StatusDenied, "no policy decides about %s", a.Origin())
}

// Decider decides about the requests of the built-in tools of a run.
type Decider interface {
	// Decide returns the authorizer of one call of a tool, by its name in the run, and
	// its verdicts so far, for the record.
	Decide(tool string) (Authorizer, func() event.Verdicts)
}

type deciderKey struct{}

// WithDecider returns a context in which d decides.
func WithDecider(ctx context.Context, d Decider) context.Context {
	return context.WithValue(ctx, deciderKey{}, d)
}

// DeciderOf returns the decider of a context, or nil.
func DeciderOf(ctx context.Context) Decider {
	d, _ := ctx.Value(deciderKey{}).(Decider)
	return d
}

// Rule allows requests to one host, to the names below a domain, or to every
// public name. The zero Rule allows nothing.
type Rule struct {
	pattern string // "*", ".suffix", or a host as target spells it
	port    uint16 // 0: the port of the scheme
}

// ParseRule reads a rule:
//
//	api.example.com        the host, on 443 for https and 80 for http
//	api.example.com:8443   the host on that port, for both schemes
//	.example.com           every name below example.com, not example.com itself
//	192.0.2.7, [2001:db8::7]:8080   an address, which is only ever allowed when
//	                       it is written out like this
//	*                      every name with a dot in it that resolves to public
//	                       addresses
//
// A suffix and * take a port too. Names are compared without regard to case.
func ParseRule(s string) (Rule, error) {
	r, err := parseRule(s)
	if err != nil {
		return Rule{}, fmt.Errorf("egress: rule %s: %w", quote(s), err)
	}
	return r, nil
}

func parseRule(s string) (Rule, error) {
	if strings.Contains(s, "/") {
		return Rule{}, errors.New("write HOST or HOST:PORT, without scheme and path")
	}
	if s == "" {
		return Rule{}, errors.New("it is empty: write HOST or HOST:PORT")
	}
	if strings.HasPrefix(s, "*.") {
		return Rule{}, fmt.Errorf("write %s for the names below a domain", quote(s[1:]))
	}
	host, port, err := splitPort(s)
	if err != nil {
		return Rule{}, err
	}
	if host == "*" {
		return Rule{pattern: host, port: port}, nil
	}
	name, below := strings.CutPrefix(host, ".")
	host, addr, err := parseHost(name)
	if err != nil {
		return Rule{}, err
	}
	if below && addr.IsValid() {
		return Rule{}, errors.New("an address has no names below it")
	}
	if below {
		host = "." + host
	}
	return Rule{pattern: host, port: port}, nil
}

// String returns the rule in its canonical spelling, which ParseRule reads
// back. The log keeps this spelling.
func (r Rule) String() string {
	if r.port == 0 {
		return r.pattern
	}
	return r.pattern + ":" + strconv.Itoa(int(r.port))
}

// Port returns the port that the rule names, or 0 for that of the scheme.
func (r Rule) Port() uint16 { return r.port }

// exact reports whether the rule names one host in full. Only such a rule can open a
// private address: the owner of a domain decides what the names below it resolve to.
func (r Rule) exact() bool {
	return r.pattern != "" && r.pattern != "*" && r.pattern[0] != '.'
}

// Matches reports whether the rule names the host and the port of a request.
func (r Rule) Matches(a Access) bool {
	if r.port != a.Port && (r.port != 0 || a.Port != defaultPort(a.Scheme)) {
		return false
	}
	return r.MatchesHost(a.Host)
}

// MatchesHost reports whether the rule names a host, on any port. The host is spelled as in
// [Access].
func (r Rule) MatchesHost(host string) bool {
	addr, err := netip.ParseAddr(strings.Trim(host, "[]"))
	name := err != nil || !addr.IsValid()
	switch {
	case r.exact():
		return r.pattern == host
	case r.pattern == "*":
		return name && strings.Contains(host, ".")
	case r.pattern != "":
		return name && strings.HasSuffix(host, r.pattern)
	}
	return false
}
