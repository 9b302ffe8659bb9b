//go:build !js

package egress

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Fetcher has the connections of what the host itself fetches: modules, tokens, cosignatures, the
// messages of MCP servers. A user names the first address, the origin, and servers name the others,
// in redirects and documents. A public server must not make the host ask a private one.
//
// Connections that may reach different addresses are in different pools, so none that was opened
// under one decision is used under another. See [Fetcher.Origin].
type Fetcher struct {
	pools   [outside + 1]*http.Transport
	proxied *http.Transport // its connections are to proxies alone

	proxy  func(*http.Request) (*url.URL, error)
	lookup func(ctx context.Context, host string) ([]netip.Addr, error)
	dial   func(ctx context.Context, d *net.Dialer, network, address string) (net.Conn, error) // tests have their own
}

// reach is the addresses that a connection may have.
type reach int

const (
	anywhere reach = iota // all: the user has named the host
	inside                // public, loopback and private ones: a private server has named the host
	outside               // public ones
)

// refuses returns the reason why a connection may not have an address, or "".
func (r reach) refuses(a netip.Addr) string {
	if r == anywhere {
		return ""
	}
	return refuse(a.Unmap(), r == inside)
}

// fetcher is the Fetcher of this process for requests that need no other.
var fetcher = sync.OnceValue(func() *Fetcher { return NewFetcher(nil, 0) })

// Fetch returns the transport of requests to an origin, a URL that a user or operator has written.
func Fetch(origin string) *Origin { return fetcher().Origin(origin) }

// NewFetcher returns a Fetcher. Trusted has certificates; nil means those of the system. A server
// that sends no header within the time fails; zero means no bound.
func NewFetcher(trusted *tls.Config, header time.Duration) *Fetcher {
	f := &Fetcher{proxy: http.ProxyFromEnvironment, lookup: lookup}
	f.dial = func(ctx context.Context, d *net.Dialer, network, address string) (net.Conn, error) {
		return d.DialContext(ctx, network, address)
	}
	pool := func(allowed reach) *http.Transport {
		t := http.DefaultTransport.(*http.Transport).Clone()
		t.Proxy, t.ResponseHeaderTimeout, t.MaxResponseHeaderBytes = nil, header, 64<<10
		if trusted != nil {
			t.TLSClientConfig = trusted.Clone()
		}
		t.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
			return f.dial(ctx, &net.Dialer{Timeout: 15 * time.Second, Control: func(_, at string, _ syscall.RawConn) error {
				to, err := netip.ParseAddrPort(at)
				if err != nil {
					return err
				}
				return refusal(at, allowed.refuses(to.Addr()))
			}}, network, address)
		}
		return t
	}
	for allowed := range f.pools {
		f.pools[allowed] = pool(reach(allowed))
	}
	f.proxied = pool(anywhere)
	f.proxied.Proxy = func(r *http.Request) (*url.URL, error) { return f.proxy(r) }
	return f
}

// refusal is the error for an address that is refused for a reason, or nil without one.
func refusal(at, why string) error {
	if why == "" {
		return nil
	}
	return fmt.Errorf("a redirect or link to %s is not followed: %s", at, why)
}

// CloseIdleConnections closes the connections that no request uses.
func (f *Fetcher) CloseIdleConnections() {
	f.proxied.CloseIdleConnections()
	for _, t := range f.pools {
		t.CloseIdleConnections()
	}
}

// Origin is the transport of requests that begin at one address. A request to that address may reach
// whatever the user has named. Each other request, a redirect or an address from a document, reaches
// public addresses alone, or also private ones as long as only private servers have answered. The
// addresses of the connections that were used count. A redirect does not lead from https to http.
//
// An Origin may be used by several goroutines.
type Origin struct {
	fetcher *Fetcher
	at      string // see place
	host    string

	mu      sync.Mutex
	private bool // the origin has answered, and always at private addresses; guarded by mu
	public  bool // the origin has answered at a public address; guarded by mu
	heard   bool // another public server has answered; guarded by mu
}

// Origin returns the transport of requests that begin at a URL.
func (f *Fetcher) Origin(origin string) *Origin {
	o := &Origin{fetcher: f}
	if u, err := url.Parse(origin); err == nil { // otherwise nothing is the origin
		o.at, o.host = place(u), u.Hostname()
	}
	return o
}

