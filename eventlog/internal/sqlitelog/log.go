package sqlitelog

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync/atomic"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/eventlog/internal/dblog"
	"github.com/starling-host/starling/eventlog/internal/pending"
	"github.com/starling-host/starling/eventlog/internal/tail"
)

// Log is an event log in a SQLite file. Use [Open].
type Log struct {
	common
	index   *dblog.Backend
	path    string
	file    fs.FileInfo // the file at the path when it was opened
	opts    Options
	readers *readers
	hub     tail.Hub
	poll    poller
	lock    *fileLock // the writer's, once it runs
	layout  atomic.Int64

	compared compared

	writer  writer // its fields belong to the goroutine that runs it
	runs    *pending.Runs[row]
	running atomic.Bool   // the writer was started
	stopped chan struct{} // closed when it has ended

	checkpointer *checkpointer // nil until the writer is started
}

var _ eventlog.Database = (*Log)(nil)

type common = dblog.Log

func newLog(path string, o Options) *Log {
	l := &Log{path: path, opts: o, stopped: make(chan struct{}), poll: poller{version: dataVersion}}
	l.runs = pending.New(pending.Backend[row]{
		Name: "sqlitelog", Sink: "disk",
		Find: l.find, Refuse: l.refuse, Restart: l.restart,
		Uses: func(ctx context.Context, ev event.Event) ([]canon.Hash, error) { return l.index.Uses(ctx, ev) },
	})
	l.index = &dblog.Backend{
		SQL: dialect, Runs: l.runs, Indexed: l.indexed, Counts: l.counts, Read: l.read, Page: l.page, Behind: l.behind, BringUp: l.reindex, Log: l,
		StoreModule: l.storeModule, MayRemoveModules: l.mayRemoveModules,
	}
	l.common = dblog.NewLog(l.index, l)
	return l
}

// refuse returns the reason why an open log takes no events, or nil.
func (l *Log) refuse() error {
	switch {
	case l.opts.ReadOnly:
		return eventlog.ErrReadOnly
	case !l.running.Load():
		return eventlog.CheckSchema(int(l.layout.Load()), layoutVersion)
	}
	return nil
}

// inPlace returns an error if the file is no longer at its path, because it was removed or
// replaced. A process that opens the path would not find the written events.
func (l *Log) inPlace() error {
	info, err := os.Stat(l.path)
	if err != nil {
		return fmt.Errorf("sqlitelog: %w", err)
	}
	if !os.SameFile(info, l.file) {
		return fmt.Errorf("%w: %s: another file is there than the log that is open", eventlog.ErrLogLost, l.path)
	}
	return nil
}

// indexed and counts are Indexed and Counts of [dblog.Backend].
func (l *Log) indexed() bool { return l.layout.Load() > seedLayout }
func (l *Log) counts() bool  { return l.layout.Load() > uncountedLayout }

// Close implements [eventlog.EventLog]. It writes the queued events, ends the
// streams and lets SQLite move the WAL into the database.
func (l *Log) Close() error {
	if !l.runs.Close() {
		return nil
	}
	if l.running.Load() {
		<-l.stopped
	}
	l.hub.Close()
	l.poll.Close()
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
			l.removeSidecars()
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

// removeSidecars removes what reading leaves beside a file: an empty WAL and its index. A
// connection that may write does so when it is closed, unless others have the file open.
// Where there can be none, they stay.
func (l *Log) removeSidecars() {
	ctx, cancel := context.WithTimeout(context.Background(), lockTimeout)
	defer cancel()
	if info, err := os.Lstat(l.path + "-wal"); err != nil || info.Size() > 0 {
		return
	}
	if c, err := connect(ctx, l.path, "mode=rw"); err == nil {
		_, _ = c.integer(ctx, "PRAGMA user_version") // only now it knows of the WAL
		_ = c.Close()
	}
}

func (l *Log) closeWriter() error {
	ctx, cancel := context.WithTimeout(context.Background(), lockTimeout)
	defer cancel()
	if err := l.lock.Lock(ctx); err != nil {
		return errors.Join(err, l.writer.conn.Close())
	}
	return errors.Join(l.writer.conn.Close(), l.lock.Unlock())
}

// run is a run that this process writes.
type run = pending.Run[row]

// item is one entry of the queue: an event, or a task.
type item = pending.Item[row]

// row is the writer's state of a run.
type row struct {
	no    int64               // its number in the table run; zero before it has one
	first uint64              // number of the run's first event that is not in its row yet
	after eventlog.RunSummary // after the current transaction
	bytes int                 // of the payloads that are not in its row yet
	uses  []canon.Hash        // modules and roots of files that are not the run's yet
}

// find looks up the position of a run in the file.
func (l *Log) find(ctx context.Context, runID string) (pending.Position, error) {
	epoch, err := dblog.Get(ctx, l.readers.with, func(r *conn) (uint64, error) { return r.epoch(ctx, epochSQL, runID) })
	if err != nil {
		return pending.Position{}, err
	}
	at, _, err := l.index.Look(ctx, runID)
	at.Epoch = epoch
	return at, err
}
