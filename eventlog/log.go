package eventlog

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

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

	// RemoveUnusedModules removes the modules and files that nothing uses, see [UseModules], or those
	// of them with the given digests and what only they used. A role that may not remove modules removes none: a
	// host's role on a server may not, just as it may not remove runs.
	RemoveUnusedModules(ctx context.Context, digests ...canon.Hash) (removed ModuleCount, err error)

	// Recorded returns the bytes of the payloads of the events in a namespace, and those of its
	// events from a time on. Both count each event with some bytes more.
	Recorded(ctx context.Context, namespace string, since time.Time, each int64) (total, later int64, err error)

	// Miscounted returns the runs for which the database counts other recorded bytes than their
	// events have: runID or none, or of all runs if runID is empty, which reads all events.
	// [Database].MigrateSchema counts them again.
	Miscounted(ctx context.Context, runID string) ([]string, error)

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

	// Uncounted are the runs whose recorded bytes had to be counted from their events, because
	// a host of an earlier version has written them.
	Uncounted int64
	// Miscounted are the runs whose recorded bytes were not those of their events.
	Miscounted []string
}

// StepCatchUp is the migration step that adds to the index of runs the events that
// another program has appended, or that were restored without the index.
const StepCatchUp = "bring the listing of runs up to date with their events"

// StepCount is the migration step that counts the recorded bytes of runs.
const StepCount = "count the recorded bytes of runs"

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

// ModuleReader has modules by digest.
type ModuleReader interface {
	// Module returns the module with that digest, or [ErrModuleNotFound]. A log hashes the
	// bytes again: other bytes than those asked for are [ErrLogCorrupt].
	Module(ctx context.Context, digest canon.Hash) ([]byte, error)
}

// ModuleStore keeps the modules that runs name by digest, so that a log alone
// is enough to replay its runs.
type ModuleStore interface {
	ModuleReader

	// PutModule stores wasm and returns its BLAKE3-256 digest, once it is
	// durable. Storing a module again changes nothing. A log in a database removes a module
	// that nothing uses, see [UseModules]; a run that begins too late for its module is
	// refused with [ErrModuleNotFound].
	PutModule(ctx context.Context, wasm []byte) (canon.Hash, error)
	// PutContents stores contents of a tree of files, each before the folders that list it, and returns
	// once they are durable. [ModuleReader].Module has them. A content that is stored already is not
	// stored again, and gets the folders that list it as further users. The user, unless it is empty,
	// becomes a user of the last content. If a folder lists a content that is not stored, perhaps because
	// nothing used it and it was removed, the error is [ErrModuleNotFound].
	PutContents(ctx context.Context, user string, contents []Content) error
	// HasModule reports whether the module is stored, without reading it.
	HasModule(ctx context.Context, digest canon.Hash) (bool, error)
}

// A log in a database has a table module_use with a row for each module and each of its
// users: a run that names it, or an entry of the host, such as one of a tenant's modules.
// Databases keep a module while it has a user, and [Database].RemoveUnusedModules removes the
// others. The row of a run is written in the transaction that begins the run, and removed
// with the run. The contents of files are kept as modules are: the users of a root are runs, whose rows
// are written with the events that name it, and the user of everything else is the folder that lists it,
// see [TreeUser].