// place identifies the server of a URL.
func place(u *url.URL) string {
	return u.Scheme + "://" + strings.ToLower(u.Hostname()) + ":" + cmp.Or(u.Port(), fmt.Sprint(defaultPort(u.Scheme)))
}

// RoundTrip implements [http.RoundTripper].
func (o *Origin) RoundTrip(r *http.Request) (*http.Response, error) { return o.send(r, true) }

// Linked returns the transport of requests to addresses from the documents of servers, even if they
// are at the origin.
func (o *Origin) Linked() http.RoundTripper { return linked{o} }

type linked struct{ *Origin }

// RoundTrip implements [http.RoundTripper].
func (l linked) RoundTrip(r *http.Request) (*http.Response, error) { return l.send(r, false) }

// send makes a request. Named is whether the user may have named its address.
func (o *Origin) send(r *http.Request, named bool) (*http.Response, error) {
	from := ""
	if r.Response != nil {
		if from = place(r.Response.Request.URL); r.Response.Request.URL.Scheme == "https" && r.URL.Scheme != "https" {
			return nil, errors.New("a redirect to plain http is not followed")
		}
	}
	own := place(r.URL) == o.at
	allowed := o.reach(r.Context(), own && named && (from == "" || from == o.at))
	proxy, err := o.fetcher.proxy(r)
	if err != nil {
		return nil, err
	}
	if proxy != nil { // which connects to the address: what is known of it here decides
		if err := o.fetcher.check(r.Context(), allowed, r.URL.Hostname()); err != nil {
			return nil, err
		}
		o.note(own, !o.fetcher.isPrivate(r.Context(), r.URL.Hostname()))
		return o.fetcher.proxied.RoundTrip(r)
	}
	used := &httptrace.ClientTrace{GotConn: func(c httptrace.GotConnInfo) {
		at, err := netip.ParseAddrPort(c.Conn.RemoteAddr().String())
		o.note(own, err != nil || refuse(at.Addr().Unmap(), false) == "")
	}}
	return o.fetcher.pools[allowed].RoundTrip(r.WithContext(httptrace.WithClientTrace(r.Context(), used)))
}

// reach returns the addresses that a request may reach. Named is whether the user has named its own.
func (o *Origin) reach(ctx context.Context, named bool) reach {
	o.mu.Lock()
	private, public, heard := o.private, o.public, o.heard
	o.mu.Unlock()
	switch {
	case public || !named && heard:
		return outside
	case named:
		return anywhere
	case private || o.fetcher.isPrivate(ctx, o.host):
		return inside
	}
	return outside
}

// note notes the address of a connection that is used.
func (o *Origin) note(own, public bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.private = o.private || own && !public
	o.public = o.public || own && public
	o.heard = o.heard || public
}

// Check returns an error if a server of this origin may not lead to a URL, as the one of a page for
// the user's browser.
func (o *Origin) Check(ctx context.Context, to *url.URL) error {
	if to.Scheme != "https" && to.Scheme != "http" {
		return fmt.Errorf("a link to %.100q is not followed: it is no address of HTTP", to.Redacted())
	}
	return o.fetcher.check(ctx, o.reach(ctx, false), to.Hostname())
}

// check decides about a host by the addresses that it has here. A name that is unknown here is
// left to the proxy.
func (f *Fetcher) check(ctx context.Context, allowed reach, host string) error {
	addresses, _ := f.addresses(ctx, host)
	for _, a := range addresses {
		if err := refusal(host, allowed.refuses(a)); err != nil {
			return err
		}
	}
	return nil
}

// isPrivate reports whether a host has addresses here, none of which is public.
func (f *Fetcher) isPrivate(ctx context.Context, host string) bool {
	addresses, err := f.addresses(ctx, host)
	public := func(a netip.Addr) bool { return refuse(a.Unmap(), false) == "" }
	return err == nil && len(addresses) > 0 && !slices.ContainsFunc(addresses, public)
}

func (f *Fetcher) addresses(ctx context.Context, host string) ([]netip.Addr, error) {
	if a, err := netip.ParseAddr(strings.Trim(host, "[]")); err == nil {
		return []netip.Addr{a}, nil
	}
	return f.lookup(ctx, host)
}
