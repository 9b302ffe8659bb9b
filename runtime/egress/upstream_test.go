package egress

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/starling-host/starling/abi"
)

// flood writes a prefix and then one unit for ever, until the client goes away.
func flood(prefix, unit string) func(net.Conn) {
	block := []byte(strings.Repeat(unit, 1+32<<10/len(unit)))
	return func(c net.Conn) {
		io.WriteString(c, prefix)
		for {
			if _, err := c.Write(block); err != nil {
				return
			}
		}
	}
}

// drip writes a prefix and then one unit after the other, slowly, so that
// something always arrives.
func drip(prefix, unit string) func(net.Conn) {
	return func(c net.Conn) {
		io.WriteString(c, prefix)
		for {
			if _, err := io.WriteString(c, unit); err != nil {
				return
			}
			time.Sleep(5 * time.Millisecond)
		}
	}
}

// hold writes a text and then waits until the client goes away.
func hold(text string) func(net.Conn) {
	return func(c net.Conn) {
		io.WriteString(c, text)
		io.Copy(io.Discard, c)
	}
}

// reset closes a connection such that the client's next read fails.
func reset(c net.Conn) {
	if tcp, ok := c.(*net.TCPConn); ok {
		tcp.SetLinger(0)
	}
}

func text(s string) func(net.Conn) { return func(c net.Conn) { io.WriteString(c, s) } }

