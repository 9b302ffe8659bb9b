package daemon

import (
	linked "container/list"
	"net"
	"net/http"
	"sync"
)

// bounded is a listener with a largest number of connections at a time. When there are
// so many, the next one takes the place of the one on which nothing was asked for the
// longest time: a client that only connects would otherwise keep all others out. It
// leaves those beyond in the system's queue, where they cost no descriptor, while all
// are in use.
type bounded struct {
	net.Listener
	quiet *quiet
	seats chan struct{} // has an element for each connection
	end   sync.Once
	ended chan struct{}
}

func bound(l net.Listener, most int, q *quiet) net.Listener {
	return &bounded{Listener: l, quiet: q, seats: make(chan struct{}, most), ended: make(chan struct{})}
}

// Accept implements [net.Listener].
func (b *bounded) Accept() (net.Conn, error) {
	c, err := b.Listener.Accept()
	if err != nil {
		return nil, err
	}
	if !b.seat() {
		c.Close()
		return nil, net.ErrClosed
	}
	return &seated{Conn: c, leave: sync.OnceFunc(func() { <-b.seats })}, nil
}

// seat waits for room. It reports whether there is some before the listener is closed.
func (b *bounded) seat() bool {
	for {
		select {
		case b.seats <- struct{}{}:
			return true
		default:
			b.quiet.closeOne()
		}
		select {
		case b.seats <- struct{}{}:
			return true
		case <-b.quiet.more:
		case <-b.ended:
			return false
		}
	}
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

// quiet are the connections on which no request is served, the one that has been so for
// the longest time first. One whose request has not arrived as far as its body is quiet.
type quiet struct {
	more chan struct{} // says, to one who waits, that there are others than before

	mu    sync.Mutex // guards what follows
	conns linked.List
	at    map[net.Conn]*linked.Element
}

func newQuiet() *quiet {
	return &quiet{more: make(chan struct{}, 1), at: map[net.Conn]*linked.Element{}}
}

// note is for [http.Server.ConnState].
func (q *quiet) note(c net.Conn, state http.ConnState) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if e := q.at[c]; e != nil {
		q.conns.Remove(e)
		delete(q.at, c)
	}
	if state != http.StateNew && state != http.StateIdle {
		return
	}
	q.at[c] = q.conns.PushBack(c)
	select {
	case q.more <- struct{}{}:
	default:
	}
}

// closeOne closes a connection, if there is one. An encrypted one is not told, because
// its client may not listen.
func (q *quiet) closeOne() {
	q.mu.Lock()
	e := q.conns.Front()
	if e == nil {
		q.mu.Unlock()
		return
	}
	c := q.conns.Remove(e).(net.Conn)
	delete(q.at, c)
	q.mu.Unlock()
	if secured, ok := c.(interface{ NetConn() net.Conn }); ok {
		c = secured.NetConn()
	}
	c.Close()
}
