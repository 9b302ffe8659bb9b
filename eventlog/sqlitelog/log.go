package sqlitelog

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync/atomic"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/eventlog/internal/pending"
	"github.com/starling-host/starling/eventlog/internal/tail"
)

// Log is an event log in a SQLite file. Use [Open].
type Log struct {
	path    string
	file    fs.FileInfo // what was at the path when it was opened
	opts    Options
	readers *readers
	hub     tail.Hub
	poll    poller
	lock    *fileLock // the writer's, once it runs
	layout  atomic.Int64

	compared compared

	writer  writer // its fields belong to the goroutine that runs it
	runs    *pending.Runs[row]
	queue   *pending.Queue[row] // what waits for the writer
	running atomic.Bool         // the writer was started
	stopped chan struct{}       // closed when it has ended

	checkpointer *checkpointer // nil until the writer is started
}

var (
	_ eventlog.EventLog      = (*Log)(nil)
	_ eventlog.EventSource   = (*Log)(nil)
	_ eventlog.RunLister     = (*Log)(nil)
	_ eventlog.RunPageLister = (*Log)(nil)
	_ eventlog.RunFinder     = (*Log)(nil)
	_ eventlog.RunPruner     = (*Log)(nil)
	_ eventlog.ModuleStore   = (*Log)(nil)
	_ eventlog.ModuleKeeper  = (*Log)(nil)
	_ eventlog.SchemaKeeper  = (*Log)(nil)
	_ eventlog.Transactor    = (*Log)(nil)
	_ eventlog.Fencer        = (*Log)(nil)
)

func newLog(path string, o Options) *Log {
	l := &Log{path: path, opts: o, stopped: make(chan struct{}), poll: poller{version: dataVersion}}
	l.runs = pending.New(pending.Backend[row]{
		Name: "sqlitelog", Sink: "disk",
		Find: l.find, Refuse: l.refuse,
		Queue: func(string) *pending.Queue[row] { return l.queue },
	})
	l.queue = l.runs.NewQueue()
	return l
}

// refuse says why the log takes nothing although it is open, if so.
func (l *Log) refuse() error {
	switch {
	case l.opts.ReadOnly:
		return eventlog.ErrReadOnly
	case !l.running.Load():
		return eventlog.CheckSchema(int(l.layout.Load()), layoutVersion)
	}
	return nil
}

// inPlace reports that the file is not at its path any more: it was taken away, or
// another one is there. Whoever opens the path then finds nothing of what is written.
func (l *Log) inPlace() error {
	info, err := os.Stat(l.path)
	if err != nil {
		return fmt.Errorf("sqlitelog: %w", err)
	}
	if !os.SameFile(info, l.file) {
		return fmt.Errorf("sqlitelog: %s: another file is there than the log that is open", l.path)
	}
	return nil
}

// Append implements [eventlog.EventLog]. It checks the event in memory and
// queues it; only the first event that this process appends to a run looks
// into the file, to find where the run stands.
func (l *Log) Append(ctx context.Context, runID string, ev event.Event) error {
	return l.runs.Append(ctx, runID, 0, ev)
}

// Sync implements [eventlog.EventLog]. A run of which nothing is on its way
// costs no more than a look into a map.
func (l *Log) Sync(ctx context.Context, runID string) error { return l.runs.Sync(ctx, runID, 0) }

// Close implements [eventlog.EventLog]. It writes what is queued, ends the
// streams and lets SQLite move the WAL into the database.
func (l *Log) Close() error {
	if !l.runs.Close() {
		return nil
	}
	if l.running.Load() {
		<-l.stopped
	}
	l.hub.Close()
	l.poll.close()
	return errors.Join(l.runs.Failure(), l.abort())
}

// abort closes the files, also of a log that was not opened to the end. The
// connection that writes goes last, because the last one to close checkpoints.
func (l *Log) abort() error {
	var errs []error
	if l.checkpointer != nil {
		close(l.checkpointer.wake)
		<-l.checkpointer.ended
	}
	if l.readers != nil {
		errs = append(errs, l.readers.close())
		if l.opts.ReadOnly {
			l.tidy()
		}
	}
	if l.writer.conn != nil {
		errs = append(errs, l.closeWriter())
	}
	if l.lock != nil {
		errs = append(errs, l.lock.Close())
	}
	return errors.Join(errs...)
}

// tidy removes what reading leaves beside a file: an empty WAL and its index. A
// connection that may write does so when it is closed, unless others have the file open.
// Where there can be none, they stay.
func (l *Log) tidy() {
	ctx, cancel := context.WithTimeout(context.Background(), lockPatience)
	defer cancel()
	if info, err := os.Lstat(l.path + "-wal"); err != nil || info.Size() > 0 {
		return
	}
	if c, err := connect(ctx, l.path, "mode=rw"); err == nil {
		_, _ = c.queryInt(ctx, "PRAGMA user_version") // only now it knows of the WAL
		_ = c.Close()
	}
}

func (l *Log) closeWriter() error {
	ctx, cancel := context.WithTimeout(context.Background(), lockPatience)
	defer cancel()
	if err := l.lock.Lock(ctx); err != nil {
		return errors.Join(err, l.writer.close())
	}
	return errors.Join(l.writer.close(), l.lock.Unlock())
}
