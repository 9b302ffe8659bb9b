package starling

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/eventlog/store"
	"github.com/starling-host/starling/runtime/observe"
)

// LastRun names the newest run wherever the id of a run is expected: in a file the one that
// was begun last, whatever the clocks said, and on a server the one that began latest.
const LastRun = "@last"

// Options say how a database is opened and what executes its tools. The zero value opens a
// database for recording, and executes tools in this process.
type Options struct {
	// ReadOnly opens a database that must exist, and records nothing.
	ReadOnly bool

	// Engine says what executes tools.
	Engine EngineOptions

	// AppVersion is the version of the program around this package. It is recorded for the
	// reader, and empty by default.
	AppVersion string

	// Logger is told what runs do. Nil discards.
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
	log     store.Database // nil until a file that does not exist is needed
	closers map[any]func() // of loaded modules and opened agents
	closed  bool

	replaying sync.Mutex // guards replays
	replays   *Replayer  // of [DB.Replay]; nil until the first
}

// Open opens the database that where names: the path of a SQLite file, or the address of a
// PostgreSQL server, which begins with postgres://. The first run creates a file that does
// not exist, readable by its owner alone.
//
// The error is a [*NotFoundError] if a database to read does not exist.
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

// Over returns the database of a log that is open already, such as one that decrypts the
// runs of tenants. Close leaves the log open. Without a log, tools can be loaded and looked
// at, and nothing can be recorded.
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

// CheckFile refuses what is not the file of a database that can be read, with a
// [*NotFoundError] if there is no such file or it is not a regular one.
func CheckFile(path string) error {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return &NotFoundError{What: "database", Name: path}
	case err != nil:
		return err
	case !info.Mode().IsRegular():
		return &NotFoundError{What: "database", Name: path, Reason: "not a regular file"}
	}
	f, err := os.Open(path) // SQLite would not say that permission is missing
	if err != nil {
		return err
	}
	return f.Close()
}

// Log returns the event log of the database, and creates a file that does not exist. The
// layout of a log to record in must be current: the error of an older one is
// [eventlog.ErrSchemaOutdated].
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

// Close closes the database and every tool and agent of it. Their calls must have ended.
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

// opened has release called when what was opened is closed, or the database is.
func (db *DB) opened(what any, release func()) {
	db.mu.Lock()
	defer db.mu.Unlock()
	if db.closers == nil {
		db.closers = map[any]func(){}
	}
	db.closers[what] = release
}

// closeOne closes what was opened, once.
func (db *DB) closeOne(what any) {
	db.mu.Lock()
	release := db.closers[what]
	delete(db.closers, what)
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

// Events returns the events of a run that are recorded now, in order. The run is named as
// for [DB.Find].
func (db *DB) Events(ctx context.Context, run string) iter.Seq2[event.Event, error] {
	log, id, err := db.find(ctx, run)
	if err != nil {
		return func(yield func(event.Event, error) bool) { yield(event.Event{}, err) }
	}
	return log.Events(ctx, id, 0)
}

// Stream returns the events of a run, those to come included. The channel is closed after
// the terminal event, and when ctx ends.
func (db *DB) Stream(ctx context.Context, run string) (<-chan event.Event, error) {
	log, id, err := db.find(ctx, run)
	if err != nil {
		return nil, err
	}
	return log.Stream(ctx, id)
}

// Find returns the id of the run that name stands for: [LastRun], a whole id, or the
// beginning of one that no other run shares. Letters may be lower case. The error is a
// [*NotFoundError] if there is none, or more than one.
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
	case errors.Is(err, eventlog.ErrLogCorrupt): // it is there; a check of it returns the same error
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
		return "", &NotFoundError{What: "run", Name: name}
	case len(found) > 1:
		return "", &NotFoundError{What: "run", Name: name, Hint: "give more of the id",
			Reason: fmt.Sprintf("%q is the beginning of several runs, such as %s and %s", name, found[0], found[1])}
	}
	return found[0], nil
}

// beginsWith reports whether s begins with a prefix that is not empty, in letters of any
// case.
func beginsWith(s, prefix string) bool {
	return prefix != "" && len(s) >= len(prefix) && strings.EqualFold(s[:len(prefix)], prefix)
}

// DatabaseName is how a database is called in messages: without a password.
func DatabaseName(where string) string {
	if !store.OnServer(where) {
		return where
	}
	u, err := url.Parse(where)
	if err != nil {
		return "the database"
	}
	return u.Redacted()
}
