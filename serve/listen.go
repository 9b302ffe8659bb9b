package serve

import (
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/starling-host/starling"
)

// Address is where a host listens.
type Address struct {
	Network string // tcp or unix
	Address string
	Mode    fs.FileMode // of a socket; zero for 0600
}

// UnmarshalText implements [encoding.TextUnmarshaler].
func (a *Address) UnmarshalText(text []byte) (err error) {
	*a, err = ParseAddress(string(text))
	return err
}

// String returns the address as the file has it.
func (a Address) String() string {
	if a.Network == "unix" {
		return "unix:" + a.Address
	}
	return a.Address
}

// Local reports whether only this machine can reach the address.
func (a Address) Local() bool {
	if a.Network == "unix" {
		return true
	}
	at, err := netip.ParseAddrPort(a.Address)
	if err != nil {
		host, _, _ := strings.Cut(a.Address, ":")
		return host == "localhost"
	}
	return at.Addr().IsLoopback()
}

// ParseAddress reads HOST:PORT or unix:PATH.
func ParseAddress(text string) (Address, error) {
	if path, ok := strings.CutPrefix(text, "unix:"); ok {
		if path == "" {
			return Address{}, fmt.Errorf("%q has no path", text)
		}
		return Address{Network: "unix", Address: path}, nil
	}
	if at, err := netip.ParseAddrPort(text); err == nil {
		return Address{Network: "tcp", Address: at.String()}, nil
	}
	if port, ok := strings.CutPrefix(text, "localhost:"); ok {
		if _, err := netip.ParseAddrPort("127.0.0.1:" + port); err == nil {
			return Address{Network: "tcp", Address: text}, nil
		}
	}
	return Address{}, fmt.Errorf("%q is not an address such as 127.0.0.1:8300 or unix:/run/starling.sock", text)
}

// Listen listens at the address. It first removes a stale socket on which nothing answers,
// but no other file.
func (a Address) Listen() (net.Listener, error) {
	if a.Network != "unix" {
		network := a.Network
		if at, err := netip.ParseAddrPort(a.Address); err == nil && at.Addr().Unmap().Is4() {
			network = "tcp4" // 0.0.0.0 means IPv4 only, but with "tcp" package net would add IPv6
		}
		return net.Listen(network, a.Address)
	}
	if info, err := os.Lstat(a.Address); err == nil { // otherwise it is free, or listening will return the error
		if info.Mode().Type() != fs.ModeSocket {
			return nil, fmt.Errorf("serve: %s exists and is not a socket", a)
		}
		if err := a.answered(); err != nil {
			return nil, err
		}
		if err := os.Remove(a.Address); err != nil {
			return nil, err
		}
	}
	if len(a.Address) > longestSocket { // the system says "invalid argument"
		return nil, fmt.Errorf("serve: %s: the path has %d bytes; a socket allows at most %d", a, len(a.Address), longestSocket)
	}
	l, err := net.Listen("unix", a.Address)
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(a.Address, cmp.Or(a.Mode, 0o600)); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

// check reports why [Address.Listen] would fail. It leaves a stale socket where it is.
func (a Address) check() error {
	if info, err := os.Lstat(a.Address); a.Network == "unix" && err == nil && info.Mode().Type() == fs.ModeSocket {
		return a.answered()
	}
	l, err := a.Listen()
	if err != nil {
		return err
	}
	return l.Close()
}

// longestSocket is the longest path of a socket in bytes, without the final zero.
const longestSocket = len(syscall.RawSockaddrUnix{}.Path) - 1

// answered reports that another process listens at a socket.
func (a Address) answered() error {
	conn, err := net.Dial("unix", a.Address)
	if err != nil {
		return nil
	}
	conn.Close()
	return fmt.Errorf("serve: %s: another process listens there", a)
}

const otherAddress = "name another address to listen at"

// listen listens at the address.
func (h *Host) listen() error {
	at := h.file.Listen
	listener, err := at.Listen()
	if err != nil {
		return h.file.wrong(err, otherAddress, "listen")
	}
	h.onClose(func() { listener.Close() })
	h.listener, h.Origin = listener, "http://"+listener.Addr().String()
	switch {
	case at.Network == "unix":
		h.Origin = at.String()
	case h.found.certificate != nil:
		h.Origin = "https://" + listener.Addr().String()
	}
	return nil
}

// Certificate is the certificate of a host. It is reloaded on SIGHUP, because certificates
// are renewed more often than hosts restart.
type Certificate struct {
	Files   FileTLS
	current atomic.Pointer[tls.Certificate]
}

// Load reads the files. If they are invalid, the previous certificate stays.
func (c *Certificate) Load() error {
	pair, err := tls.LoadX509KeyPair(string(c.Files.Cert), string(c.Files.Key))
	if err != nil {
		return fmt.Errorf("cert %s, key %s: %s", c.Files.Cert, c.Files.Key, starling.PlainError(err))
	}
	c.current.Store(&pair)
	return nil
}

// warn returns that clients refuse the certificate, if they do.
func (c *Certificate) warn() []string {
	if end := c.Expires(); time.Now().After(end) {
		return []string{"the certificate has expired: clients refuse it since " + end.Format(time.DateOnly)}
	}
	return nil
}

// Expires returns the expiry of the loaded certificate.
func (c *Certificate) Expires() time.Time { return c.current.Load().Leaf.NotAfter }

// config returns the TLS configuration of a server, or nil without a certificate.
func (c *Certificate) config() *tls.Config {
	if c == nil {
		return nil
	}
	show := func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return c.current.Load(), nil }
	return &tls.Config{GetCertificate: show, MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}}
}
