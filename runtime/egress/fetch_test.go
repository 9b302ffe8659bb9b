package egress

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"testing"
)

// network is a world of names in which one server has all addresses. It lets each address of a name
// try to connect, in order, as a dialer does whose first attempt is slow, and uses the chosen one.
type network struct {
	*httptest.Server
	names map[string][]string // addresses; the first that a request may reach and that is up answers
	down  map[string]bool

	mu    sync.Mutex
	asked []string // HOST/PATH of requests
	conns map[string]int
}

// at is a connection that has another address than the server's.
type at struct {
	net.Conn
	address netip.AddrPort
}

func (a at) RemoteAddr() net.Addr { return net.TCPAddrFromAddrPort(a.address) }

func newNetwork(t *testing.T, names map[string][]string) (*network, *Fetcher) {
	n := &network{names: names, down: map[string]bool{}, conns: map[string]int{}}
	n.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n.mu.Lock()
		n.asked = append(n.asked, r.Host+r.URL.Path)
		n.mu.Unlock()
		if to := r.URL.Query().Get("to"); to != "" {
			http.Redirect(w, r, to, http.StatusTemporaryRedirect)
		}
	}))
	t.Cleanup(n.Close)
	f := NewFetcher(nil, 0)
	t.Cleanup(f.CloseIdleConnections)
	f.proxy = func(*http.Request) (*url.URL, error) { return nil, nil }
	f.lookup = func(_ context.Context, host string) (all []netip.Addr, err error) {
		for _, a := range n.names[host] {
			all = append(all, netip.MustParseAddr(a))
		}
		if len(all) == 0 {
			err = errors.New("no such host")
		}
		return all, err
	}
	f.dial = func(ctx context.Context, d *net.Dialer, _, address string) (conn net.Conn, err error) {
		host, port, _ := net.SplitHostPort(address)
		addresses := n.names[host]
		if _, literal := netip.ParseAddr(host); literal == nil {
			addresses = []string{host}
		}
		err = fmt.Errorf("no address of %s answers", host)
		for _, a := range addresses {
			to := netip.MustParseAddrPort(net.JoinHostPort(a, port))
			if refused := d.Control("tcp", to.String(), nil); refused != nil {
				err = refused
				continue
			}
			n.mu.Lock()
			down := n.down[a]
			n.conns[a]++
			n.mu.Unlock()
			if conn == nil && !down { // attempts that lose go on all the same
				if conn, err = new(net.Dialer).DialContext(ctx, "tcp", n.Listener.Addr().String()); err != nil {
					return nil, err
				}
				conn = at{conn, to}
			}
		}
		if conn != nil {
			return conn, nil
		}
		return nil, err
	}
	return n, f
}

const public, public6, local, inner, meta = "93.184.216.34", "2606:2800::1", "127.0.0.1", "10.0.0.5", "169.254.169.254"

// TestWhereServersLead lets servers at all kinds of addresses lead to all others: by a redirect, by
// several, and by an address in a document.
func TestWhereServersLead(t *testing.T) {
	names := map[string][]string{
		"public.test": {public}, "public6.test": {public6}, "both.test": {public6, local}, "mixed.test": {public, inner},
		"loop.test": {local}, "inner.test": {inner}, "metadata.test": {meta}, "rebound.test": {local, public},
	}
	private := map[string]bool{"loop.test": true, "inner.test": true, local: true}
	first := map[string]bool{"public.test": true, "public6.test": true, "both.test": true, "mixed.test": true} // answers at a public address
	all := []string{"public.test", "public6.test", "both.test", "mixed.test", "loop.test", "inner.test", "metadata.test", "rebound.test", local, "[::1]", meta}
	for _, from := range append(all[:6:6], local) {
		for _, to := range all {
			inward := private[to] || to == "[::1]" || to == "rebound.test" && !first[from]
			allowed := first[to] || to == "rebound.test" || inward && !first[from]
			for _, way := range []string{"redirect", "two redirects", "link", "redirect of a link"} {
				if from == to && way != "link" {
					continue
				}
				n, f := newNetwork(t, names)
				o := f.Origin("http://" + from)
				client := &http.Client{Transport: o}
				get := func(c *http.Client, at string) error {
					resp, err := c.Get(at)
					if err == nil {
						io.Copy(io.Discard, resp.Body)
						resp.Body.Close()
					}
					return err
				}
				aim := "http://" + to + "/admin"
				var err error
				switch way {
				case "redirect":
					err = get(client, "http://"+from+"/?to="+aim)
				case "two redirects":
					err = get(client, "http://"+from+"/?to="+url.QueryEscape("http://"+from+"/again?to="+aim))
				case "link":
					err = errors.Join(get(client, "http://"+from+"/"), get(&http.Client{Transport: o.Linked()}, aim))
				case "redirect of a link":
					err = errors.Join(get(client, "http://"+from+"/"), get(&http.Client{Transport: o.Linked()}, "http://"+from+"/next?to="+aim))
				}
				got := strings.HasSuffix(strings.Join(n.asked, " "), "/admin")
				if got != (err == nil) || got != allowed {
					t.Errorf("%s from %s to %s: reached %v, want %v: %v", way, from, to, got, allowed, err)
				}
				if !allowed {
					for a, count := range n.conns {
						if refuse(netip.MustParseAddr(a), false) != "" && first[from] && from != "both.test" && from != "mixed.test" {
							t.Errorf("%s from %s to %s: %d connections to %s", way, from, to, count, a)
						}
					}
				}
			}
		}
	}
}