func gzipBomb(t *testing.T) string {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	for range 64 {
		if _, err := w.Write(make([]byte, 1<<20)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// upstream is a server that means no good.
type upstream struct {
	name   string
	server func(net.Conn)
	want   abi.Status // 0: a response
}

// upstreams are servers, each a trap for some client.
func upstreams(bomb string) []upstream {
	const ok = "HTTP/1.1 200 OK\r\n"
	const chunked = ok + "Transfer-Encoding: chunked\r\n\r\n"
	return []upstream{
		{"accepts and says nothing", hold(""), abi.StatusTimeout},
		{"sends its header byte by byte", drip(ok, "X"), abi.StatusTimeout},
		{"sends its body byte by byte", drip(ok+"Content-Length: 100000\r\n\r\n", "x"), abi.StatusTimeout},
		{"sends an endless body", flood(ok+"\r\n", "xxxxxxxx"), abi.StatusTooLarge},
		{"announces an endless body", flood(ok+"Content-Length: 9223372036854775807\r\n\r\n", "xxxxxxxx"), abi.StatusTooLarge},
		{"sends endless chunks", flood(chunked, "4\r\nxxxx\r\n"), abi.StatusTooLarge},
		{"sends a chunk of an impossible size", text(chunked + "fffffffffffffffff\r\nx"), abi.StatusNetwork},
		{"announces a chunk and stops", hold(chunked + "7fffffffffffffff\r\nx"), abi.StatusTimeout},
		{"floods with chunk extensions", flood(chunked, "1;"+strings.Repeat("a", 2000)+"\r\nx\r\n"), abi.StatusNetwork},
		{"sends one endless chunk extension", flood(chunked+"1;", "aaaaaaaa"), abi.StatusNetwork},
		{"sends endless trailers", flood(chunked+"0\r\n", "A: b\r\n"), abi.StatusNetwork},
		{"sends endless headers", flood(ok, "X-A: bbbbbbbbbb\r\n"), abi.StatusTooLarge},
		{"sends one endless header line", flood(ok+"X-A: ", "bbbbbbbb"), abi.StatusTooLarge},
		{"sends endless folded lines", flood(ok+"X-A: b\r\n", " b\r\n"), abi.StatusTooLarge},
		{"sends an endless status line", flood("HTTP/1.1 200 ", "bbbbbbbb"), abi.StatusTooLarge},
		{"floods with interim responses", flood("", "HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n"), abi.StatusTooLarge},
		{"drips interim responses", drip("", "HTTP/1.1 100 Continue\r\n\r\n"), abi.StatusTimeout},
		{"sends a gzip bomb", text(fmt.Sprintf(ok+"Content-Encoding: gzip\r\nContent-Length: %d\r\n\r\n%s", len(bomb), bomb)), 0},
		{"redirects to a metadata service", text("HTTP/1.1 302 Found\r\nLocation: http://169.254.169.254/latest/meta-data/\r\nContent-Length: 0\r\n\r\n"), 0},
		{"promises more than it sends", text(ok + "Content-Length: 10\r\n\r\nabc"), abi.StatusNetwork},
		{"closes in the middle of a chunk", text(chunked + "a\r\nabc"), abi.StatusNetwork},
		{"closes before the last chunk", text(chunked + "3\r\nabc\r\n"), abi.StatusNetwork},
		{"closes in the middle of the header", text(ok + "X-A"), abi.StatusNetwork},
		{"sends two lengths", text(ok + "Content-Length: 3\r\nContent-Length: 5\r\n\r\nabcde"), abi.StatusNetwork},
		{"sends a negative length", text(ok + "Content-Length: -3\r\n\r\nabcde"), abi.StatusNetwork},
		{"sends an unknown coding", text(ok + "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n"), abi.StatusNetwork},
		{"switches protocols", hold("HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n"), abi.StatusNetwork},
		{"answers in HTTP/2", hold("\x00\x00\x00\x04\x00\x00\x00\x00\x00"), abi.StatusTimeout},
		{"answers with an HTTP/2 status line", text("HTTP/2.0 200 OK\r\n\r\n"), abi.StatusNetwork},
		{"answers in another protocol", text("SSH-2.0-OpenSSH_9.9\r\n"), abi.StatusNetwork},
		{"sends a code below 100", text("HTTP/1.1 099 x\r\n\r\n"), abi.StatusNetwork},
		{"sends a negative code", text("HTTP/1.1 -20 x\r\n\r\n"), abi.StatusNetwork},
		{"sends control bytes in a header's name", text(ok + "X-\x00: a\r\n\r\n"), abi.StatusNetwork},
		{"sends control bytes in a header's value", text(ok + "X-A: \x01\r\n\r\n"), abi.StatusNetwork},
		{"sends a space in a header's name", text(ok + "X A: a\r\n\r\n"), abi.StatusNetwork},
		{"closes at once", text(""), abi.StatusNetwork},
		{"resets the connection", reset, abi.StatusNetwork},
	}
}

func TestHostileUpstreams(t *testing.T) {
	bomb := gzipBomb(t)
	for _, c := range upstreams(bomb) {
		t.Run(c.name, func(t *testing.T) {
			before := runtime.NumGoroutine()
			t.Run("exchange", func(t *testing.T) { survive(t, c.server, c.want, bomb) })
			settled(t, before)
		})
	}
}

// survive runs one exchange with a hostile server and checks the outcome and
// the cost.
func survive(t *testing.T, server func(net.Conn), want abi.Status, bomb string) {
	host := serve(t, server)
	limits := Config{Authorize: Rules{rules(t, host), true}, Timeout: 10 * time.Second, MaxResponseBytes: 1 << 20}
	if want == abi.StatusTimeout {
		limits.Timeout = 100 * time.Millisecond
	}
	client := New(limits)
	var start, end runtime.MemStats
	runtime.ReadMemStats(&start)
	got, err := client.Do(context.Background(), get("http://"+host+"/"), "")
	runtime.ReadMemStats(&end)
	if allocated := end.TotalAlloc - start.TotalAlloc; allocated > 16<<20 {
		t.Errorf("%d bytes allocated", allocated)
	}
	if want == 0 {
		if err != nil {
			t.Fatal(err)
		}
		if res, body := parseResponse(t, "GET", got); res.StatusCode == 200 && body != bomb {
			t.Errorf("%d bytes, want %d", len(body), len(bomb))
		}
		return
	}
	wantFailure(t, err, want, "")
	if text := err.(*Error).Text; strings.Contains(text, "127.0.0.1:") && !strings.Contains(text, host) || strings.Contains(text, "0x") {
		t.Errorf("text %q", text)
	}
}

// Whatever a server does, the exchange ends within its time. The clock is a
// bubble's, which stands still while any goroutine computes, so the bound is exact:
// it does not depend on the machine.
func TestHostileUpstreamsEndInTime(t *testing.T) {
	const timeout, grace = 30 * time.Second, 100 * time.Millisecond
	bomb := gzipBomb(t)
	servers := upstreams(bomb)
	if len(servers) < 22 {
		t.Fatalf("only %d servers", len(servers))
	}
	for _, c := range servers {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var served sync.WaitGroup
				client := New(Config{Authorize: Rules{rules(t, "127.0.0.1"), true}, Timeout: timeout, MaxResponseBytes: 1 << 20})
				client.dial = func(context.Context, *net.Dialer, netip.AddrPort) (net.Conn, error) {
					near, far := net.Pipe()
					served.Go(func() {
						defer far.Close()
						far.Read(make([]byte, 4096))
						c.server(far)
					})
					return near, nil
				}
				defer served.Wait()
				began := time.Now()
				got, err := client.Do(context.Background(), get("http://127.0.0.1/"), "")
				if took := time.Since(began); took > timeout+grace {
					t.Errorf("the exchange took %v, of %v", took, timeout)
				}
				if (err == nil) != (c.want == 0) || len(got) > 2<<20 {
					t.Errorf("%d bytes, %v", len(got), err)
				}
			})
		})
	}
}

