package egress

import (
	"cmp"
	"context"
	"crypto/x509"
	"errors"
	"net"
	"net/netip"
	"time"

	"github.com/starling-host/starling/abi"
)

// The defaults of [Config].
const (
	DefaultTimeout          = 30 * time.Second
	DefaultMaxRequestBytes  = 1 << 20
	DefaultMaxResponseBytes = 8 << 20
	DefaultMaxHeaderBytes   = 64 << 10
)

// Config configures a [Client]. The zero Config refuses every request.
type Config struct {
	// Authorize decides about each request. Nil refuses all of them. [Rules]
	// decides by hosts, and package policy by a file.
	Authorize Authorizer

	// Timeout bounds a whole exchange, from resolving the name to the last byte
	// of the response. Default: 30 s.
	Timeout time.Duration

	// MaxRequestBytes bounds the body of a request. Default: 1 MiB.
	MaxRequestBytes int64

	// MaxResponseBytes bounds the body of a response as sent, before any
	// decompression. Default: 8 MiB.
	MaxResponseBytes int64

	// MaxHeaderBytes bounds the head of a request and, separately, everything
	// before the body of a response. Default: 64 KiB.
	MaxHeaderBytes int64

	// Slots bound the connections that are open at once. An exchange waits for room,
	// and its time runs meanwhile. Nil: no bound.
	Slots *Slots

	// Resolve looks up the addresses of a name. It is asked once per exchange and
	// must respect ctx. Default: the system's resolver, without its search list
	// for names that have a dot.
	Resolve func(ctx context.Context, host string) ([]netip.Addr, error)
}

// Client carries out requests. It keeps nothing between them and may be used by
// several goroutines.
type Client struct {
	config Config
	dial   dialFunc       // tests watch where connections would go
	roots  *x509.CertPool // nil: the system's; tests have their own
}

// dialFunc opens a connection with the dialer that was configured for it.
type dialFunc func(ctx context.Context, d *net.Dialer, to netip.AddrPort) (net.Conn, error)

// New returns a client. Fields of config at zero or below get their default, or the
// value of a grant.
func New(config Config) *Client {
	config.Timeout, config.MaxRequestBytes, config.MaxResponseBytes = max(config.Timeout, 0), max(config.MaxRequestBytes, 0), max(config.MaxResponseBytes, 0)
	if config.MaxHeaderBytes <= 0 {
		config.MaxHeaderBytes = DefaultMaxHeaderBytes
	}
	if config.Resolve == nil {
		config.Resolve = lookup
	}
	return &Client{config: config, dial: dialTCP}
}

// within returns the client under the limits of a grant, and of the guest.
func (c *Client) within(l Limits, timeout time.Duration) *Client {
	it := *c
	it.config.Timeout = Least(cmp.Or(Least(c.config.Timeout, l.Timeout), DefaultTimeout), timeout)
	it.config.MaxRequestBytes = cmp.Or(Least(c.config.MaxRequestBytes, l.Request), DefaultMaxRequestBytes)
	it.config.MaxResponseBytes = cmp.Or(Least(c.config.MaxResponseBytes, l.Response), DefaultMaxResponseBytes)
	return &it
}

// And returns the client with a further authorizer, for an exchange or a run. If the
// client has one already, both must allow a request.
func (c *Client) And(a Authorizer) *Client {
	and := *c
	and.config.Authorize = a
	if c.config.Authorize != nil {
		and.config.Authorize = both{c.config.Authorize, a}
	}
	return &and
}

// Do carries out one request and returns the response as a message/http
// document. A redirect is a response like any other. With an idempotencyKey, the
// request carries it in the header Idempotency-Key unless the guest has set one.
//
// The error is an [*Error] for everything that the guest can handle. When ctx
// has ended it is ctx.Err() instead, and whether the server acted is unknown.
func (c *Client) Do(ctx context.Context, r *Request, idempotencyKey string) (response []byte, err error) {
	if r.Safe() {
		idempotencyKey = "" // repeating it does no harm
	}
	t, grant, secret, err := c.decide(ctx, r, idempotencyKey)
	if count, ok := ctx.Value(countKey{}).(func(outcome string)); ok {
		defer func() { count(outcome(err, secret)) }()
	}
	limited := ctx
	if err == nil {
		var cancel context.CancelFunc
		c = c.within(grant.Limits, r.Timeout)
		limited, cancel = context.WithTimeout(ctx, c.config.Timeout)
		defer cancel()
		response, err = c.do(limited, r, t, idempotencyKey, grant)
	}
	switch {
	case err == nil:
		return response, nil
	case over(ctx):
		return nil, ctx.Err()
	case over(limited):
		return nil, failf(abi.StatusTimeout, "no complete response within %v", c.config.Timeout)
	}
	return nil, err
}

