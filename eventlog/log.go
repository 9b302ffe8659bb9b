package eventlog

import (
	"context"
	"errors"
	"fmt"
	"iter"

	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/internal/hint"
)

// Errors that callers tell apart with errors.Is. The first six texts are part
// of the log format's contract.
var (
	// ErrLogClosed is returned by every method after Close.
	ErrLogClosed = errors.New("eventlog: log is closed")
	// ErrLogCorrupt is wrapped by every [CorruptError] that is not Newer.
	ErrLogCorrupt = errors.New("eventlog: log is corrupt")
	// ErrInvalidAppend means that an event does not continue its run. The log
	// itself is fine.
	ErrInvalidAppend = errors.New("eventlog: invalid append")
	// ErrReadOnly is returned by writes to a log that was opened for reading.
	ErrReadOnly = errors.New("eventlog: log is read-only")
	// ErrSchemaOutdated means that the file has an older layout; see [Database].MigrateSchema.
	ErrSchemaOutdated = hint.New("eventlog: schema outdated; run migrate", "upgrade the database: starling-host migrate DB")
	// ErrSchemaTooNew means that a newer program wrote the file, or the run.
	ErrSchemaTooNew = hint.New("eventlog: schema too new for this binary", "a newer starling-host wrote it, or one before the first release; list the formats that this one reads: starling-host version")
	// ErrLogStopped wraps the failure that stopped the log. Acknowledged events are durable,
	// others may or may not be, and runs that lost events stay failed in this process. Once
	// the cause is gone, a log in a database starts again by itself, from the database's
	// content.
	ErrLogStopped = errors.New("eventlog: the log has stopped after a failed write")
	// ErrLogLost is the cause of a log that does not start again in this process: the
	// file is damaged or replaced, or a sync failed, after which the kernel may report
	// the next sync as good although the data is lost.
	ErrLogLost = errors.New("eventlog: this process cannot write to the log any more")
	// ErrUnavailable means that the database cannot be reached for the moment, or has no
	// time or room. Nothing was done, and the same may succeed later.
	ErrUnavailable = errors.New("eventlog: the database cannot be reached")
	// ErrStandbyAway means that the database's server takes writes, and waits for a standby that
	// does not answer. What was written meanwhile may be there later.
	ErrStandbyAway = errors.New("eventlog: the standby of the database does not answer")
	// ErrRunNotFound means that the log holds no event of that run.
	ErrRunNotFound = hint.New("eventlog: run not found", "list the runs with: starling-host runs DB")
	// ErrModuleNotFound means that the log holds no module with that digest.
	ErrModuleNotFound = errors.New("eventlog: module not found")
)

// MissingTableError means that the database lacks a table that it had: it was dropped, or only
// a part of a backup was restored. It wraps [ErrLogCorrupt], or [ErrSchemaOutdated] if an earlier
// version of this program made the database, which had no such table.
type MissingTableError struct {
	Table   string
	Earlier bool
}

// Error names the table.
func (e *MissingTableError) Error() string {
	if e.Earlier { // which migrate cannot make
		return "eventlog: schema outdated: the database has no table " + e.Table + ", because an earlier version wrote it"
	}
	return e.Unwrap().Error() + ": the database has no table " + e.Table
}

// Advice implements [hint.Hinted].
func (e *MissingTableError) Advice() string {
	if e.Earlier {
		return "its runs can be read; to add to them, take them to a new database: starling-host archive DB runs.ndjson, then: starling-host import NEW.db runs.ndjson"
	}
	return "see what else is missing: starling-host doctor DB"
}

// Unwrap returns [ErrLogCorrupt] or [ErrSchemaOutdated].
func (e *MissingTableError) Unwrap() error {
	if e.Earlier {
		return ErrSchemaOutdated
	}
	return ErrLogCorrupt
}

// Limits of a log. Append refuses events beyond them, and strict checking
// reports such events.
const (
	// MaxPayloadBytes bounds the encoded payload of one event. The largest
	// payload that the sandbox's defaults allow is an 8 MiB HTTP response.
	MaxPayloadBytes = 16 << 20
	// MaxRunIDBytes bounds a run id; a namespaced ULID has about 40 bytes.
	MaxRunIDBytes = 255
	// MaxModuleBytes bounds one stored module.
	MaxModuleBytes = 64 << 20
)