// UseModules records in the transaction that the user needs modules: the id of a run, or the
// name of an entry in a namespace, which begins with the namespace and a slash. A module that
// is not stored is [ErrModuleNotFound].
//
// Appending an event that names modules or files to a log does this already. A transaction that appends
// it with [Tx].Append has to call UseModules, since the log cannot read an encrypted event.
func UseModules(tx interface {
	Exec(sql string, args ...any) (changed int64, err error)
}, user string, digests ...canon.Hash) error {
	for _, digest := range digests {
		n, err := tx.Exec("INSERT INTO module_use (digest, used_by) SELECT digest, $2 FROM module WHERE digest = $1 ON CONFLICT (digest, used_by) DO UPDATE SET used_by = excluded.used_by", digest[:], user)
		if err == nil && n == 0 {
			err = fmt.Errorf("%w: %v", ErrModuleNotFound, digest)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// ModuleCount is how many modules and contents of files there are, and their bytes. As JSON it is a part of
// what was removed.
type ModuleCount struct {
	Modules int   `json:"collected_modules,omitempty"`
	Bytes   int64 `json:"collected_bytes,omitempty"`
}

// CountModules counts the modules that a namespace uses, or all that are stored.
func CountModules(ctx context.Context, db Transactor, namespace string) (c ModuleCount, err error) {
	err = db.View(ctx, func(q Querier) error {
		const query = `SELECT count(*), CAST(coalesce(sum(size), 0) AS BIGINT) FROM module
WHERE $1 = '' OR EXISTS (SELECT 1 FROM module_use AS u WHERE u.digest = module.digest AND u.used_by >= $2 AND u.used_by < $3)`
		return q.Query(query, []any{namespace, namespace + "/", namespace + "0"}, func(r Row) error { return r.Scan(&c.Modules, &c.Bytes) })
	})
	return c, err
}

// Basic is the minimal log: the interface that logs of the Starling runtime implement.
// [Adapt] makes an [EventLog] of one. A Basic log may also be a [RunLister], a
// [RunPageLister] or a [RunPruner].
type Basic interface {
	// Append checks that ev continues the run, and returns once it is durable.
	Append(ctx context.Context, runID string, ev event.Event) error
	// Read returns the events of a run in order. A run without events is [ErrRunNotFound],
	// or no event.
	Read(ctx context.Context, runID string) ([]event.Event, error)
	// Stream delivers the events of a run, including future ones, see [EventLog].
	Stream(ctx context.Context, runID string) (<-chan event.Event, error)
	// Close releases the log.
	Close() error
}

// RunLister lists all runs, the newest first.
type RunLister interface {
	ListRuns(ctx context.Context) ([]RunSummary, error)
}

// RunPageLister lists a page of the runs that match, the newest first.
type RunPageLister interface {
	ListRunsPage(ctx context.Context, o RunPageOptions) (RunPage, error)
}

// RunPruner removes matching runs, either all of them or none, see [Store].
type RunPruner interface {
	PruneRuns(ctx context.Context, o PruneOptions) (PruneReport, error)
}

// Adapt makes an [EventLog] of a log that only has the methods of [Basic]. Pages come from
// ListRuns if the log has no ListRunsPage, and all runs from its pages if it has no
// ListRuns. Methods that the log cannot provide return [errors.ErrUnsupported].
//
// A log that keeps events in memory until Sync, or that can read a run in pieces, should
// implement EventLog itself.
func Adapt(log Basic) interface {
	EventLog
	RunPruner
} {
	return adapted{log}
}

type adapted struct{ Basic }

// Sync implements [EventLog]. An event is durable when Append has returned.
func (adapted) Sync(context.Context, string) error { return nil }

// Read implements [EventLog].
func (a adapted) Read(ctx context.Context, runID string) ([]event.Event, error) {
	events, err := a.Basic.Read(ctx, runID)
	if err == nil && len(events) == 0 {
		err = ErrRunNotFound
	}
	return events, err
}

// Events implements [EventLog]. The whole run is in memory meanwhile.
func (a adapted) Events(ctx context.Context, runID string, after uint64) iter.Seq2[event.Event, error] {
	return func(yield func(event.Event, error) bool) {
		events, err := a.Read(ctx, runID)
		for _, ev := range events {
			if ev.Seq > after && !yield(ev, nil) {
				return
			}
		}
		if err != nil {
			yield(event.Event{}, err)
		}
	}
}

// Run implements [EventLog]. The summary is computed from the events, so it has no head to
// compare them with.
func (a adapted) Run(ctx context.Context, runID string) (RunSummary, error) {
	var c Cursor
	for ev, err := range a.Events(ctx, runID, 0) {
		if err != nil {
			return RunSummary{}, err
		}
		c.Count(ev)
	}
	return c.Run(), nil
}

// ListRuns implements [EventLog].
func (a adapted) ListRuns(ctx context.Context) (all []RunSummary, err error) {
	if lister, ok := a.Basic.(RunLister); ok {
		return lister.ListRuns(ctx)
	}
	pages, ok := a.Basic.(RunPageLister)
	if !ok {
		return nil, a.unsupported("list its runs")
	}
	for {
		page, err := pages.ListRunsPage(ctx, RunPageOptions{Limit: MaxPageLimit, Offset: len(all)})
		if all = append(all, page.Runs...); err != nil || len(page.Runs) == 0 {
			return all, err
		}
	}
}

// ListRunsPage implements [EventLog].
func (a adapted) ListRunsPage(ctx context.Context, o RunPageOptions) (RunPage, error) {
	if pages, ok := a.Basic.(RunPageLister); ok {
		return pages.ListRunsPage(ctx, o)
	}
	all, err := a.ListRuns(ctx)
	if err != nil {
		return RunPage{}, err
	}
	return o.Select(all)
}

// PruneRuns implements [RunPruner].
func (a adapted) PruneRuns(ctx context.Context, o PruneOptions) (PruneReport, error) {
	if pruner, ok := a.Basic.(RunPruner); ok {
		return pruner.PruneRuns(ctx, o)
	}
	return PruneReport{}, a.unsupported("remove runs")
}

func (a adapted) unsupported(what string) error {
	return fmt.Errorf("eventlog: a log of type %T cannot %s: %w", a.Basic, what, errors.ErrUnsupported)
}
