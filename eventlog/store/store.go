package store

import (
	"context"
	"io"
	"net/url"
	"strings"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/eventlog/internal/archive"
	"github.com/starling-host/starling/eventlog/internal/cipherlog"
	"github.com/starling-host/starling/eventlog/internal/memlog"
	"github.com/starling-host/starling/eventlog/internal/pglog"
	"github.com/starling-host/starling/eventlog/internal/sqlitelog"
	"github.com/starling-host/starling/eventlog/seal"
)

// Database is an event log in a SQLite file or on a PostgreSQL server.
type Database = eventlog.Database

// Options control how [Open] opens a database. The zero value opens it for writing,
// and creates a file that does not exist.
type Options struct {
	ReadOnly bool // write nothing, and refuse a database that does not exist
}

// Open opens the database that where names: the address of a PostgreSQL server, which
// begins with postgres:// or postgresql://, or the path of a SQLite file.
func Open(ctx context.Context, where string, o Options) (Database, error) {
	if OnServer(where) {
		return present[*Server](OpenServer(ctx, where, ServerOptions{ReadOnly: o.ReadOnly}))
	}
	return present[*File](OpenFile(ctx, where, FileOptions{ReadOnly: o.ReadOnly}))
}

// present keeps a nil log from becoming a database that is not nil.
func present[L Database](log L, err error) (Database, error) {
	if err != nil {
		return nil, err
	}
	return log, nil
}

// OnServer reports whether where is the address of a PostgreSQL server and not the path
// of a file.
func OnServer(where string) bool {
	return strings.HasPrefix(where, "postgres://") || strings.HasPrefix(where, "postgresql://")
}

// A log in a SQLite file, and how it is opened.
type (
	File        = sqlitelog.Log
	FileOptions = sqlitelog.Options
)

// Name returns the name of a database for messages, without a password.
func Name(where string) string {
	if !OnServer(where) {
		return where
	}
	u, err := url.Parse(where)
	if err != nil {
		return "the database"
	}
	return u.Redacted()
}

// OpenFile opens a log in a SQLite file.
func OpenFile(ctx context.Context, path string, o FileOptions) (*File, error) {
	return sqlitelog.Open(ctx, path, o)
}

// Errors of [OpenFile] and [Compact].
var (
	ErrWALNotReadable = sqlitelog.ErrWALNotReadable
	ErrNotCompactable = sqlitelog.ErrNotCompactable
	ErrNotLog         = sqlitelog.ErrNotLog
	ErrForeignWAL     = sqlitelog.ErrForeignWAL
)

// Network returns the kind of file system that a file is on if other machines may have the
// file open too, such as NFS, and nothing for a local one. A database belongs on a local one.
func Network(path string) string { return sqlitelog.Network(path) }

// DiskFailed reports whether an error means that the disk of a file failed or is full.
func DiskFailed(err error) bool { return sqlitelog.DiskFailed(err) }

// BackupReport describes the content of a backup.
type BackupReport = sqlitelog.BackupReport

// Backup copies the database in the file src, which may be in use, to the new file dst.
func Backup(ctx context.Context, src, dst string) (BackupReport, error) {
	return sqlitelog.Backup(ctx, src, dst)
}

// Restore replaces the file dst, which no other process may have open, with a copy of the
// database in the file src. The old file is moved to the path replaced.
func Restore(ctx context.Context, src, dst string) (report BackupReport, replaced string, err error) {
	return sqlitelog.Restore(ctx, src, dst)
}

// Fork copies the database in the file src to the new file dst, with one run cut before
// an event, so that the copy can continue from there.
func Fork(ctx context.Context, src, dst, runID string, beforeSeq uint64) error {
	return sqlitelog.ForkSQLite(ctx, src, dst, runID, beforeSeq)
}

// Compact gives the space of removed data in a log's file back, and returns the
// number of bytes. No other process or log may have the file open.
func Compact(ctx context.Context, l *File) (freed int64, err error) { return sqlitelog.Compact(ctx, l) }

// SetAside keeps room on the disk for the database of a host, see [GiveUp].
func SetAside(path string) error { return sqlitelog.SetAside(path) }

