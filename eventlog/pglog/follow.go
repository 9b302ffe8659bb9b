package pglog

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
)

// channel is where writers announce the runs that have grown. A notification holds
// their ids, a line each; an empty one stands for more than fit.
const (
	channel  = "eventlog_events"
	maxNotes = 7900 // bytes of a notification; the server takes less than 8000
)

// notifyEvery spaces notifications. A commit that notifies holds up every other one
// that does, so they are made apart from the commits that write, and few.
const notifyEvery = 10 * time.Millisecond

// notifier tells other processes which runs have grown. What it does not get across is
// found by their polling.
type notifier struct {
	log    *Log
	conn   *pgx.Conn // its goroutine's
	ctx    context.Context
	cancel context.CancelFunc
	done   chan struct{}
	work   chan struct{} // capacity 1
	pid    atomic.Uint32 // of the connection, as the server's notifications name it

	mu   sync.Mutex // guards runs
	runs map[string]struct{}
}

func (n *notifier) init(l *Log) {
	n.log = l
	n.ctx, n.cancel = context.WithCancel(context.Background())
	n.done, n.work = make(chan struct{}), make(chan struct{}, 1)
	n.runs = make(map[string]struct{})
}

// tell adds a run that has grown.
func (n *notifier) tell(runID string) {
	n.mu.Lock()
	n.runs[runID] = struct{}{}
	n.mu.Unlock()
	select {
	case n.work <- struct{}{}:
	default:
	}
}

// take returns the notification of what has been told since it was called last.
func (n *notifier) take() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	var b strings.Builder
	for id := range n.runs {
		if b.Len()+len(id) > maxNotes || strings.Contains(id, "\n") {
			b.Reset()
			break
		}
		b.WriteString(id + "\n")
	}
	clear(n.runs)
	return b.String()
}

// run is the goroutine. It ends with close, after a last notification.
func (n *notifier) run() {
	defer close(n.done)
	defer func() {
		if n.conn != nil {
			hangUp(n.conn)
		}
	}()
	for {
		select {
		case <-n.work:
			n.send()
		case <-n.ctx.Done():
			return
		}
		wait(n.ctx, notifyEvery)
	}
}

// send makes one attempt.
func (n *notifier) send() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if n.conn == nil {
		conn, err := n.log.connect(ctx, notifying)
		if err != nil {
			return
		}
		n.conn = conn
		n.pid.Store(conn.PgConn().PID())
	}
	if _, err := n.conn.Exec(ctx, "SELECT pg_notify($1, $2)", channel, n.take()); err != nil {
		hangUp(n.conn)
		n.conn = nil
	}
}

// notifying are the settings of the notifier's connection. Nothing is written, so there
// is no disk to wait for.
var notifying = map[string]string{"synchronous_commit": "off"}

func (n *notifier) close() {
	n.cancel()
	<-n.done
}

// wait waits until the time has passed or the context has ended.
func wait(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// How often streams look for what they were not told: with and without a connection
// that is notified.
const (
	pollListening = 5 * time.Second
	pollDeaf      = 500 * time.Millisecond
)

// listener wakes streams when another process has appended. It runs once there is a
// stream.
type listener struct {
	log      *Log
	patience time.Duration // pollListening
	once     sync.Once
	ctx      context.Context
	cancel   context.CancelFunc
	done     chan struct{}
}

func (n *listener) init(l *Log) {
	n.log, n.patience, n.done = l, pollListening, make(chan struct{})
	n.ctx, n.cancel = context.WithCancel(context.Background())
}

func (n *listener) start() { n.once.Do(func() { go n.run() }) }

// close ends the goroutine, and keeps it from starting.
func (n *listener) close() {
	n.cancel()
	n.once.Do(func() { close(n.done) })
	<-n.done
}

// run listens, and polls while it cannot.
func (n *listener) run() {
	defer close(n.done)
	for n.ctx.Err() == nil {
		n.listen()
		wait(n.ctx, pollDeaf)
		n.log.hub.WakeAll()
	}
}

// listen wakes streams until the connection breaks, or none is to be had: a standby
// server, for one, notifies nobody.
func (n *listener) listen() {
	ctx, cancel := context.WithTimeout(n.ctx, pollListening)
	conn, err := n.log.connect(ctx, nil)
	if err == nil {
		_, err = conn.Exec(ctx, "LISTEN "+channel)
		defer hangUp(conn)
	}
	cancel()
	if err == nil {
		n.log.hub.WakeAll() // what came before LISTEN was announced to nobody
	}
	for err == nil {
		err = n.next(conn)
	}
}

// next waits for one notification. When none comes, the streams look for themselves,
// and the connection has to show that it lives.
func (n *listener) next(conn *pgx.Conn) error {
	ctx, cancel := context.WithTimeout(n.ctx, n.patience)
	defer cancel()
	note, err := conn.WaitForNotification(ctx)
	switch {
	case err == nil && note.PID == n.log.notifier.pid.Load():
		return nil // of this log, whose streams were woken
	case err == nil && note.Payload != "":
		for id := range strings.Lines(note.Payload) {
			n.log.hub.Wake(strings.TrimSuffix(id, "\n"))
		}
		return nil
	case err != nil && !errors.Is(err, context.DeadlineExceeded):
		return err
	}
	n.log.hub.WakeAll()
	if err == nil {
		return nil
	}
	ctx, cancel = context.WithTimeout(n.ctx, pollListening)
	defer cancel()
	return conn.Ping(ctx)
}
