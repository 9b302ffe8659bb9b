package sqlitelog

import (
	"cmp"
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"time"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/internal/dblog"
	"github.com/starling-host/starling/internal/hint"
)

// Options are how to open a log. The zero value opens it for writing, with
// every acknowledged event safe from a power cut.
type Options struct {
	// ReadOnly neither creates nor writes the file; writes to the log return
	// [eventlog.ErrReadOnly]. Default: false.
	ReadOnly bool

	// Synchronous is "FULL" or "NORMAL"; empty means FULL. NORMAL leaves the
	// sync to the checkpoint: an acknowledged event survives the death of the
	// process, but not a power cut. With many runs at once it gains nothing,
	// because one sync then serves many events.
	Synchronous string
}

const (
	// fileMode lets only the owner read a log. SQLite gives the files
	// that it puts beside the database the database's mode.
	fileMode fs.FileMode = 0o600
	// lockTimeout bounds the wait for another process's transaction. A holder
	// that needs longer is stopped or hangs.
	lockTimeout = 60 * time.Second
)

// Open opens the log at path, which is created unless ReadOnly is set. A file of the Starling
// runtime can be read as it is; writing to it requires [eventlog.Database].MigrateSchema, and
// returns [eventlog.ErrSchemaOutdated] until then. The file of a newer program is
// [eventlog.ErrSchemaTooNew]. Open refuses a file that is not a database, or that is not
// writable, and then creates nothing beside it. The directory has to be on this machine:
// processes coordinate through memory that they share.
func Open(ctx context.Context, path string, o Options) (*Log, error) {
	o.Synchronous = cmp.Or(o.Synchronous, "FULL")
	if o.Synchronous != "FULL" && o.Synchronous != "NORMAL" {
		return nil, fmt.Errorf("sqlitelog: synchronous %q: want FULL or NORMAL", o.Synchronous)
	}
	if err := checkVersion(libraryVersion); err != nil {
		return nil, err
	}
	if err := vetFile(path, o.ReadOnly); err != nil {
		return nil, err
	}
	// SQLite locks the file so that the locks are kept when other code in this process opens and closes
	// it, as vetFile and touch do beside a log that is open. Only Linux can, and only before the first
	// file is locked.
	_, _ = sqlite.OFDLocking(true)
	l := newLog(path, o)
	open := l.openForWriting
	if o.ReadOnly {
		open = l.openForReading
	}
	err := open(ctx)
	if err == nil {
		l.file, err = os.Stat(path)
	}
	if err != nil {
		return nil, errors.Join(err, l.abort())
	}
	return l, nil
}

// magic is the beginning of a database (sqlite.org/fileformat2.html, section 1.3).
const magic = "SQLite format 3\x00"

// vetFile refuses files that cannot be a log before anything is created beside them:
// irregular files, files that may not be opened this way, and files that SQLite did
// not write. Locks beside the file of another program would be in its way.
func vetFile(path string, readOnly bool) error {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return nil // it is created, or opening it reports the error
	case !info.Mode().IsRegular():
		return errors.New("sqlitelog: not a regular file")
	}
	flag := os.O_RDWR
	if readOnly {
		flag = os.O_RDONLY
	}
	f, err := os.OpenFile(path, flag, 0)
	if err != nil {
		return fmt.Errorf("sqlitelog: %w", err)
	}
	defer f.Close()
	return vetHeader(f)
}

// vetHeader refuses a file that SQLite did not write. An empty file may become a log;
// a file with a journal beside it is left to SQLite, which repairs it after a crash.
func vetHeader(f *os.File) error {
	head := make([]byte, len(magic)+4)
	n, err := io.ReadFull(f, head)
	if err == io.EOF {
		return nil
	}
	if n >= len(magic) && string(head[:len(magic)]) == magic {
		const rollback = 1 // the file's read version; 2 means a write-ahead log
		if wal, err := os.Stat(f.Name() + "-wal"); err == nil && wal.Size() > 0 && head[len(magic)+3] == rollback {
			return fmt.Errorf("%w: %s-wal", ErrForeignWAL, f.Name())
		}
		return nil
	}
	if _, err := os.Stat(f.Name() + "-journal"); err == nil {
		return nil
	}
	return fmt.Errorf("%w: not a database, by its first bytes", ErrNotLog)
}

// ErrForeignWAL means that a WAL lies beside a file that has none, as a backup has none until
// a log opens it: the file was copied over another one, whose WAL stayed. SQLite would mix the
// two.
var ErrForeignWAL = hint.New("sqlitelog: a backup was copied over a database, and the -wal of that one is still beside it",
	"to keep the backup, move the -wal away; the next time: starling-host restore BACKUP DB")

// ErrNotLog means that another program wrote the file, or that it lacks a table that every
// log has.
var ErrNotLog = errors.New("sqlitelog: not an event log")

// ErrWALNotReadable is the error of a log whose last events are in a WAL, where SQLite
// cannot make the file that it needs to read one. It says nothing about the log.
var ErrWALNotReadable = hint.New("sqlitelog: the log has a WAL, which cannot be read in a directory that cannot be written to",
	"copy it, and the -wal beside it, to a folder that you can write to")

// openForReading first opens the file as one that other processes may write to.
// If its directory is not writable and has no WAL, it then opens the file as
// one without writers.
func (l *Log) openForReading(ctx context.Context) error {
	if _, err := os.Stat(l.path); err != nil {
		return fmt.Errorf("sqlitelog: %w", err)
	}
	l.readers = newReaders(l.path, "mode=ro")
	err := l.examine(ctx)
	if code := codeOf(err) & 0xff; code != sqlite3.SQLITE_CANTOPEN && code != sqlite3.SQLITE_READONLY {
		return err
	}
	if _, walErr := os.Stat(l.path + "-wal"); !errors.Is(walErr, fs.ErrNotExist) {
		return fmt.Errorf("%w: %w", ErrWALNotReadable, err)
	}
	l.readers.close()
	l.readers = newReaders(l.path, "mode=ro&immutable=1")
	return l.examine(ctx)
}