// EventLog is a log of runs. All methods may be called from any goroutine. The events of
// one run must come from one writer at a time, in order.
//
// The interface grows when the backends of this module do. A program that wraps a log
// should embed the interface, and a program with its own log can implement [Basic].
type EventLog interface {
	// Append checks that ev continues the run and queues it. It returns before ev is
	// durable (see Sync). It blocks only while the queue is full, until ctx ends. After
	// [ErrInvalidAppend] the log is unchanged and usable. The log keeps ev.Payload and
	// ev.PrevHash, which MUST NOT be changed afterwards.
	Append(ctx context.Context, runID string, ev event.Event) error

	// Sync returns nil once everything that was appended to the run before is durable.
	// If ctx ends first, Sync returns the context's error, and the events are still
	// written. [ErrInvalidAppend] means that another process continued the same run
	// first. Any other error means that the log has stopped.
	Sync(ctx context.Context, runID string) error

	// Read returns the durable events of a run in order. It first waits until the
	// events that this process has appended to the run are durable. A run without
	// events is [ErrRunNotFound]. Use Events for runs that may not fit in memory.
	Read(ctx context.Context, runID string) ([]event.Event, error)

	// Events yields the events of a run with numbers above after, in order, and holds
	// only a bounded part of the run in memory. It ends after the last durable event, or
	// with one error.
	Events(ctx context.Context, runID string, after uint64) iter.Seq2[event.Event, error]

	// Stream delivers the events of a run from the first on, then each new one once it
	// is durable, without gap or repetition. It waits for a run that has not started.
	// The channel is closed after the terminal event, when ctx ends, when the log is
	// closed and when reading fails; the kind of the last event tells which. A slow
	// reader delays only itself. The bytes are shared and MUST NOT be changed.
	Stream(ctx context.Context, runID string) (<-chan event.Event, error)

	// Run returns the summary of a durable run, or [ErrRunNotFound].
	//
	// The log keeps a summary of each run apart from the events, so that [CheckRun] can
	// compare the last event with the head in it. If that summary lacks events, because
	// another program appended them or because it was lost, the log computes one, which
	// has no head.
	Run(ctx context.Context, runID string) (RunSummary, error)

	// ListRuns returns all durable runs, the newest first.
	ListRuns(ctx context.Context) ([]RunSummary, error)

	// ListRunsPage returns one page of the durable runs that match, the newest first.
	ListRunsPage(ctx context.Context, o RunPageOptions) (RunPage, error)

	// Close makes everything that was appended durable and releases the log.
	// It returns the failure that had stopped the log, if any.
	Close() error
}

// Store is a log that also keeps the modules of its runs. Every backend of this module is
// one.
type Store interface {
	EventLog
	ModuleStore

	// Import is Append of an event of a run that was begun elsewhere. The run may have any
	// id of valid UTF-8 and at most [MaxRunIDBytes], see [CheckRunID].
	Import(ctx context.Context, ev event.Event) error

	// PruneRuns removes the runs that match, all of them or none, and reports what it
	// removed, or would remove. Only whole runs can be removed: a run that lacks an
	// event would not validate. Modules stay, since other runs may need them.
	PruneRuns(ctx context.Context, o PruneOptions) (PruneReport, error)

	// Fenced returns the log for the writer that got the run in an epoch (see [Tx]). It
	// appends to this run only, and only while the epoch is the run's latest. All other
	// methods work as the log's own; Close does nothing.
	Fenced(runID string, epoch uint64) EventLog
}

// Database is a [Store] in a database, in which the host can keep tables of its own.
type Database interface {
	Store
	Transactor

	// RemoveUnusedModules removes the modules that nothing uses, see [UseModules], or those
	// of them with the given digests. A role that may not remove modules removes none: a
	// host's role on a server may not, just as it may not remove runs.
	RemoveUnusedModules(ctx context.Context, digests ...canon.Hash) (removed ModuleCount, err error)

	// SchemaVersions returns the layout version of the database and the version that
	// this program writes.
	SchemaVersions(ctx context.Context) (have, want int, err error)

	// MigrateSchema brings the database to the program's layout in one transaction. With
	// dryRun it only reports the changes.
	MigrateSchema(ctx context.Context, dryRun bool) (MigrationReport, error)
}

// MigrationReport describes a migration, done or dry.
type MigrationReport struct {
	From, To int
	DryRun   bool
	Runs     int64    // runs that were carried over
	Events   int64    // events that were carried over
	Steps    []string // in order; empty when the layout was current
}

// StepCatchUp is the migration step that adds to the index of runs the events that
// another program has appended, or that were restored without the index.
const StepCatchUp = "bring the listing of runs up to date with their events"

// Preflight reports whether this program can write to log: nil,
// [ErrSchemaOutdated] or [ErrSchemaTooNew]. A log without layout passes.
func Preflight(ctx context.Context, log EventLog) error {
	db, ok := log.(interface {
		SchemaVersions(ctx context.Context) (have, want int, err error)
	})
	if !ok {
		return nil
	}
	have, want, err := db.SchemaVersions(ctx)
	if err != nil {
		return err
	}
	return CheckSchema(have, want)
}

// CheckSchema returns the error of [Preflight] for two layout versions.
func CheckSchema(have, want int) error {
	switch {
	case have < want:
		return fmt.Errorf("%w (the log has layout %d, this program writes %d)", ErrSchemaOutdated, have, want)
	case have > want:
		return fmt.Errorf("%w (the log has layout %d, this program writes %d)", ErrSchemaTooNew, have, want)
	}
	return nil
}