// Each special range, plain and inside of every IPv6 form that carries an
// IPv4 address, as the only answer for a name and after a public answer:
// nothing is dialled, and the listeners of this machine hear nothing.
func TestNoSpecialAddressIsConnectedTo(t *testing.T) {
	var hits, dials atomic.Int64
	_, port, _ := net.SplitHostPort(serve(t, func(net.Conn) { hits.Add(1) }))
	if six, err := net.Listen("tcp", "[::1]:"+port); err == nil { // not every machine has IPv6
		done := make(chan struct{})
		t.Cleanup(func() { six.Close(); <-done })
		go func() {
			defer close(done)
			for {
				conn, err := six.Accept()
				if err != nil {
					return
				}
				hits.Add(1)
				conn.Close()
			}
		}()
	}
	var answer []netip.Addr
	c := New(Config{Authorize: Rules{Allow: rules(t, "*:"+port), Private: true}, Resolve: func(context.Context, string) ([]netip.Addr, error) { return answer, nil }})
	c.dial = func(ctx context.Context, d *net.Dialer, to netip.AddrPort) (net.Conn, error) {
		dials.Add(1)
		return dialTCP(ctx, d, to)
	}
	public := netip.MustParseAddr("1.1.1.1")
	tried, forms := 0, 0
	for _, text := range refusedRanges {
		for _, a := range ends(text) {
			spelled := []netip.Addr{a}
			if a.Is4() {
				spelled = append(spelled, embeddings(a)...)
				forms = len(spelled) - 1
			}
			for _, s := range spelled {
				if s.Is4In6() && refuse(s.Unmap(), false) == "" {
					continue // resolvers spell public IPv4 addresses like this
				}
				for _, answer = range [][]netip.Addr{{s}, {public, s}, {s, public}} {
					tried++
					_, err := c.Do(context.Background(), get("http://name.example.com:"+port+"/"), "")
					if statusOf(t, err) != abi.StatusDenied {
						t.Errorf("%v: %v", answer, err)
					}
				}
			}
		}
	}
	if len(refusedRanges) != 37 || forms < 6 || tried < 37*3*3 {
		t.Errorf("%d ranges in %d forms, %d requests", len(refusedRanges), forms, tried)
	}
	if hits.Load() != 0 || dials.Load() != 0 {
		t.Errorf("%d connections were begun, %d reached a listener", dials.Load(), hits.Load())
	}
}

