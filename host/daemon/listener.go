package daemon

import (
	"net"
	"sync"
)

// bounded is a listener with a largest number of connections at a time. It leaves
// those beyond in the system's queue, where they cost no descriptor, until one is
// closed: by its client, or by the bounds on what a connection may take.
type bounded struct {
	net.Listener
	seats chan struct{} // has an element for each connection
	end   sync.Once
	ended chan struct{}
}

func bound(l net.Listener, most int) net.Listener {
	return &bounded{Listener: l, seats: make(chan struct{}, most), ended: make(chan struct{})}
}

// Accept implements [net.Listener].
func (b *bounded) Accept() (net.Conn, error) {
	select {
	case b.seats <- struct{}{}:
	case <-b.ended:
		return nil, net.ErrClosed
	}
	c, err := b.Listener.Accept()
	if err != nil {
		<-b.seats
		return nil, err
	}
	return &seated{Conn: c, leave: sync.OnceFunc(func() { <-b.seats })}, nil
}

// Close implements [net.Listener].
func (b *bounded) Close() error {
	b.end.Do(func() { close(b.ended) })
	return b.Listener.Close()
}

// seated is a connection that counts.
type seated struct {
	net.Conn
	leave func()
}

func (s *seated) Close() error {
	defer s.leave()
	return s.Conn.Close()
}
