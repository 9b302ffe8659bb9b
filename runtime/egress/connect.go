//go:build !js

package egress

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/netip"
	"strings"
	"syscall"
	"time"

	"github.com/starling-host/starling/abi"
)

const (
	// maxAnswers bounds the addresses of one name. More is an attempt to hide one
	// among many.
	maxAnswers = 64

	// maxAttempts bounds the addresses that are tried, each within its share of
	// the time.
	maxAttempts = 3
)

// connect returns a connection to the first address of the target that answers. Each but the last gets
// a share of the time. Its errors are of type *Error.
func (c *Client) connect(ctx context.Context, t target, local bool) (conn net.Conn, err error) {
	addrs, err := c.resolve(ctx, t, local)
	if err != nil {
		return nil, err
	}
	addrs = addrs[:min(len(addrs), maxAttempts)]
	for i, a := range addrs {
		d := c.dialer(a, local)
		if i < len(addrs)-1 {
			d.Timeout = c.config.Timeout / time.Duration(len(addrs))
		}
		if conn, err = c.dial(ctx, d, netip.AddrPortFrom(a, t.port)); err == nil {
			return conn, nil
		}
	}
	return nil, connectError(t, err)
}

func connectError(t target, err error) error {
	if known, ok := errors.AsType[*Error](err); ok {
		return known
	}
	return failf(abi.StatusNetwork, "%s: %s", t.hostPort(), networkReason(err))
}

// resolve returns the addresses of the target. If one of them is not allowed it refuses all,
// because the DNS server of the name chooses which one is used.
func (c *Client) resolve(ctx context.Context, t target, local bool) ([]netip.Addr, error) {
	if t.addr.IsValid() {
		if why := refuse(t.addr, local); why != "" {
			return nil, failf(abi.StatusDenied, "%s is not an allowed address (%s)", t.host, why)
		}
		return []netip.Addr{t.addr}, nil
	}
	answers, err := c.config.Resolve(ctx, t.host)
	if err != nil {
		return nil, failf(abi.StatusNetwork, "%s: %s", t.host, networkReason(err))
	}
	if len(answers) == 0 {
		return nil, failf(abi.StatusNetwork, "%s: no such host", t.host)
	}
	if len(answers) > maxAnswers {
		return nil, failf(abi.StatusDenied, "%s resolves to more than %d addresses", t.host, maxAnswers)
	}
	addrs := make([]netip.Addr, len(answers))
	for i, a := range answers {
		addrs[i] = a.Unmap() // resolvers return IPv4 answers in mapped form
		if refuse(addrs[i], local) != "" {
			return nil, failf(abi.StatusDenied, "%s resolves to an address that is not allowed", t.host)
		}
	}
	return addrs, nil
}

// lookup asks the system's resolver. A final dot keeps it from trying the name
// below the host's own domains first, where an outsider's "api.example.com"
// could be found inside.
func lookup(ctx context.Context, host string) ([]netip.Addr, error) {
	if strings.Contains(host, ".") {
		host += "."
	}
	return net.DefaultResolver.LookupNetIP(ctx, "ip", host)
}

func dialTCP(ctx context.Context, d *net.Dialer, to netip.AddrPort) (net.Conn, error) {
	return d.DialContext(ctx, "tcp", to.String())
}

// dialer returns a dialer that connects to one address only, and checks it once more right before
// the system call. So it never connects to a refused address.
func (c *Client) dialer(pinned netip.Addr, local bool) *net.Dialer {
	return &net.Dialer{
		KeepAlive: -1,
		Control: func(_, address string, _ syscall.RawConn) error {
			to, err := netip.ParseAddrPort(address)
			if err != nil || to.Addr() != pinned || refuse(to.Addr(), local) != "" {
				return failf(abi.StatusDenied, "the connection would have gone to an address that is not allowed")
			}
			return nil
		},
	}
}

// secure returns conn unchanged for http, and for https with TLS 1.2 or later
// around it, for HTTP/1.1 only and without resuming a session. Closing conn is
// up to the caller: the result is never closed, because a polite goodbye can
// wait for seconds on a peer that does not listen.
func (c *Client) secure(ctx context.Context, conn net.Conn, t target) (net.Conn, error) {
	if t.scheme != "https" {
		return conn, nil
	}
	secured := tls.Client(conn, &tls.Config{
		ServerName: strings.Trim(t.host, "[]"),
		MinVersion: tls.VersionTLS12,
		NextProtos: []string{"http/1.1"},
		RootCAs:    c.roots,
	})
	if err := secured.HandshakeContext(ctx); err != nil {
		return nil, connectError(t, err)
	}
	return secured, nil
}
