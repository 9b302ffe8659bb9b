package sqlitelog

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/internal/tail"
)

// Bounds of what waits for the disk. Append blocks beyond them.
const (
	maxQueued      = 8192     // events
	maxQueuedBytes = 64 << 20 // payload bytes
	// maxIdleRuns is how many open runs keep their cursor while nothing of
	// them is on its way; more are read from the file again when they go on.
	maxIdleRuns = 4096
)

// Log is an event log in a SQLite file. Use [Open].
type Log struct {
	path    string
	opts    Options
	readers *readers
	hub     tail.Hub
	poll    poller
	lock    *fileLock // the writer's, once it runs
	layout  atomic.Int64

	writer writer // its fields belong to the goroutine that runs it

	// mu guards everything below. It is never held across a call of SQLite.
	mu      sync.Mutex
	runs    map[string][]*run // the writers of each run, by rising epoch
	queue   []item
	bytes   int           // payload bytes in queue
	room    chan struct{} // closed, and made anew, when the queue gets shorter
	work    chan struct{} // capacity 1: there is something in queue, or closing was set
	running bool          // the writer was started
	closing bool
	failed  error // the failure that stopped the log
	stopped chan struct{}
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

func newLog(path string, o Options) *Log {
	return &Log{
		path: path, opts: o,
		runs:    make(map[string][]*run),
		room:    make(chan struct{}),
		work:    make(chan struct{}, 1),
		stopped: make(chan struct{}),
	}
}

// writable says why the log takes nothing, if so. The caller holds mu.
func (l *Log) writable() error {
	switch {
	case l.closing:
		return eventlog.ErrLogClosed
	case l.opts.ReadOnly:
		return eventlog.ErrReadOnly
	case l.failed != nil:
		return l.failed
	case !l.running:
		return eventlog.CheckSchema(int(l.layout.Load()), layoutVersion)
	}
	return nil
}

// enqueue waits for room and hands the item to the writer.
func (l *Log) enqueue(ctx context.Context, it item) error {
	for {
		room, err := l.tryEnqueue(it)
		if room == nil {
			return err
		}
		select {
		case <-room:
		case <-ctx.Done():
			return fmt.Errorf("sqlitelog: %d events wait for the disk: %w", maxQueued, context.Cause(ctx))
		}
	}
}

// tryEnqueue returns a channel to wait on when the queue is full.
func (l *Log) tryEnqueue(it item) (room <-chan struct{}, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.writable(); err != nil {
		return nil, err
	}
	switch r := it.run; {
	case r != nil && r.failed != nil:
		return nil, r.failed
	case r != nil && !r.loaded.Load():
		return nil, errMoved
	}
	if len(l.queue) >= maxQueued || l.bytes >= maxQueuedBytes {
		return l.room, nil
	}
	l.queue = append(l.queue, it)
	l.bytes += it.size()
	if it.run != nil {
		it.run.queued = it.event.Seq
		if it.run.durable == 0 {
			it.run.durable = it.event.Seq - 1
		}
		it.run.ended = it.event.Kind.Terminal()
	}
	l.signal()
	return nil, nil
}

// signal wakes the writer.
func (l *Log) signal() {
	select {
	case l.work <- struct{}{}:
	default:
	}
}

// Sync implements [eventlog.EventLog]. A run of which nothing is on its way
// costs no more than a look into a map.
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

// barrier returns a channel that tells when all that is queued of the run in that
// epoch is durable; nil if it is so already.
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

// Close implements [eventlog.EventLog]. It writes what is queued, ends the
// streams and lets SQLite move the WAL into the database.
func (l *Log) Close() error {
	l.mu.Lock()
	if l.closing {
		l.mu.Unlock()
		return nil
	}
	l.closing = true
	running := l.running
	l.signal()
	l.mu.Unlock()
	if running {
		<-l.stopped
	}
	l.hub.Close()
	l.poll.close()
	return errors.Join(l.failed, l.abort())
}

// abort closes the files, also of a log that was not opened to the end. The
// connection that writes goes last, because the last one to close checkpoints.
func (l *Log) abort() error {
	var errs []error
	if l.readers != nil {
		errs = append(errs, l.readers.close())
	}
	if l.writer.conn != nil {
		errs = append(errs, l.closeWriter())
	}
	if l.lock != nil {
		errs = append(errs, l.lock.Close())
	}
	return errors.Join(errs...)
}

func (l *Log) closeWriter() error {
	ctx, cancel := context.WithTimeout(context.Background(), lockPatience)
	defer cancel()
	if err := l.lock.Lock(ctx); err != nil {
		return errors.Join(err, l.writer.close())
	}
	return errors.Join(l.writer.close(), l.lock.Unlock())
}
