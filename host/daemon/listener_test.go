package daemon

import (
	"net"
	"testing"
	"testing/synctest"
)

// endless is a listener with as many clients as anybody takes.
type endless struct{ net.Listener }

func (endless) Accept() (net.Conn, error) { c, _ := net.Pipe(); return c, nil }
func (endless) Close() error              { return nil }

// TestConnectionsAreBounded has more clients than there may be connections.
func TestConnectionsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const most = 3
		l := bound(endless{}, most)
		var taken []net.Conn
		stopped := make(chan error)
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					stopped <- err
					return
				}
				taken = append(taken, c)
			}
		}()
		for want := most; want < 2*most; want++ {
			synctest.Wait()
			if len(taken) != want {
				t.Fatalf("%d connections were taken, want %d", len(taken), want)
			}
			taken[0].Close()
			taken[0].Close() // counts once
			taken = append(taken[1:], taken[0])
		}
		l.Close()
		if err := <-stopped; err != net.ErrClosed {
			t.Error(err)
		}
	})
}
