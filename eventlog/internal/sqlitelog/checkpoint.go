package sqlitelog

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/internal/await"
)

// Thresholds for the part of the WAL not yet in the database, in frames, each a
// written page. With pages of 16 KiB, 64 frames are 1 MiB.
const (
	stepFrames    = 250  // enough for a step, if many of them have long payloads
	restartFrames = 1000 // that are worth one in any case; then the WAL may start over
	farBehind     = 4000 // at which the writer waits for a step
)

const (
	// longPayloads is how many bytes of payloads start a step early. Payload pages
	// are written once, so moving them early makes shorter steps; index pages are
	// written again and again, so moving them late makes fewer.
	longPayloads = 2 << 20
	// standstill is how long the last frames may block the writers.
	standstill = time.Millisecond
	// lookEvery is the shortest time between two looks of the writer at the WAL.
	lookEvery = 5 * time.Millisecond
	// farBehindWait is the longest wait of the writer at each look.
	farBehindWait = 10 * time.Millisecond
	// maxSteps bounds the steps that follow one another without a wait.
	maxSteps = 4
)

// checkpointer moves the WAL into the database while the writer continues, so that no
// commit waits for it.
//
// It works in steps. A step copies the content of the WAL when it began, and syncs the
// database. While there is something to commit, no step ends with an empty WAL, and the
// WAL gets longer. So once it is long enough and a step leaves only a few frames, the
// checkpointer takes the lock that every writer holds around its transaction. It then
// moves those frames, and has only them to sync. The next transaction then writes the WAL
// from its beginning. If the process dies anywhere here, the WAL has all that the database
// lacks.
//
// A step moves only what the oldest reader, in any process, already sees. While a reader stays
// open, the WAL grows with every commit; no writer waits for the reader, and when it has ended one
// step moves the whole WAL. The file is then cut to journal_size_limit.
type checkpointer struct {
	wake      chan struct{} // capacity 1; the writer's to send and to close
	stepped   chan struct{} // capacity 1: a step has ended
	failed    chan error    // capacity 1: the error that ended it
	ended     chan struct{}
	restartAt atomic.Int64 // frames in a WAL that should restart from its beginning
	stuck     atomic.Bool  // a reader kept the last step from moving anything

	looked   time.Time // the writer's
	payloads int       // the writer's: bytes since it has woken the checkpointer

	// The goroutine's. It is opened when first needed, because most processes
	// that write to a log write less than a step.
	conn *conn
	lock *fileLock
	file *os.File // the database, to sync it; nil where that is not safe
	last wal      // after the last step
}

// wal is how many frames the WAL has, and how many of them are in the database.
type wal struct {
	frames, moved int64
	kept          bool // from being moved, or written from its beginning, by another connection
}

func (w wal) left() int64 { return w.frames - w.moved }

// The statements return how the WAL is when they are done. The first does nothing, the
// second does not wait, the third for readers, as long as checkpointing says.
const (
	lookSQL    = "PRAGMA wal_checkpoint(NOOP)"
	passiveSQL = "PRAGMA wal_checkpoint(PASSIVE)"
	restartSQL = "PRAGMA wal_checkpoint(RESTART)"
)

func walOf(c *conn, sql string) (w wal, err error) {
	_, err = eventlog.QueryOne(querier{context.Background(), c}, sql, nil, &w.kept, &w.frames, &w.moved)
	return w, err
}

func newCheckpointer() *checkpointer {
	c := &checkpointer{
		wake: make(chan struct{}, 1), stepped: make(chan struct{}, 1),
		failed: make(chan error, 1), ended: make(chan struct{}),
	}
	c.restartAt.Store(restartFrames)
	return c
}

// wakeCheckpointer is called by the writer after each batch. It wakes the checkpointer when
// there is something to move. If the checkpointer is far behind, it waits a little, so that
// a disk that is too slow for both slows down the callers. It returns the error that ended
// the checkpointer.
func (l *Log) wakeCheckpointer(batch []item) error {
	c := l.checkpointer
	for _, it := range batch {
		c.payloads += len(it.Event.Payload)
	}
	select {
	case err := <-c.failed:
		return err
	default:
	}
	if time.Since(c.looked) < lookEvery {
		return nil
	}
	w, err := walOf(l.writer.conn, lookSQL)
	if err != nil {
		return fmt.Errorf("sqlitelog: look at the WAL: %w", err)
	}
	c.looked = time.Now()
	if !c.due(w) {
		return nil
	}
	await.Offer(c.wake, struct{}{})
	c.payloads = 0
	if w.left() >= farBehind && !c.stuck.Load() {
		select {
		case <-c.stepped:
		case <-time.After(farBehindWait):
		}
	}
	return nil
}

