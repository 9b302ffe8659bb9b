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
