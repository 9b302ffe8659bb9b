package egress

import (
	"context"
	"errors"
	"net"
	"net/netip"

	"github.com/starling-host/starling/abi"
)

// On js a program verifies runs from their logs and needs no network.

var errNoNetwork = errors.New("there is no network on js")

func (c *Client) connect(context.Context, target, bool) (net.Conn, error) {
	return nil, failf(abi.StatusNetwork, "%s", errNoNetwork)
}

func (c *Client) resolve(context.Context, target, bool) ([]netip.Addr, error) {
	return nil, errNoNetwork
}

func (c *Client) secure(context.Context, net.Conn, target) (net.Conn, error) {
	return nil, errNoNetwork
}

func lookup(context.Context, string) ([]netip.Addr, error) { return nil, errNoNetwork }

func dialTCP(context.Context, *net.Dialer, netip.AddrPort) (net.Conn, error) {
	return nil, errNoNetwork
}
