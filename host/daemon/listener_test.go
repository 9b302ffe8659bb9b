package daemon

import (
	"errors"
	"io"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"
)

// endless is a listener with as many clients as anybody takes.
type endless struct{ net.Listener }

func (endless) Accept() (net.Conn, error) { c, _ := net.Pipe(); return c, nil }
func (endless) Close() error              { return nil }

// guests is a listener whose clients come as they are sent.
type guests chan net.Conn

func (g guests) Accept() (net.Conn, error) {
	if c, open := <-g; open {
		return c, nil
	}
	return nil, net.ErrClosed
}
func (guests) Close() error   { return nil }
func (guests) Addr() net.Addr { return &net.TCPAddr{} }

// enters connects a client, which says something.
func (g guests) enters(t *testing.T, says string) net.Conn {
	t.Helper()
	ours, theirs := net.Pipe()
	t.Cleanup(func() { ours.Close() })
	g <- theirs
	go io.WriteString(ours, says)
	synctest.Wait()
	return ours
}

// isClosed reports whether a connection was closed, once what was sent on it is read.
func isClosed(c net.Conn) bool {
	c.SetReadDeadline(time.Now().Add(time.Millisecond))
	_, err := io.Copy(io.Discard, c)
	return err == nil
}

// TestWhoWaitsForAConnectionGetsThatOfAnIdleOne has as many connections as there may
// be, in the states that they can be in.
func TestWhoWaitsForAConnectionGetsThatOfAnIdleOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const get = "GET / HTTP/1.1\r\nHost: h\r\n\r\n"
		g, q := make(guests), newQuiet()
		l := bound(g, 3, q)
		work := make(chan struct{})
		server := &http.Server{ConnState: q.note, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/work" {
				<-work
			}
		})}
		served := make(chan error)
		go func() { served <- server.Serve(l) }()

		silent := g.enters(t, "")
		begun := g.enters(t, "GET / HTTP/1.1\r\nHo")
		busy := g.enters(t, "GET /work HTTP/1.1\r\nHost: h\r\n\r\n")
		time.Sleep(time.Second)
		idle := g.enters(t, get)
		if !isClosed(silent) || isClosed(begun) || isClosed(idle) {
			t.Error("the fourth client does not have the place of the first")
		}
		third, fourth := g.enters(t, "GET /work HTTP/1.1\r\nHost: h\r\n\r\n"), g.enters(t, "GET /work HTTP/1.1\r\nHost: h\r\n\r\n")
		if !isClosed(begun) || !isClosed(idle) {
			t.Error("two that ask do not have the places of two that do not")
		}
		waits := g.enters(t, "")
		if isClosed(busy) || isClosed(third) || isClosed(fourth) || isClosed(waits) {
			t.Error("one that is served, or that waits, was closed")
		}
		close(work)
		synctest.Wait()
		if open := 4 - closed(busy, third, fourth, waits); open != 3 {
			t.Errorf("%d of the four are open once three are idle, want 3", open)
		}
		close(g)
		server.Close()
		if err := <-served; !errors.Is(err, http.ErrServerClosed) && !errors.Is(err, net.ErrClosed) {
			t.Error(err)
		}
	})
}

func closed(conns ...net.Conn) (n int) {
	for _, c := range conns {
		if isClosed(c) {
			n++
		}
	}
	return n
}

// TestConnectionsAreBounded has more clients than there may be connections.
func TestConnectionsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const most = 3
		l := bound(endless{}, most, newQuiet())
		taken, stopped := make(chan net.Conn, 2*most), make(chan error)
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					stopped <- err
					return
				}
				taken <- c
			}
		}()
		for range most {
			synctest.Wait()
			if len(taken) != most {
				t.Fatalf("%d connections are taken, want %d", len(taken), most)
			}
			c := <-taken
			c.Close()
			c.Close() // counts once
		}
		synctest.Wait()
		if len(taken) != most {
			t.Errorf("%d connections are taken at the end, want %d", len(taken), most)
		}
		l.Close()
		if err := <-stopped; err != net.ErrClosed {
			t.Error(err)
		}
	})
}
