package hostfile

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"strings"
	"syscall"
)

// Address is where a host listens.
type Address struct {
	Network string // tcp or unix
	Address string
	Mode    fs.FileMode // of a socket; zero for 0600
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
	if port, ok := strings.CutPrefix(text, "localhost:"); ok && isPort(port) {
		return Address{Network: "tcp", Address: text}, nil
	}
	return Address{}, fmt.Errorf("%q is no address such as 127.0.0.1:8300 or unix:/run/starling.sock", text)
}

func isPort(text string) bool {
	_, err := netip.ParseAddrPort("127.0.0.1:" + text)
	return err == nil
}

// Listen takes the address. A socket that a process left behind is removed before, if
// nobody answers there; anything else that has its name stays.
func (a Address) Listen() (net.Listener, error) {
	if a.Network != "unix" {
		return net.Listen(a.family(), a.Address)
	}
	if err := a.removeSocket(); err != nil {
		return nil, err
	}
	if len(a.Address) > longestSocket { // the system says "invalid argument"
		return nil, fmt.Errorf("hostfile: %s: the path has %d bytes, and that of a socket has %d at most", a, len(a.Address), longestSocket)
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

// longestSocket is how many bytes of a path the system takes, without the zero behind it.
const longestSocket = len(syscall.RawSockaddrUnix{}.Path) - 1

// family returns what to listen on: 0.0.0.0 is meant as it is written, and package
// net would take "tcp" for IPv6 as well.
func (a Address) family() string {
	if at, err := netip.ParseAddrPort(a.Address); err == nil && at.Addr().Unmap().Is4() {
		return "tcp4"
	}
	return a.Network
}

func (a Address) removeSocket() error {
	info, err := os.Lstat(a.Address)
	switch {
	case err != nil: // nothing is there, or to listen will say why not
		return nil
	case info.Mode().Type() != fs.ModeSocket:
		return fmt.Errorf("hostfile: %s: a file is there that is no socket", a)
	}
	if conn, err := net.Dial("unix", a.Address); err == nil {
		conn.Close()
		return fmt.Errorf("hostfile: %s: somebody listens there", a)
	}
	return os.Remove(a.Address)
}
