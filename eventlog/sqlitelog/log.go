package sqlitelog

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/event"
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
	runs    map[string]*run
	queue   []item
	bytes   int           // payload bytes in queue
	room    chan struct{} // closed, and made anew, when the queue gets shorter
	work    chan struct{} // capacity 1: there is something in queue, or closing was set
	running bool          // the writer was started
	closing bool
	failed  error // the failure that stopped the log
	stopped chan struct{}
}

// run is a run that this process writes. It is forgotten once it has ended and
// is durable.
type run struct {
	id string

	// The writer's.
	no    int64               // its row in the table run, zero before there is one
	first uint64              // number of its first event in the current transaction
	after eventlog.RunSummary // what the current transaction makes of it

	// appending serialises Append, and guards cursor and loaded.
	appending sync.Mutex
	loaded    bool
	cursor    eventlog.Cursor

	// Guarded by Log.mu.
	users   int // calls of Append that hold the run
	ended   bool
	queued  uint64 // number of the last event that was taken
	durable uint64 // number of the last event that is on disk
	failed  error  // another process continued the run
	waiters []waiter
}

// waiter is a barrier: done gets nil once event seq is durable.
type waiter struct {
	seq  uint64
	done chan error
}

// item is one entry of the queue: an event, a module, or a pruning.
type item struct {
	run     *run
	event   event.Event
	after   eventlog.RunSummary // of the run, with this event
	module  *module
	pruning *pruning
}

// done is where whoever waits for a module or a pruning is told.
func (it item) done() chan<- error {
	switch {
	case it.module != nil:
		return it.module.done
	case it.pruning != nil:
		return it.pruning.done
	}
	return nil
}

func (it item) size() int {
	if it.module != nil {
		return len(it.module.wasm)
	}
	return len(it.event.Payload)
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
)

func newLog(path string, o Options) *Log {
	return &Log{
		path: path, opts: o,
		runs:    make(map[string]*run),
		room:    make(chan struct{}),
		work:    make(chan struct{}, 1),
		stopped: make(chan struct{}),
	}
}

// Append implements [eventlog.EventLog]. It checks the event in memory and
// queues it; only the first event that this process appends to a run looks
// into the file, to find where the run stands.
func (l *Log) Append(ctx context.Context, runID string, ev event.Event) error {
	r, err := l.hold(runID)
	if err != nil {
		return err
	}
	defer l.release(r)
	r.appending.Lock()
	defer r.appending.Unlock()
	if err := l.load(ctx, r); err != nil {
		return err
	}
	next := r.cursor
	if err := next.Append(runID, ev); err != nil {
		return err
	}
	if err := l.enqueue(ctx, item{run: r, event: ev, after: next.Run()}); err != nil {
		return err
	}
	r.cursor = next
	return nil
}

// hold returns the run, which stays until it is released.
func (l *Log) hold(runID string) (*run, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.writable(); err != nil {
		return nil, err
	}
	r := l.runs[runID]
	if r == nil {
		if len(l.runs) >= maxIdleRuns {
			l.forgetIdle()
		}
		r = &run{id: runID}
		l.runs[runID] = r
	}
	if r.failed != nil {
		return nil, r.failed
	}
	r.users++
	return r, nil
}

func (l *Log) release(r *run) {
	l.mu.Lock()
	defer l.mu.Unlock()
	r.users--
	if r.ended || r.queued == 0 {
		l.forget(r)
	}
}

// forget drops a run of which nothing is on its way. A run that failed stays,
// so that no later barrier takes its lost events for durable.
func (l *Log) forget(r *run) {
	if r.users == 0 && r.queued == r.durable && len(r.waiters) == 0 && r.failed == nil {
		delete(l.runs, r.id)
	}
}

func (l *Log) forgetIdle() {
	for _, r := range l.runs {
		l.forget(r)
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

// load finds where the run stands, once. The caller holds r.appending.
func (l *Log) load(ctx context.Context, r *run) error {
	if r.loaded {
		return nil
	}
	err := l.readers.with(ctx, func(rd *reader) error {
		no, s, err := rd.run(ctx, r.id)
		if err == nil {
			r.no, r.cursor = no, eventlog.NewCursor(s)
		}
		return err
	})
	if err != nil && !errors.Is(err, eventlog.ErrRunNotFound) {
		return err
	}
	r.loaded = true
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
	if it.run != nil && it.run.failed != nil {
		return nil, it.run.failed
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
func (l *Log) Sync(ctx context.Context, runID string) error {
	done, err := l.barrier(runID)
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

func (l *Log) barrier(runID string) (<-chan error, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	r := l.runs[runID]
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