// due reports whether there is something to do for the checkpointer.
func (c *checkpointer) due(w wal) bool {
	return w.left() >= restartFrames || w.left() >= stepFrames && c.payloads >= longPayloads ||
		w.left() > 0 && w.frames >= c.restartAt.Load()
}

// checkpoints is the checkpointer's goroutine. It ends with the log, or when the
// database is or may be damaged: unsynced data may be gone, so nothing is tried
// again. After any other error, such as a full disk, the WAL is intact: everything
// is opened and tried again.
func (l *Log) checkpoints() {
	c := l.checkpointer
	defer close(c.ended)
	for range c.wake {
		err := c.open(context.Background(), l.path, l.opts.Synchronous)
		if err == nil {
			err = c.advance()
		}
		if err != nil {
			c.close()
		}
		if damages(err) {
			c.failed <- fmt.Errorf("sqlitelog: checkpoint: %w", err)
			return
		}
	}
	c.close()
}

// errSync is a database that could not be synced.
var errSync = errors.New("sync of the database")

func damages(err error) bool {
	code := codeOf(err) & 0xff
	return errors.Is(err, errSync) || code == sqlite3.SQLITE_IOERR || code == sqlite3.SQLITE_CORRUPT
}

// damaged makes an error [eventlog.ErrLogLost]: even a new writer could not know the content of the
// disk.
func damaged(err error) error {
	switch code := codeOf(err); {
	case errors.Is(err, errSync), code == sqlite3.SQLITE_IOERR_FSYNC, code == sqlite3.SQLITE_IOERR_DIR_FSYNC,
		code&0xff == sqlite3.SQLITE_CORRUPT, code == sqlite3.SQLITE_NOTADB:
		return fmt.Errorf("%w: %w", eventlog.ErrLogLost, err)
	}
	return err
}

// advance moves the frames, again while the writer was faster, and lets the WAL
// restart from its beginning if it is time.
func (c *checkpointer) advance() error {
	for range maxSteps {
		began, before := time.Now(), c.last.moved
		w, err := c.step()
		await.Offer(c.stepped, struct{}{})
		if err != nil || w.kept || c.stuck.Load() || w.frames < c.restartAt.Load() {
			return err
		}
		if before >= w.moved {
			before = 0 // the WAL has started over
		}
		if time.Since(began)*time.Duration(w.left())/time.Duration(max(1, w.moved-before)) <= standstill {
			return c.startOver()
		}
	}
	return nil
}

// step moves the current content of the WAL. SQLite syncs the database only after moving all of it;
// step syncs it each time, so that the last frames do not wait for a long sync.
func (c *checkpointer) step() (wal, error) {
	w, err := walOf(c.conn, passiveSQL)
	if err != nil || w.kept {
		return w, err
	}
	moved := w.moved != c.last.moved
	c.last = w
	c.stuck.Store(!moved && w.left() > 0)
	if moved && c.file != nil {
		if err := c.file.Sync(); err != nil {
			return w, fmt.Errorf("%w: %w", errSync, err)
		}
	}
	return w, nil
}

// startOver moves the last frames while no writer of any process is at work, and makes
// the next one write the WAL from its beginning. If a reader is in the way, that has to
// wait until the WAL is a step longer.
func (c *checkpointer) startOver() error {
	ctx, cancel := context.WithTimeout(context.Background(), lockTimeout)
	defer cancel()
	if err := c.lock.Lock(ctx); err != nil {
		return err
	}
	w, err := walOf(c.conn, restartSQL)
	if err := errors.Join(err, c.lock.Unlock()); err != nil {
		return err
	}
	next := int64(restartFrames)
	if w.kept {
		next = c.last.frames + stepFrames
	}
	c.restartAt.Store(next)
	return nil
}

// open opens the checkpointer's connection and files, unless they are open.
func (c *checkpointer) open(ctx context.Context, path, synchronous string) (err error) {
	if c.conn != nil {
		return nil
	}
	if c.lock, err = openLock(path); err != nil {
		return err
	}
	if c.conn, err = connect(ctx, path, "mode=rw"); err != nil {
		return err
	}
	if err := c.conn.execAll(ctx, checkpointing(synchronous)); err != nil {
		return err
	}
	// To close a descriptor of a file releases the POSIX locks that the process has on
	// it, which may be another log's.
	if sqlite.OFDLockingEnabled() {
		c.file, err = os.Open(path)
	}
	return err
}

// close closes the open connections. It drops errors: the writer's connection is closed later and
// reports the same.
func (c *checkpointer) close() {
	if c.conn != nil {
		c.conn.Close()
	}
	c.file.Close() // does nothing without a file
	if c.lock != nil {
		c.lock.Close()
	}
	c.conn, c.lock, c.file = nil, nil, nil
}
