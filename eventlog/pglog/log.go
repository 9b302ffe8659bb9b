package pglog

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/internal/tail"
)

// Bounds of what waits for the server, for each lane. Append blocks beyond them.
const (
	maxQueued      = 8192     // events
	maxQueuedBytes = 64 << 20 // payload bytes
	// maxIdleRuns is how many open runs keep their cursor while nothing of them is on
	// its way; more are read from the database again when they go on.
	maxIdleRuns = 4096
	// lanes is how many connections write. While one waits for the server's disk the
	// other one's batch is worked on; more gain nothing.
	lanes = 2
)

// Log is an event log in a PostgreSQL database. Use [Open] or [New].
type Log struct {
	pool     *pgxpool.Pool
	ownsPool bool
	opts     Options
	layout   atomic.Int64
	hub      tail.Hub
	lanes    [lanes]*lane
	notifier notifier
	listener listener
	marks    marks

	// mu guards everything below, and the queues. It is never held across a call of the
	// server.
	mu      sync.Mutex
	runs    map[string][]*run // the writers of each run, by rising epoch
	closing bool
	failed  error // the failure that stopped the log
}

var (
	_ eventlog.EventLog      = (*Log)(nil)
	_ eventlog.EventSource   = (*Log)(nil)
	_ eventlog.RunLister     = (*Log)(nil)
	_ eventlog.RunPageLister = (*Log)(nil)
	_ eventlog.RunFinder     = (*Log)(nil)
	_ eventlog.RunPruner     = (*Log)(nil)
	_ eventlog.ModuleStore   = (*Log)(nil)
	_ eventlog.SchemaKeeper  = (*Log)(nil)
	_ eventlog.Transactor    = (*Log)(nil)
	_ eventlog.Fencer        = (*Log)(nil)
)

func newLog(pool *pgxpool.Pool, o Options) *Log {
	l := &Log{pool: pool, opts: o, runs: make(map[string][]*run)}
	for i := range l.lanes {
		l.lanes[i] = newLane(l)
	}
	l.notifier.init(l)
	l.listener.init(l)
	return l
}

// start begins to write, if the log does.
func (l *Log) start() {
	if l.opts.ReadOnly {
		return
	}
	for _, n := range l.lanes {
		go n.write()
	}
	go l.notifier.run()
}

// lane returns the lane that writes the run. It is the same one for all epochs, so
// the events of a run are written in the order in which they were taken.
func (l *Log) lane(runID string) *lane { return l.lanes[gate(runID)%lanes] }

// writable says why the log takes nothing, if so. The caller holds mu.
func (l *Log) writable() error {
	switch {
	case l.closing:
		return eventlog.ErrLogClosed
	case l.opts.ReadOnly:
		return eventlog.ErrReadOnly
	case l.failed != nil:
		return l.failed
	}
	return eventlog.CheckSchema(int(l.layout.Load()), layoutVersion)
}

func (l *Log) checkWritable() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.writable()
}

// failure is what has stopped the log.
func (l *Log) failure() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.failed
}

// readable says why nothing can be read, if so.
func (l *Log) readable() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closing {
		return eventlog.ErrLogClosed
	}
	return eventlog.CheckSchema(int(l.layout.Load()), layoutVersion)
}

// Sync implements [eventlog.EventLog]. A run of which nothing is on its way costs no
// more than a look into a map.
func (l *Log) Sync(ctx context.Context, runID string) error { return l.sync(ctx, runID, 0) }

func (l *Log) sync(ctx context.Context, runID string, epoch uint64) error {
	done, err := l.barrier(runID, epoch)
	if done == nil {
		return err
	}
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// barrier returns a channel that tells when all that is queued of the run in that epoch
// is durable; nil if it is so already.
func (l *Log) barrier(runID string, epoch uint64) (<-chan error, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	r := l.writerOf(runID, epoch)
	switch {
	case l.failed != nil:
		return nil, l.failed
	case r != nil && r.failed != nil:
		return nil, r.failed
	case r == nil || r.durable == r.queued:
		if l.closing {
			return nil, eventlog.ErrLogClosed
		}
		return nil, nil
	}
	done := make(chan error, 1)
	r.waiters = append(r.waiters, waiter{r.queued, done})
	return done, nil
}

// Close implements [eventlog.EventLog]. It writes what is queued, which takes up to
// [Options].Patience when the server is gone, and ends the streams.
func (l *Log) Close() error {
	l.mu.Lock()
	if l.closing {
		l.mu.Unlock()
		return nil
	}
	l.closing = true
	for _, n := range l.lanes {
		n.signal()
	}
	l.mu.Unlock()
	if !l.opts.ReadOnly {
		for _, n := range l.lanes {
			<-n.stopped
		}
		l.notifier.close()
		l.marks.clear(l)
	}
	l.hub.Close()
	l.listener.close()
	if l.ownsPool {
		l.pool.Close()
	}
	return l.failure()
}

// stop ends the log with a failure after which nobody can tell what the database
// holds, or takes. Nothing is tried again: every barrier and every later call gets the
// failure.
func (l *Log) stop(cause error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.failed == nil {
		l.failed = fmt.Errorf("%w: %w", eventlog.ErrLogStopped, cause)
	}
	for _, all := range l.runs {
		for _, r := range all {
			r.answer(r.queued, l.failed)
		}
	}
	for _, n := range l.lanes {
		n.clear()
	}
}
