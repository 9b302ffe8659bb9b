package pglog

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/starling-host/starling/eventlog/internal/pending"
)

// planTime is how long the server's plan for the statement that writes is kept. A plan
// that was made for an empty table is a bad one for a table of a million runs.
const planTime = 5 * time.Second

// lane is a connection that writes, with its queue.
type lane struct {
	log     *Log
	queue   *pending.Queue[none]
	stopped chan struct{} // closed at the end

	// Of the goroutine that writes.
	conn    *pgx.Conn // nil while there is no connection
	planned time.Time // when the plans were made
}

func newLane(l *Log) *lane {
	return &lane{log: l, queue: l.runs.NewQueue(), stopped: make(chan struct{})}
}

// write is the goroutine. It ends with the log, or with the first batch that cannot be
// written.
func (n *lane) write() {
	defer close(n.stopped)
	defer n.disconnect()
	var items []item
	var b batch
	var took time.Duration // by the batch before
	for {
		if answered := len(b.runs); answered > 1 {
			n.queue.Gather(answered, pending.GatherTime(took))
		}
		b.reset()
		if items = n.queue.Take(items); len(items) == 0 {
			return
		}
		b.fill(items)
		began := time.Now()
		lost, err := n.store(&b)
		took = time.Since(began)
		if err != nil {
			n.log.runs.Stop(err)
			return
		}
		n.log.acknowledge(&b, lost)
	}
}

// conflicts has the error of each run that could not be continued.
type conflicts map[*run]error

// store writes the batch, and tries again when the connection breaks. An attempt whose
// outcome is not known needs no answer: to write the batch again changes nothing if it
// is there already (see settle), whether the server has committed it, has lost it, or is
// still at work on it.
//
// An error is final: the server refuses the batch, or could not be reached for as long
// as Options.Patience. What the database holds of the batch is then unknown.
func (n *lane) store(b *batch) (conflicts, error) {
	var since time.Time
	for again := 0; ; again++ {
		lost, err := n.attempt(b, again > 0)
		if err == nil || !isTransient(err) {
			return lost, err
		}
		if !isRefusal(err) {
			n.disconnect()
		}
		if since.IsZero() {
			since = time.Now()
		}
		if time.Since(since) >= n.log.opts.patience() {
			return nil, fmt.Errorf("pglog: tried %d times: %w", again+1, err)
		}
		time.Sleep(pause(again))
	}
}

// pause is how long to wait before attempt number n+2, so that a server that starts
// again is not overrun.
func pause(n int) time.Duration { return min(time.Second, time.Millisecond<<min(n, 10)) }

// attempt writes the batch once.
func (n *lane) attempt(b *batch, again bool) (conflicts, error) {
	ctx, cancel := context.WithTimeout(context.Background(), attemptTime)
	defer cancel()
	if err := n.prepare(ctx); err != nil {
		return nil, err
	}
	refused, err := b.columns.insert(ctx, n.conn, gates(b.columns.runIDs()))
	switch {
	case isConflict(err) && len(b.runs) > 1:
		return n.attemptEach(b, again)
	case isConflict(err):
		return conflicts{b.runs[0]: pending.Continued(b.runs[0].ID)}, nil
	case err != nil:
		return nil, fmt.Errorf("pglog: store %d events: %w", len(b.items), err)
	case len(refused) == 0:
		return nil, nil
	}
	return settle(ctx, n.conn, b, refused, again)
}

// attemptEach writes the runs of the batch one by one. It is for a batch of which a
// program that does not keep the table run has written an event before.
func (n *lane) attemptEach(b *batch, again bool) (conflicts, error) {
	lost := make(conflicts)
	for _, one := range b.split() {
		bad, err := n.attempt(one, again)
		if err != nil {
			return nil, err
		}
		for r, err := range bad {
			lost[r] = err
		}
	}
	return lost, nil
}

// prepare sees to a connection with plans that are not too old.
func (n *lane) prepare(ctx context.Context) (err error) {
	if n.conn != nil && time.Since(n.planned) < planTime {
		return nil
	}
	first := "DISCARD PLANS"
	if n.conn == nil {
		if n.conn, err = n.log.connect(ctx, writing); err != nil {
			return err
		}
		first = fmt.Sprintf(durably, false)
	}
	n.planned = time.Now()
	if _, err := n.conn.Exec(ctx, first); err != nil {
		n.disconnect()
		return fmt.Errorf("pglog: %w", err)
	}
	return nil
}

func (n *lane) disconnect() {
	if n.conn != nil {
		hangUp(n.conn)
		n.conn = nil
	}
}

// writing are the settings of the connections that write. The server gives up a
// statement when we have, and does not compile or scan what is written in small pieces.
var writing = map[string]string{
	"default_transaction_isolation": "read committed",
	"statement_timeout":             fmt.Sprint(attemptTime.Milliseconds()),
	"jit":                           "off",
	"enable_seqscan":                "off",
}

// durably makes the connection wait for the disk, should the operator have set that
// commits do not. The stricter settings, which wait for standby servers, stay.
const durably = "SELECT set_config('synchronous_commit', 'on', %v) WHERE current_setting('synchronous_commit') = 'off'"

// connect makes a connection outside of the pool, in the pool's way.
func (l *Log) connect(ctx context.Context, settings map[string]string) (*pgx.Conn, error) {
	return l.connectHearing(ctx, settings, l.pool.Config().ConnConfig.OnNotice)
}

// connectHearing is connect with somebody who is told what the server says by the way.
func (l *Log) connectHearing(ctx context.Context, settings map[string]string, hear pgconn.NoticeHandler) (*pgx.Conn, error) {
	config := l.pool.Config()
	config.ConnConfig.OnNotice = hear
	config.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeCacheStatement
	for name, value := range settings {
		config.ConnConfig.RuntimeParams[name] = value
	}
	if config.BeforeConnect != nil {
		if err := config.BeforeConnect(ctx, config.ConnConfig); err != nil {
			return nil, err
		}
	}
	conn, err := pgx.ConnectConfig(ctx, config.ConnConfig)
	if err != nil {
		return nil, fmt.Errorf("pglog: %w", err)
	}
	if config.AfterConnect != nil {
		err = config.AfterConnect(ctx, conn)
	}
	if err != nil {
		hangUp(conn)
		return nil, err
	}
	return conn, nil
}

// hangUp closes a connection without waiting for a server that may be gone.
func hangUp(conn *pgx.Conn) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	conn.Close(ctx)
}

// acknowledge answers the barriers of a batch that is durable, and hands its events to
// who follows their runs. The runs in lost are given up.
func (l *Log) acknowledge(b *batch, lost conflicts) {
	l.runs.Lock()
	defer l.runs.Unlock()
	for i, r := range b.runs {
		if err := lost[r]; err != nil {
			r.GiveUp(err)
			continue
		}
		l.runs.Durable(r, b.columns.rows[i].stands.LastSeq)
		l.notifier.tell(r.ID)
	}
	for _, it := range b.items {
		if lost[it.Run] == nil {
			l.hub.Hand(it.Event)
		}
	}
}