// Check returns the error with which Do refuses a request before it resolves a name, or nil. It
// decides as Do does, but sends nothing.
func (c *Client) Check(ctx context.Context, r *Request) error {
	t, grant, _, err := c.decide(ctx, r, "")
	if err == nil {
		_, err = c.within(grant.Limits, r.Timeout).message(r, t, "", grant)
	}
	if err == nil && t.addr.IsValid() {
		_, err = c.resolve(ctx, t, grant.Private)
	}
	return err
}

// over reports whether ctx has ended. A dialer and a resolver look at its deadline
// themselves, and can fail at it before ctx has noticed.
func over(ctx context.Context) bool {
	if end, ok := ctx.Deadline(); ok && !time.Now().Before(end) {
		<-ctx.Done()
	}
	return ctx.Err() != nil
}

type countKey struct{}

// WithCount returns a context in which count receives the outcome of each request:
// "ok", "cancelled", "secret" for a request with a placeholder that was refused, or the
// name of another [abi.Status].
func WithCount(ctx context.Context, count func(outcome string)) context.Context {
	return context.WithValue(ctx, countKey{}, count)
}

func outcome(err error, secret bool) string {
	known, ok := errors.AsType[*Error](err)
	switch {
	case err == nil:
		return "ok"
	case !ok:
		return "cancelled"
	case secret && (known.Status == abi.StatusDenied || known.Status == abi.StatusMalformed):
		return "secret"
	}
	return known.Status.String()
}

// decide checks the request and asks the authorizer. It reports whether the request has
// a placeholder, or text that begins like one.
func (c *Client) decide(ctx context.Context, r *Request, idempotencyKey string) (t target, grant Grant, secret bool, err error) {
	if t, err = r.check(); err != nil {
		return t, grant, false, err
	}
	if idempotencyKey != "" && !abi.IsFieldValue(idempotencyKey) {
		return t, grant, false, malformed("the idempotency key %s cannot be sent in a header", quote(idempotencyKey))
	}
	access, err := r.access(t)
	secret = err != nil || len(access.Secrets) > 0
	if err == nil {
		err = r.oneWay(t)
	}
	if err == nil {
		grant, err = c.authorize(ctx, access)
	}
	return t, grant, secret, err
}

func (c *Client) do(ctx context.Context, r *Request, t target, idempotencyKey string, grant Grant) ([]byte, error) {
	message, err := c.message(r, t, idempotencyKey, grant)
	if err != nil {
		return nil, err
	}
	if err := c.config.Slots.enter(ctx); err != nil {
		return nil, err
	}
	defer c.config.Slots.leave()
	conn, err := c.connect(ctx, t, grant.Private)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	stream, err := c.secure(ctx, conn, t)
	if err != nil {
		return nil, err
	}
	return c.exchange(ctx, stream, r.Method, message, grant)
}

// message returns the bytes to send. The limits apply to the guest's text: if
// secrets counted, their length could be found out.
func (c *Client) message(r *Request, t target, idempotencyKey string, grant Grant) ([]byte, error) {
	head, message := r.wire(t, idempotencyKey)
	if int64(len(head)) > c.config.MaxHeaderBytes {
		return nil, failf(abi.StatusTooLarge, "request line and headers take more than %d bytes", c.config.MaxHeaderBytes)
	}
	if int64(len(r.Body)) > c.config.MaxRequestBytes {
		return nil, failf(abi.StatusTooLarge, "the request's body has more than %d bytes", c.config.MaxRequestBytes)
	}
	filled, t, err := r.fill(t, grant.Secrets)
	if err == nil && grant.Plain {
		err = filled.plainly()
	}
	if err != nil {
		return nil, err
	}
	if len(grant.Secrets) > 0 || grant.Plain {
		_, message = filled.wire(t, idempotencyKey)
	}
	return message, nil
}
