package starling

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/eventlog/receipt"
	"github.com/starling-host/starling/eventlog/store"
	"github.com/starling-host/starling/host/artifact"
	"github.com/starling-host/starling/internal/keyfile"
	"github.com/starling-host/starling/runtime/observe"
)

// LastRun stands for the id of the newest run: in a file the run begun last, whatever its
// clock said, and on a server the run with the latest start time.
const LastRun = "@last"

// Options configure a database and its engine. The zero value opens a database for
// recording, and executes tools in this process.
type Options struct {
	// ReadOnly opens an existing database and records nothing.
	ReadOnly bool

	// Engine configures the execution of tools.
	Engine EngineOptions

	// Finder finds the modules of tools, and may require signatures of them.
	Finder artifact.Finder

	// AppVersion is the version of the program around this package. It is recorded for
	// information, and empty by default.
	AppVersion string

	// Archived has the runs of [DB.Bundle] if the database no longer has them. Nil for none.
	Archived store.Database

	// Receipts signs receipts of the calls, see [DB.Receipts]. Nil signs none.
	Receipts *receipt.Issuer

	// Logger receives messages about runs. Nil discards them.
	Logger *slog.Logger
	// Metrics and Tracer watch live runs. Nil for neither.
	Metrics *observe.Metrics
	Tracer  *observe.Tracer
}

// DB is a database of runs, with the engine that executes their tools. It is safe for
// concurrent use.
type DB struct {
	where  string
	o      Options
	engine lazyEngine

	mu      sync.Mutex     // guards the next three
	log     store.Database // nil until a new file is needed
	closers map[any]func() // of loaded modules and opened agents
	closed  bool

	replaying sync.Mutex // guards replays
	replays   *Replayer  // of [DB.Replay]; nil until the first
}

// Open opens the database at where: the path of a SQLite file, or the address of a
// PostgreSQL server, which begins with postgres://. If the file does not exist, the first
// run creates it, readable by its owner alone.
//
// With ReadOnly, the error is a [*NotFoundError] if the database does not exist.
func Open(ctx context.Context, where string, o Options) (*DB, error) {
	db := &DB{where: where, o: o, engine: lazyEngine{o: o.Engine}}
	if !store.OnServer(where) {
		switch err := CheckFile(where); {
		case errors.Is(err, fs.ErrNotExist) && !o.ReadOnly:
			if _, err := os.Stat(filepath.Dir(where)); err != nil {
				return nil, &OpenError{Where: where, Err: err}
			}
			return db, nil
		case err != nil:
			return nil, err
		}
	}
	_, err := db.Log(ctx)
	return db, err
}

// Over returns the database of an open log, such as a log that decrypts the runs of
// tenants. Close leaves the log open. Without a log, the database can load and describe
// tools, but cannot record.
func Over(log store.Database, o Options) *DB {
	if log == nil {
		return &DB{o: o, engine: lazyEngine{o: o.Engine}}
	}
	return &DB{log: unclosed{log}, o: o, engine: lazyEngine{o: o.Engine}}
}

// Must returns v, and panics if there is an error. It is for examples and small programs.
func Must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// unclosed is a log that its owner closes.
type unclosed struct{ store.Database }

func (unclosed) Close() error { return nil }

// CheckFile checks that a file is a readable database. The error is a [*NotFoundError] if
// the file does not exist or is not a regular file.
func CheckFile(path string) error {
	f, err := keyfile.Open(path) // SQLite would not report missing permissions
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return &NotFoundError{What: "database", Name: path, Hint: "starling-host run records into starling.db unless --db names another file"}
	case errors.Is(err, keyfile.ErrIrregular), errors.Is(err, syscall.EISDIR):
		return &NotFoundError{What: "database", Name: path, Reason: "not a regular file"}
	case err != nil:
		return err
	}
	return f.Close()
}

// Name returns the database as commands name it, without a password.
func (db *DB) Name() string { return store.Name(db.where) }

// Log returns the event log of the database, and creates a missing file. Recording needs a
// current layout: for an older one the error is [eventlog.ErrSchemaOutdated].
func (db *DB) Log(ctx context.Context) (store.Database, error) {
	db.mu.Lock()
	defer db.mu.Unlock()
	if db.log != nil {
		return db.log, nil
	}
	if db.closed {
		return nil, eventlog.ErrLogClosed
	}
	if db.where == "" {
		return nil, &NotFoundError{What: "database", Reason: "there is no database"}
	}
	log, err := store.Open(ctx, db.where, store.Options{ReadOnly: db.o.ReadOnly})
	if err != nil {
		return nil, &OpenError{Where: db.where, Err: err}
	}
	if !db.o.ReadOnly {
		if err := eventlog.Preflight(ctx, log); err != nil {
			log.Close()
			return nil, &OpenError{Where: db.where, Err: err}
		}
	}
	db.log = log
	return log, nil
}