func TestRebinding(t *testing.T) {
	var hits atomic.Int64
	host := serve(t, func(net.Conn) { hits.Add(1) })
	_, port, _ := net.SplitHostPort(host)
	before := runtime.NumGoroutine()
	for _, c := range []struct {
		name    string
		answers [][]string // one per look-up; the last repeats
		dials   int        // in three exchanges
	}{
		{"loopback", [][]string{{"127.0.0.1"}}, 0},
		{"mapped loopback", [][]string{{"::ffff:127.0.0.1"}}, 0},
		{"the unspecified IPv4 address", [][]string{{"0.0.0.0"}}, 0},
		{"the unspecified IPv6 address", [][]string{{"::"}}, 0},
		{"loopback behind a public address", [][]string{{"1.1.1.1", "127.0.0.1"}}, 0},
		{"loopback behind NAT64", [][]string{{"64:ff9b::7f00:1"}}, 0},
		{"loopback with a zone", [][]string{{"::1%lo"}}, 0},
		{"public, then loopback", [][]string{{"1.1.1.1"}, {"127.0.0.1"}}, 1},
		{"public twice, then metadata", [][]string{{"1.1.1.1"}, {"8.8.8.8"}, {"169.254.169.254"}}, 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			lookups := 0
			client := New(Config{Authorize: Rules{Allow: rules(t, "api.example.com:"+port)}, Resolve: func(context.Context, string) ([]netip.Addr, error) {
				answer := c.answers[min(lookups, len(c.answers)-1)]
				lookups++
				return resolveTo(answer...)(context.Background(), "")
			}})
			var r recorder
			client.dial = r.dial
			for range 3 {
				_, err := client.Do(context.Background(), get("http://api.example.com:"+port+"/"), "")
				if s := statusOf(t, err); s != abi.StatusDenied && s != abi.StatusNetwork {
					t.Error(err)
				}
			}
			if len(r.dialled) != c.dials || lookups != 3 {
				t.Errorf("connections to %v in %d look-ups", r.dialled, lookups)
			}
		})
	}
	if hits.Load() != 0 {
		t.Errorf("%d connections reached the listener", hits.Load())
	}
	settled(t, before)
}

// Even if everything before it let an address through, the dialer does not.
func TestTheDialerLooksAgain(t *testing.T) {
	var hits atomic.Int64
	host := serve(t, func(net.Conn) { hits.Add(1) })
	to := netip.MustParseAddrPort(host)
	c := New(Config{})
	for name, d := range map[string]*net.Dialer{
		"a refused address":       c.dialer(to.Addr(), false),
		"another address":         c.dialer(netip.MustParseAddr("127.0.0.2"), true),
		"an address that is none": c.dialer(netip.Addr{}, true),
	} {
		conn, err := dialTCP(context.Background(), d, to)
		if err == nil {
			conn.Close()
			t.Errorf("%s: connected", name)
		}
		wantFailure(t, connectError(target{}, err), abi.StatusDenied, "not allowed")
	}
	if hits.Load() != 0 {
		t.Errorf("%d connections reached the listener", hits.Load())
	}
}

// A redirect is the guest's to follow, and its next request is under the same
// rules.
func TestRedirectsAreNotFollowed(t *testing.T) {
	var hits atomic.Int64
	inner := serve(t, func(c net.Conn) { hits.Add(1) })
	outer := answer(t, "HTTP/1.1 307 Temporary Redirect\r\nLocation: http://"+inner+"/\r\nContent-Length: 0\r\n\r\n")
	c := loopback(t, outer)
	got, err := c.Do(context.Background(), get("http://"+outer), "")
	if err != nil {
		t.Fatal(err)
	}
	res, _ := parseResponse(t, "GET", got)
	if res.StatusCode != http.StatusTemporaryRedirect {
		t.Errorf("status %d", res.StatusCode)
	}
	_, err = c.Do(context.Background(), get(res.Header.Get("Location")), "")
	wantFailure(t, err, abi.StatusDenied, "not an allowed destination")
	if hits.Load() != 0 {
		t.Errorf("%d connections reached the inner server", hits.Load())
	}
}

func TestManyExchangesLeaveNothingBehind(t *testing.T) {
	host := answer(t, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
	before := runtime.NumGoroutine()
	c := loopback(t, host)
	done := make(chan error)
	for range 8 {
		go func() {
			var failure error
			for range 20 {
				if _, err := c.Do(context.Background(), get("http://"+host), ""); err != nil {
					failure = err
				}
			}
			done <- failure
		}()
	}
	for range 8 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	settled(t, before)
}