// examine vets the file through a reader.
func (l *Log) examine(ctx context.Context) error {
	layout, err := dblog.Get(ctx, l.readers.with, func(r *conn) (int, error) { return examine(ctx, r) })
	l.layout.Store(int64(layout))
	return err
}

// openForWriting creates or examines the file under the lock, so that no other
// process sees it half made.
func (l *Log) openForWriting(ctx context.Context) (err error) {
	if l.lock, err = openLock(l.path); err != nil {
		return err
	}
	if err := l.lock.Lock(ctx); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.lock.Unlock()) }()
	if err := touch(l.path); err != nil {
		return err
	}
	if l.writer.conn, err = connect(ctx, l.path, "mode=rw"); err != nil {
		return err
	}
	if err := create(ctx, l.writer.conn); err != nil {
		return err
	}
	layout, err := examine(ctx, l.writer.conn)
	if err != nil {
		return err
	}
	l.layout.Store(int64(layout))
	l.readers = newReaders(l.path, "mode=ro")
	switch layout {
	case layoutVersion:
		return l.startWriter(ctx)
	case uncountedLayout:
		return requireUses(ctx, l.writer.conn) // a migration cannot make them
	}
	return nil
}

// touch creates the file with its mode, and sets that mode on an empty file, which becomes a
// log now. A log keeps the mode that its owner gave it. A link may lead to a log only:
// otherwise the maker of the folder would choose which file becomes one.
func touch(path string) error {
	if link, err := os.Lstat(path); err == nil && link.Mode().Type() == fs.ModeSymlink {
		if info, err := os.Stat(path); err != nil || info.Size() == 0 {
			return fmt.Errorf("sqlitelog: %s is a link to a missing file", path)
		}
	}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, fileMode)
	if err != nil {
		return fmt.Errorf("sqlitelog: %w", err)
	}
	info, err := f.Stat()
	if err == nil && info.Mode().IsRegular() && info.Size() == 0 && info.Mode().Perm()&^fileMode != 0 {
		err = f.Chmod(fileMode)
	}
	if err := errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("sqlitelog: %w", err)
	}
	return nil
}

// create lays out a file that has no tables. If the process dies in between, the
// next one finds no tables again. Another program's file may have had tables: its
// pages keep their size, so it is refused before it gets ours.
func create(ctx context.Context, c *conn) error {
	n, err := c.integer(ctx, "SELECT count(*) FROM sqlite_schema")
	if err != nil || n > 0 {
		return err
	}
	if err := c.execAll(ctx, creation); err != nil {
		return err
	}
	got, err := c.integer(ctx, "PRAGMA page_size")
	if err != nil {
		return err
	}
	if got != pageSize {
		return fmt.Errorf("sqlitelog: a database without tables, but with pages of %d bytes: want %d", got, pageSize)
	}
	return c.execAll(ctx, schema())
}

// examine vets the objects in the file and returns its layout version.
func examine(ctx context.Context, c *conn) (layout int, err error) {
	version, err := c.integer(ctx, "PRAGMA user_version")
	if err != nil {
		return 0, err
	}
	app, err := c.integer(ctx, "PRAGMA application_id")
	if err != nil {
		return 0, err
	}
	if app == applicationID && version > layoutVersion {
		return 0, eventlog.CheckSchema(int(version), layoutVersion)
	}
	objects, err := objects(ctx, c)
	if err != nil {
		return 0, err
	}
	if layout, err = vet(objects); err == nil {
		err = vetColumns(ctx, c)
	}
	if err != nil {
		return 0, err
	}
	if err := examineSeedVersion(ctx, c); err != nil {
		return 0, err
	}
	if layout > seedLayout && int(version) != layout {
		return 0, fmt.Errorf("%w: the tables have layout %d, the file's header says %d", eventlog.ErrLogCorrupt, layout, version)
	}
	return layout, nil
}

func objects(ctx context.Context, c *conn) ([]object, error) {
	const all = "SELECT type, name, tbl_name, coalesce(sql, '') FROM sqlite_schema"
	return eventlog.QueryAll(querier{ctx, c}, all, nil, func(r eventlog.Row) (o object, err error) {
		if err = r.Scan(&o.kind, &o.name, &o.table, &o.sql); err != nil {
			err = fmt.Errorf("%w: sqlite_schema: %w", eventlog.ErrLogCorrupt, err)
		}
		return o, err
	})
}

// vetColumns refuses computed columns in any table, because the tables of the host are in the same
// file. Every object must be as [vet] requires.
func vetColumns(ctx context.Context, c *conn) error {
	const computed = "SELECT t.name, c.name FROM sqlite_schema AS t, pragma_table_xinfo(t.name) AS c WHERE t.type = 'table' AND c.hidden > 1"
	return c.query(ctx, computed, nil, func(row []driver.Value) error {
		return fmt.Errorf("%w: the file computes the column %.200q of the table %.200q, which an event log does not", eventlog.ErrLogCorrupt, row[1], row[0])
	})
}

// examineSeedVersion checks the version that the Starling runtime keeps.
func examineSeedVersion(ctx context.Context, c *conn) error {
	v, err := c.integer(ctx, "SELECT coalesce(max(version), 0) FROM eventlog_schema_migrations")
	if err == nil && v > seedVersion {
		err = fmt.Errorf("%w (eventlog_schema_migrations is at %d, this program knows %d)", eventlog.ErrSchemaTooNew, v, seedVersion)
	}
	return err
}