// Close closes the database with all its tools and agents. Their calls must have ended.
func (db *DB) Close() error {
	db.mu.Lock()
	defer db.mu.Unlock()
	if db.replays != nil {
		db.replays.Close()
	}
	for _, release := range db.closers {
		release()
	}
	db.closers, db.closed = nil, true
	db.engine.close()
	if db.log == nil {
		return nil
	}
	return db.log.Close()
}

// opened registers release, to be called when the key or the database is closed.
func (db *DB) opened(key any, release func()) {
	db.mu.Lock()
	defer db.mu.Unlock()
	if db.closers == nil {
		db.closers = map[any]func(){}
	}
	db.closers[key] = release
}

// closeOne calls the release of a key, once.
func (db *DB) closeOne(key any) {
	db.mu.Lock()
	release := db.closers[key]
	delete(db.closers, key)
	db.mu.Unlock()
	if release != nil {
		release()
	}
}

// Runs lists the runs of the database, the newest first.
func (db *DB) Runs(ctx context.Context, o eventlog.RunPageOptions) (eventlog.RunPage, error) {
	log, err := db.Log(ctx)
	if err != nil {
		return eventlog.RunPage{}, err
	}
	return log.ListRunsPage(ctx, o)
}

// Events returns the events recorded so far of a run, in order. [DB.Find] resolves the name
// of the run.
func (db *DB) Events(ctx context.Context, run string) iter.Seq2[event.Event, error] {
	log, id, err := db.find(ctx, run)
	if err != nil {
		return func(yield func(event.Event, error) bool) { yield(event.Event{}, err) }
	}
	return log.Events(ctx, id, 0)
}

// Stream returns the events of a run, including future ones. The channel is closed after
// the terminal event, and when ctx ends.
func (db *DB) Stream(ctx context.Context, run string) (<-chan event.Event, error) {
	log, id, err := db.find(ctx, run)
	if err != nil {
		return nil, err
	}
	return log.Stream(ctx, id)
}

// Find returns the id of the run that name stands for: [LastRun], a whole id, or a unique
// prefix of an id. Letters may be lower case. The error is a [*NotFoundError] if no run
// matches, or more than one.
func (db *DB) Find(ctx context.Context, name string) (id string, err error) {
	_, id, err = db.find(ctx, name)
	return id, err
}

func (db *DB) find(ctx context.Context, name string) (store.Database, string, error) {
	log, err := db.Log(ctx)
	if err != nil {
		return nil, "", err
	}
	id, err := FindRun(ctx, stored(log), name) // a sealed run has its id in the clear
	return log, id, err
}

// FindRun is [DB.Find] in a log.
func FindRun(ctx context.Context, log store.Database, name string) (string, error) {
	if name == LastRun {
		page, err := log.ListRunsPage(ctx, eventlog.RunPageOptions{Limit: 1, Begun: true})
		if err == nil && len(page.Runs) == 0 {
			err = &NotFoundError{What: "run", Name: name, Reason: "the database holds no runs"}
		}
		if err != nil {
			return "", err
		}
		return page.Runs[0].RunID, nil
	}
	switch _, err := log.Run(ctx, name); {
	case errors.Is(err, eventlog.ErrLogCorrupt): // the run exists; checking it returns the same error
		return name, nil
	case !errors.Is(err, eventlog.ErrRunNotFound):
		return name, err // a whole id, however many others begin with it
	}
	var found, ofTenants []string
	for seen, more := 0, true; more && len(found) < 2; {
		page, err := log.ListRunsPage(ctx, eventlog.RunPageOptions{Query: name, Limit: eventlog.MaxPageLimit, Offset: seen})
		if err != nil {
			return "", err
		}
		for _, run := range page.Runs {
			if beginsWith(run.RunID, name) {
				found = append(found, run.RunID)
			}
			if _, id, ok := strings.Cut(run.RunID, "/"); ok && beginsWith(id, name) {
				ofTenants = append(ofTenants, run.RunID)
			}
		}
		seen += len(page.Runs)
		more = len(page.Runs) > 0 && seen < page.TotalMatching
	}
	switch {
	case len(found) == 0 && len(ofTenants) > 0: // the HTTP API has ids without their tenant
		return "", &NotFoundError{What: "run", Name: name, Hint: "a run of a tenant is TENANT/ID, here: " + ofTenants[0]}
	case len(found) == 0:
		return "", &NotFoundError{What: "run", Name: name, Hint: "list the runs with: starling-host runs DB"}
	case len(found) > 1:
		return "", &NotFoundError{What: "run", Name: name, Hint: "give more of the id",
			Reason: fmt.Sprintf("%q is the beginning of several runs, such as %s and %s", name, found[0], found[1])}
	}
	return found[0], nil
}

// beginsWith reports whether s begins with a non-empty prefix, ignoring case.
func beginsWith(s, prefix string) bool {
	return prefix != "" && len(s) >= len(prefix) && strings.EqualFold(s[:len(prefix)], prefix)
}