// TestAPublicServerBetween leads from a private server to a public one and back inside.
func TestAPublicServerBetween(t *testing.T) {
	names := map[string][]string{"loop.test": {local}, "public.test": {public}, "inner.test": {inner}}
	n, f := newNetwork(t, names)
	client := &http.Client{Transport: f.Origin("http://loop.test")}
	for _, back := range []string{"http://inner.test/admin", "http://loop.test/admin", "http://" + local + "/admin"} {
		_, err := client.Get("http://loop.test/?to=" + url.QueryEscape("http://public.test/?to="+back))
		if err == nil || strings.Contains(strings.Join(n.asked, " "), "/admin") {
			t.Errorf("%s was asked for %s: %v", back, n.asked, err)
		}
	}
	if _, err := client.Get("http://loop.test/v2"); err != nil {
		t.Errorf("the origin itself is not asked any more: %v", err)
	}
}

// TestConnectionsKeepTheirDecision opens a connection to a private address of a name whose user has
// named it, and then leads another client to the same name.
func TestConnectionsKeepTheirDecision(t *testing.T) {
	n, f := newNetwork(t, map[string][]string{"inner.test": {inner}, "public.test": {public}, "flips.test": {public, inner}})
	get := func(o *Origin, at string) error {
		resp, err := (&http.Client{Transport: o}).Get(at)
		if err == nil {
			io.Copy(io.Discard, resp.Body)
			resp.Body.Close()
		}
		return err
	}
	if err := get(f.Origin("http://inner.test"), "http://inner.test/"); err != nil {
		t.Fatal(err)
	}
	if err := get(f.Origin("http://public.test"), "http://public.test/?to=http://inner.test/admin"); err == nil {
		t.Errorf("a connection to a private address was used for a public server's redirect: %s", n.asked)
	}
	flips := f.Origin("http://flips.test")
	if err := get(flips, "http://flips.test/"); err != nil {
		t.Fatal(err)
	}
	n.down[public] = true // the name's server lets its public address go away
	f.CloseIdleConnections()
	if err := get(flips, "http://flips.test/admin"); err == nil || strings.Contains(strings.Join(n.asked, " "), "flips.test/admin") {
		t.Errorf("a name that was public reached a private address: %s", n.asked)
	}
	n.down[public] = false
	for range 3 {
		if err := get(f.Origin("http://public.test"), "http://public.test/"); err != nil {
			t.Fatal(err)
		}
	}
	if opened := n.conns[public]; opened > 4 {
		t.Errorf("%d connections for requests one after another: each has a pool of its own", opened)
	}
}

// TestProxiesAreToldNothingPrivate sends requests through a proxy, which would connect for the host.
func TestProxiesAreToldNothingPrivate(t *testing.T) {
	n, f := newNetwork(t, map[string][]string{"public.test": {public}, "inner.test": {inner}, "both.test": {public, local}, "proxy.test": {inner}})
	f.proxy = func(*http.Request) (*url.URL, error) { return url.Parse("http://proxy.test:3128") }
	client := &http.Client{Transport: f.Origin("http://public.test")}
	for to, allowed := range map[string]bool{"public.test": true, "unknown.test": true, "inner.test": false, "both.test": false, local: false, "[::ffff:10.0.0.5]": false, "proxy.test:3128": false} {
		n.asked = nil
		_, err := client.Get("http://public.test/?to=http://" + to + "/admin")
		if got := strings.Contains(strings.Join(n.asked, " "), "/admin"); got != allowed || got != (err == nil) {
			t.Errorf("%s: reached %v, want %v: %v", to, got, allowed, err)
		}
	}
	if _, err := (&http.Client{Transport: f.Origin("http://inner.test")}).Get("http://inner.test/?to=http://inner.test/2"); err != nil {
		t.Errorf("a private server that the user has named: %v", err)
	}
}

func TestRedirectsStayEncrypted(t *testing.T) {
	_, f := newNetwork(t, nil)
	from, _ := http.NewRequest(http.MethodGet, "https://public.test/", nil)
	r, _ := http.NewRequest(http.MethodGet, "http://public.test/", nil)
	r.Response = &http.Response{Request: from}
	if _, err := f.Origin("https://public.test").RoundTrip(r); err == nil || !strings.Contains(err.Error(), "plain http") {
		t.Errorf("%v", err)
	}
}