// GiveUp gives back what [SetAside] keeps, so that the runs of a host can end on a disk
// that is full.
func GiveUp(path string) (given bool, err error) { return sqlitelog.GiveUp(path) }

// A log on a PostgreSQL server, how it is opened, and which roles need which rights.
type (
	Server        = pglog.Log
	ServerOptions = pglog.Options
	Roles         = pglog.Roles
	Need          = pglog.Need
	Needs         = pglog.Needs
	Partition     = pglog.Partition
)

// OpenServer opens a log on a PostgreSQL server.
func OpenServer(ctx context.Context, address string, o ServerOptions) (*Server, error) {
	return pglog.Open(ctx, address, o)
}

// Denied reports whether an error means that the role lacks a right.
func Denied(err error) bool { return pglog.Denied(err) }

// NeedsOf returns the rights that the roles of a database need, for the tables of the log
// and for sets of other tables.
func NeedsOf(sets ...eventlog.TableSet) Needs { return pglog.NeedsOf(sets...) }

// MemoryLog is a log in memory.
type MemoryLog = memlog.Log

// Memory returns an empty log in memory. It ends with the process.
func Memory() *MemoryLog { return memlog.New() }

// DataKey encrypts the events of one tenant.
type DataKey = cipherlog.Key

// DataKeySize is the size of a data key in bytes.
const DataKeySize = cipherlog.KeySize

// ErrDataKey: an event was encrypted with another key.
var ErrDataKey = cipherlog.ErrKey

// NewDataKey returns the data key of [DataKeySize] secret bytes.
func NewDataKey(secret []byte) (DataKey, error) { return cipherlog.NewKey(secret) }

// Encrypted returns a log that encrypts the events it appends to inner with a key, and
// decrypts the events it reads. The ids of its runs begin with the namespace and a slash.
func Encrypted(inner eventlog.EventLog, key DataKey, namespace string) (eventlog.EventLog, error) {
	return cipherlog.New(inner, key, namespace)
}

// EncryptFirst encrypts the first event of a run, before the run has a log.
func EncryptFirst(key DataKey, ev event.Event) (event.Event, error) { return cipherlog.First(key, ev) }

// EndEncrypted ends an encrypted run without its key, which was destroyed.
func EndEncrypted(ctx context.Context, log eventlog.EventLog, runID string) error {
	return cipherlog.End(ctx, log, runID)
}

// The source or target of an archive, and the results.
type (
	ArchiveLog     = archive.Log
	ArchiveChooser = archive.Chooser
	ArchiveReport  = archive.Report
	ArchiveError   = archive.Error
)

// WriteArchiveFile is [WriteArchive] to a new file, compressed if its name ends in .zst. It gets its name when it
// is on the disk and was read back with the same content.
func WriteArchiveFile(ctx context.Context, path string, log ArchiveLog, o eventlog.PruneOptions) (ArchiveReport, error) {
	report, _, err := archive.WriteFile(ctx, log, path, o)
	return report, err
}

// WriteArchive writes the runs that o chooses, and their modules, as NDJSON.
func WriteArchive(ctx context.Context, w io.Writer, log ArchiveLog, o eventlog.PruneOptions) (ArchiveReport, error) {
	return archive.Write(ctx, w, log, o)
}

// CheckArchive checks every line of an archive without importing it.
func CheckArchive(ctx context.Context, r io.Reader) (ArchiveReport, error) {
	report, _, err := archive.Check(ctx, r)
	return report, err
}

// ReadArchive is [CheckArchive] of a file. It returns what [seal.Verify] compares.
func ReadArchive(ctx context.Context, path string) (seal.Archive, error) {
	_, last, err := archive.ReadFile(ctx, path)
	return seal.Archive{Name: path, Last: last}, err
}

// ImportArchive appends the runs of an archive to a log, byte for byte unchanged.
func ImportArchive(ctx context.Context, log ArchiveLog, r io.ReadSeeker) (ArchiveReport, error) {
	return archive.Import(ctx, log, r)
}
