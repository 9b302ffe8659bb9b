package serve

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestAddresses(t *testing.T) {
	for text, local := range map[string]bool{
		"127.0.0.1:0": true, "[::1]:8300": true, "localhost:8300": true, "unix:/run/starling.sock": true,
		"0.0.0.0:8300": false, "[::]:80": false, "192.0.2.1:8300": false,
	} {
		at, err := ParseAddress(text)
		if err != nil || at.Local() != local || at.String() != text {
			t.Errorf("%s is %v, local %t, %v", text, at, at.Local(), err)
		}
	}
	for _, text := range []string{"", "8300", ":8300", "localhost", "localhost:http", "example.com:80", "unix:", "localhost.evil.example:80"} {
		if at, err := ParseAddress(text); err == nil {
			t.Errorf("%q is taken as %v", text, at)
		}
	}
}

// TestListenWhereItSays has all addresses of IPv4 be those and no others.
func TestListenWhereItSays(t *testing.T) {
	for _, text := range []string{"0.0.0.0:0", "[::ffff:0.0.0.0]:0", "127.0.0.1:0", "localhost:0"} {
		at, err := ParseAddress(text)
		if err != nil {
			t.Fatal(err)
		}
		l, err := at.Listen()
		if err != nil {
			t.Fatal(err)
		}
		if ip := l.Addr().(*net.TCPAddr).IP; ip.To4() == nil {
			t.Errorf("%s listens at %s", text, ip)
		}
		l.Close()
	}
}

// TestSockets meets what can be in the place of a socket.
func TestSockets(t *testing.T) {
	if _, err := (Address{Network: "unix", Address: "/" + strings.Repeat("s", 200)}).Listen(); !strings.Contains(fmt.Sprint(err), "the path has 201 bytes") {
		t.Errorf("a long path: %v", err)
	}
	at := Address{Network: "unix", Address: filepath.Join(t.TempDir(), "s")}
	l, err := at.Listen()
	if err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(at.Address)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("the socket is %v, %v", info, err)
	}
	if _, err := at.Listen(); !strings.Contains(fmt.Sprint(err), "another process listens there") {
		t.Errorf("a socket in use: %v", err)
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	l.Close()
	if l, err = at.Listen(); err != nil {
		t.Fatalf("a socket that was left behind: %v", err)
	}
	l.Close()
	if err := os.WriteFile(at.Address, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := at.Listen(); !strings.Contains(fmt.Sprint(err), "exists and is not a socket") {
		t.Errorf("a file: %v", err)
	}
	if _, err := os.Stat(at.Address); err != nil {
		t.Errorf("the file is not there any more: %v", err)
	}
}
