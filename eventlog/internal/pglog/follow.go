package pglog

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/starling-host/starling/eventlog/internal/tail"
	"github.com/starling-host/starling/internal/await"
)

// channel is where writers announce the runs that have grown. A notification holds
// their ids, a line each; an empty one means that they did not fit. A notification
// of a signal carries no data, see [Log.Signal].
const (
	channel  = "eventlog_events"
	signals  = "starling_signal"
	maxNotes = 7900 // bytes of a notification; the server takes less than 8000
)

// notifyEvery spaces notifications. A commit that notifies blocks every other
// commit that notifies, so notifications are few and have commits of their own.
const notifyEvery = 10 * time.Millisecond

// notifier tells other processes which runs have grown, and passes signals on. Other
// processes find by polling what a lost notification would have announced.
type notifier struct {
	log    *Log
	conn   *pgx.Conn // its goroutine's
	ctx    context.Context
	cancel context.CancelFunc
	done   chan struct{}
	work   chan struct{} // capacity 1
	pid    atomic.Uint32 // of the connection, as the server's notifications name it

	mu     sync.Mutex // guards runs and signal
	runs   map[string]struct{}
	signal bool
}

func (n *notifier) init(l *Log) {
	n.log = l
	n.ctx, n.cancel = context.WithCancel(context.Background())
	n.done, n.work = make(chan struct{}), make(chan struct{}, 1)
	n.runs = make(map[string]struct{})
}

// tell adds a run that has grown.
func (n *notifier) tell(runID string) { n.add(func() { n.runs[runID] = struct{}{} }) }

// Signal implements [eventlog.Shared].
func (l *Log) Signal() { l.notifier.add(func() { l.notifier.signal = true }) }

// add has something sent soon.
func (n *notifier) add(what func()) {
	n.mu.Lock()
	what()
	n.mu.Unlock()
	await.Offer(n.work, struct{}{})
}

// take returns what to send: the runs that have grown, if any, and whether there was a
// signal.
func (n *notifier) take() (runs string, grown, signal bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	signal, n.signal = n.signal, false
	grown = len(n.runs) > 0
	var b strings.Builder
	for id := range n.runs {
		if b.Len()+len(id) > maxNotes || strings.Contains(id, "\n") {
			b.Reset()
			break
		}
		b.WriteString(id + "\n")
	}
	clear(n.runs)
	return b.String(), grown, signal
}

// run is the goroutine. It ends with ctx, once it has sent everything queued before.
func (n *notifier) run() {
	defer close(n.done)
	defer func() {
		if n.conn != nil {
			closeConn(n.conn)
		}
	}()
	for {
		select {
		case <-n.work:
			n.send()
		case <-n.ctx.Done():
			if len(n.work) > 0 {
				n.send()
			}
			return
		}
		await.Pause(n.ctx, notifyEvery)
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
		var pid uint32 // a pooler gives its clients other ones
		if err := conn.QueryRow(ctx, "SELECT pg_backend_pid()").Scan(&pid); err != nil {
			closeConn(n.conn)
			n.conn = nil
			return
		}
		n.pid.Store(pid)
	}
	runs, grown, signal := n.take()
	const sql = "SELECT pg_notify(c, p) FROM (VALUES ($1, $2, $3::bool), ($4, '', $5::bool)) AS n(c, p, wanted) WHERE wanted"
	if _, err := n.conn.Exec(ctx, sql, channel, runs, grown, signals, signal); err != nil {
		closeConn(n.conn)
		n.conn = nil
	}
}

// notifying are the settings of the notifier's connection. It writes nothing, so there
// is no disk to wait for.
var notifying = map[string]string{"synchronous_commit": "off"}

// How often streams poll, with and without a connection that receives
// notifications.
const (
	pollListening = 5 * time.Second
	pollDeaf      = 500 * time.Millisecond
)

// listener wakes streams when another process has appended, and receives signals. It
// runs once there is a stream, or a subscriber of signals.
type listener struct {
	tail.Watcher
	log  *Log
	poll time.Duration // pollListening

	mu    sync.Mutex           // guards heard
	heard map[*func()]struct{} // to be called after a signal
}

func (n *listener) init(l *Log) {
	n.log, n.poll, n.heard = l, pollListening, make(map[*func()]struct{})
}

// OnSignal implements [eventlog.Shared].
func (l *Log) OnSignal(heard func()) (stop func()) {
	n := &l.listener
	n.mu.Lock()
	defer n.mu.Unlock()
	n.heard[&heard] = struct{}{}
	n.Start(n.run)
	return func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		delete(n.heard, &heard)
	}
}

// signalled tells of a signal, or of some that may have been lost.
func (n *listener) signalled() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for heard := range n.heard {
		(*heard)()
	}
}

// wakeAll has everything looked at that nothing was heard of.
func (n *listener) wakeAll() {
	n.log.hub.WakeAll()
	n.signalled()
}

// Now implements [eventlog.Shared].
func (l *Log) Now(ctx context.Context) (now time.Time, err error) {
	if err = l.pool.QueryRow(ctx, "SELECT clock_timestamp()").Scan(&now); err != nil {
		err = fmt.Errorf("pglog: %w", orUnavailable(err))
	}
	return now, err
}

// run listens, and polls while it cannot.
func (n *listener) run(ctx context.Context) {
	for ctx.Err() == nil {
		n.listen(ctx)
		await.Pause(ctx, pollDeaf)
		n.wakeAll()
	}
}

// listen wakes streams until the connection breaks or cannot be made: a standby
// server, for one, sends no notifications.
func (n *listener) listen(ctx context.Context) {
	soon, cancel := context.WithTimeout(ctx, pollListening)
	conn, err := n.log.connect(soon, nil)
	if err == nil {
		_, err = conn.Exec(soon, "LISTEN "+channel+"; LISTEN "+signals)
		defer closeConn(conn)
	}
	cancel()
	if err == nil {
		n.wakeAll() // what came before LISTEN was not heard
	}
	for err == nil {
		err = n.next(ctx, conn)
	}
}

// next waits for one notification. When none comes, the streams poll, and the
// connection has to prove that it is alive.
func (n *listener) next(ctx context.Context, conn *pgx.Conn) error {
	wait, cancel := context.WithTimeout(ctx, n.poll)
	defer cancel()
	note, err := conn.WaitForNotification(wait)
	switch {
	case err == nil && note.PID == n.log.notifier.pid.Load():
		return nil // of this log, which has woken its own
	case err == nil && note.Channel == signals:
		n.signalled()
		return nil
	case err == nil && note.Payload != "":
		for id := range strings.Lines(note.Payload) {
			n.log.hub.Wake(strings.TrimSuffix(id, "\n"))
		}
		return nil
	case err != nil && !errors.Is(err, context.DeadlineExceeded):
		return err
	}
	n.wakeAll()
	if err == nil {
		return nil
	}
	wait, cancel = context.WithTimeout(ctx, pollListening)
	defer cancel()
	return conn.Ping(wait)
}
