package daemon

import (
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// clients is a listener whose clients come as they are sent.
type clients chan net.Conn

func (l clients) Accept() (net.Conn, error) {
	if c, open := <-l; open {
		return c, nil
	}
	return nil, net.ErrClosed
}
func (clients) Close() error   { return nil }
func (clients) Addr() net.Addr { return &net.TCPAddr{} }

// connect connects a client, which says something.
func (l clients) connect(t *testing.T, says string) net.Conn {
	t.Helper()
	ours, theirs := net.Pipe()
	t.Cleanup(func() { ours.Close() })
	l <- theirs
	go io.WriteString(ours, says)
	closed(ours) // reads the answers
	synctest.Wait()
	return ours
}

// get is a request with the key of a tenant.
func get(path, tenant string) string {
	return "GET " + path + " HTTP/1.1\r\nHost: h\r\nKey: " + tenant + "\r\n\r\n"
}

// closed reports whether a connection was closed, once what was sent on it is read.
func closed(c net.Conn) bool {
	c.SetReadDeadline(time.Now().Add(time.Millisecond))
	_, err := io.Copy(io.Discard, c)
	return err == nil || errors.Is(err, io.ErrClosedPipe)
}

// limited serves clients, at most limit at a time. A request for /work takes until the
// test ends.
func limited(t *testing.T, limit int, test func(*testing.T, clients, *connections)) {
	synctest.Test(t, func(t *testing.T) {
		l, all := make(clients), newConnections(limit, slog.New(slog.DiscardHandler))
		work := make(chan struct{})
		server := &http.Server{ConnContext: all.context, ConnState: all.state, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, 0),
			Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				c := connOf(r.Context())
				c.begin()
				if tenant := r.Header.Get("Key"); tenant != "" {
					c.claim(tenant)
				}
				if r.URL.Path == "/work" {
					<-work
				}
			})}
		served := make(chan error)
		go func() { served <- server.Serve(limitedListener{l, all}) }()
		defer func() {
			close(work)
			close(l)
			server.Close()
			if err := <-served; !errors.Is(err, http.ErrServerClosed) && !errors.Is(err, net.ErrClosed) {
				t.Error(err)
			}
			synctest.Wait()
			if all.count != 0 || len(all.of) != 0 {
				t.Errorf("%d connections count at the end", all.count)
			}
		}()
		test(t, l, all)
	})
}

// TestConnectionLimitEvicts fills a host with connections in all states and looks
// which one is closed for the next.
func TestConnectionLimitEvicts(t *testing.T) {
	const silent, headers, body = "", "GET / HTTP/1.1\r\nHo", "POST /work HTTP/1.1\r\nHost: h\r\nContent-Length: 9\r\n\r\n{"
	for name, test := range map[string]struct {
		open   []string // of eight places, in this order
		closes []int    // for those that come then, in this order
	}{
		"without a key, the oldest": {
			[]string{get("/work", "a"), silent, headers, body, get("/work", ""), get("/", "a"), get("/work", "b"), silent}, []int{1, 2, 3, 4, 7},
		},
		"some without a key stay, the largest tenant has one less": {
			[]string{silent, headers, get("/work", "a"), get("/work", "a"), get("/work", "a"), get("/work", "b"), get("/work", "b"), get("/work", "c")}, []int{2, 0, 1},
		},
		"of a tenant, an idle one first": {
			[]string{get("/work", "a"), get("/", "a"), get("/work", "a"), get("/", "a"), get("/work", "a"), get("/work", "b"), get("/work", "b"), get("/", "c")}, []int{1, 3, 0},
		},
	} {
		t.Run(name, func(t *testing.T) {
			limited(t, 8, func(t *testing.T, l clients, _ *connections) {
				var conns []net.Conn
				for _, says := range test.open {
					conns = append(conns, l.connect(t, says))
				}
				gone := map[int]bool{}
				for _, next := range test.closes {
					l.connect(t, silent)
					gone[next] = true
					for i, c := range conns {
						if closed(c) != gone[i] {
							t.Fatalf("connection %d of %q: closed %v, when number %d must be the last one closed", i, test.open, !gone[i], next)
						}
					}
				}
			})
		})
	}
}

// TestConnectionsAreBounded has more clients than there may be connections, and the
// connections that were closed stay closed.
func TestConnectionsAreBounded(t *testing.T) {
	limited(t, 3, func(t *testing.T, l clients, all *connections) {
		var conns []net.Conn
		for i := range 20 {
			conns = append(conns, l.connect(t, strings.Repeat(get("/", "a"), i%3)))
			all.mu.Lock()
			count := all.count
			all.mu.Unlock()
			if count != min(i+1, 3) {
				t.Errorf("%d of %d connections count", count, i+1)
			}
		}
		open := 0
		for _, c := range conns {
			if !closed(c) {
				open++
			}
		}
		if open != 3 {
			t.Errorf("%d connections are open, want 3", open)
		}
	})
}
