package egress

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/netip"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/starling-host/starling/abi"
)

// rules parses rules that the test relies on.
func rules(t testing.TB, texts ...string) []Rule {
	t.Helper()
	var all []Rule
	for _, s := range texts {
		r, err := ParseRule(s)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, r)
	}
	return all
}

// serve answers every connection to a loopback port with handle, which finds
// the first bytes of the request already read, and returns HOST:PORT. All of it
// has ended when the test ends.
func serve(t testing.TB, handle func(net.Conn)) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	t.Cleanup(func() { listener.Close(); <-done })
	go func() {
		defer close(done)
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				conn.Read(make([]byte, 4096))
				handle(conn)
			}()
		}
	}()
	return listener.Addr().String()
}

// answer is a server that writes one text and closes the connection.
func answer(t testing.TB, text string) string {
	return serve(t, func(c net.Conn) { c.Write([]byte(text)) })
}

// loopback is a client that may talk to the given HOST:PORTs of this machine.
func loopback(t testing.TB, hosts ...string) *Client {
	return New(Config{Authorize: Rules{rules(t, hosts...), true}, Timeout: 20 * time.Second})
}

func get(url string) *Request { return &Request{Method: "GET", URL: url} }

// parseResponse reads a rendered response back, and fails the test unless the
// message ends where the response does.
func parseResponse(t testing.TB, method string, raw []byte) (*http.Response, string) {
	t.Helper()
	r := bufio.NewReader(bytes.NewReader(raw))
	res, err := http.ReadResponse(r, &http.Request{Method: method})
	if err != nil {
		t.Fatalf("the response %q is not readable: %v", raw, err)
	}
	var body bytes.Buffer
	if _, err := body.ReadFrom(res.Body); err != nil {
		t.Fatal(err)
	}
	if r.Buffered() > 0 {
		t.Fatalf("%d bytes follow the response", r.Buffered())
	}
	return res, body.String()
}

// statusOf returns the status of an *Error, and fails the test for any other
// error.
func statusOf(t testing.TB, err error) abi.Status {
	t.Helper()
	var failure *Error
	if !errors.As(err, &failure) {
		t.Fatalf("error %v (%T) is not an *Error", err, err)
	}
	return failure.Status
}

func wantFailure(t testing.TB, err error, status abi.Status, text string) {
	t.Helper()
	if got := statusOf(t, err); got != status {
		t.Errorf("status %v, want %v (%v)", got, status, err)
	}
	if !strings.Contains(err.Error(), text) {
		t.Errorf("error %q does not say %q", err, text)
	}
}

// recorder replaces the network: it refuses every connection and keeps the
// addresses.
type recorder struct{ dialled []netip.AddrPort }

func (r *recorder) dial(_ context.Context, _ *net.Dialer, to netip.AddrPort) (net.Conn, error) {
	r.dialled = append(r.dialled, to)
	return nil, errors.New("recorded")
}

// resolveTo answers every name with the same addresses.
func resolveTo(addrs ...string) func(context.Context, string) ([]netip.Addr, error) {
	var all []netip.Addr
	for _, a := range addrs {
		all = append(all, netip.MustParseAddr(a))
	}
	return func(context.Context, string) ([]netip.Addr, error) { return all, nil }
}

// settled waits until no more goroutines run than there were, which the end of
// the test's servers brings about.
func settled(t testing.TB, before int) {
	t.Helper()
	for range 2000 {
		if runtime.NumGoroutine() <= before {
			return
		}
		time.Sleep(time.Millisecond)
	}
	t.Errorf("%d goroutines, %d before", runtime.NumGoroutine(), before)
}

// newMessageReader buffers the whole of a message, so that Buffered returns
// the length of the rest.
func newMessageReader(message []byte) *bufio.Reader {
	r := bufio.NewReaderSize(bytes.NewReader(message), len(message)+16)
	r.Peek(1)
	return r
}

func discardLog() *log.Logger { return log.New(io.Discard, "", 0) }
