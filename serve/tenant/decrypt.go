package tenant

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"iter"
	"maps"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/eventlog/seal"
	"github.com/starling-host/starling/eventlog/store"
)

// Decrypting is a database read with the master key, see [Decrypt]. Its listings are those of the database, with
// only the visible fields of encrypted runs.
type Decrypting struct {
	store.Database
	tenants *Store

	mu   sync.Mutex        // guards logs
	logs map[string]opened // by tenant
}

// opened is the log from which to read a tenant's runs, until its key is read again.
type opened struct {
	eventlog.EventLog
	until time.Time
}

// Decrypt returns a database in which the runs of tenants are read as they were before they were encrypted.
// A database without tenants is returned as it is.
func Decrypt(ctx context.Context, log store.Database, masters []MasterKey) (store.Database, error) {
	tenants, err := Open(ctx, log, Options{Masters: masters, Existing: true, AsIs: true})
	if errors.Is(err, ErrNoTables) {
		return log, nil
	} else if err != nil {
		return nil, err
	}
	return &Decrypting{Database: log, tenants: tenants, logs: make(map[string]opened)}, nil
}

// keyTime bounds how long a key is used: another process may erase the tenant, or create it.
const keyTime = time.Second

// of returns the log from which to read a run: the log of its tenant, if the tenant has a key.
func (u *Decrypting) of(ctx context.Context, runID string) (eventlog.EventLog, error) {
	id, _, ok := strings.Cut(runID, "/")
	if !ok || ValidID(id) != nil {
		return u.Database, nil
	}
	u.mu.Lock()
	o := u.logs[id]
	u.mu.Unlock() // the database may take its time
	if time.Now().Before(o.until) {
		return o.EventLog, nil
	}
	var log eventlog.EventLog = u.Database
	key, err := u.tenants.DataKey(ctx, id)
	if err == nil {
		log, err = store.Encrypted(u.Database, key, id)
	}
	if err != nil && !errors.Is(err, ErrNotFound) && !errors.Is(err, ErrErased) {
		return nil, err
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	maps.DeleteFunc(u.logs, func(_ string, o opened) bool { return time.Now().After(o.until) })
	u.logs[id] = opened{log, time.Now().Add(keyTime)}
	return log, nil
}

// Erased implements [starling.Decrypting]. Without the master key it returns false, because the run
// might be readable with the key.
func (u *Decrypting) Erased(ctx context.Context, runID string) bool {
	id, _, _ := strings.Cut(runID, "/")
	_, err := u.tenants.DataKey(ctx, id)
	return errors.Is(err, ErrErased)
}

// ask calls a method of the log from which to read a run.
func ask[T any](ctx context.Context, u *Decrypting, runID string, method func(eventlog.EventLog, context.Context, string) (T, error)) (none T, err error) {
	log, err := u.of(ctx, runID)
	if err != nil {
		return none, err
	}
	return method(log, ctx, runID)
}

// Read implements [eventlog.EventLog].
func (u *Decrypting) Read(ctx context.Context, runID string) ([]event.Event, error) {
	return ask(ctx, u, runID, eventlog.EventLog.Read)
}

// Events implements [eventlog.EventLog].
func (u *Decrypting) Events(ctx context.Context, runID string, after uint64) iter.Seq2[event.Event, error] {
	log, err := u.of(ctx, runID)
	if err != nil {
		return func(yield func(event.Event, error) bool) { yield(event.Event{}, err) }
	}
	return log.Events(ctx, runID, after)
}

// Open implements [starling.Decrypting].
func (u *Decrypting) Open(ctx context.Context, stored event.Event) (event.Event, error) {
	log, err := u.of(ctx, stored.RunID)
	if err != nil {
		return event.Event{}, err
	}
	opener, ok := log.(seal.Opener)
	if !ok { // without a key: the tenant was erased, or is of another host
		return event.Event{}, fmt.Errorf("event %d: %w", stored.Seq, event.ErrEncrypted)
	}
	return opener.Open(ctx, stored)
}

// Stream implements [eventlog.EventLog].
func (u *Decrypting) Stream(ctx context.Context, runID string) (<-chan event.Event, error) {
	return ask(ctx, u, runID, eventlog.EventLog.Stream)
}

// Run implements [eventlog.EventLog].
func (u *Decrypting) Run(ctx context.Context, runID string) (eventlog.RunSummary, error) {
	return ask(ctx, u, runID, eventlog.EventLog.Run)
}

// Stored implements [starling.Decrypting].
func (u *Decrypting) Stored() store.Database { return u.Database }

// Opens implements [starling.Decrypting].
func (u *Decrypting) Opens(ctx context.Context, runID string) (bool, error) {
	of, err := u.of(ctx, runID)
	return of != eventlog.EventLog(u.Database), err
}

// inTheClear is a database whose encrypted runs are archived decrypted.
type inTheClear struct{ *Decrypting }

// InTheClear returns the database for an archive, whose encrypted runs are written decrypted.
func (u *Decrypting) InTheClear() store.Database { return inTheClear{u} }

// ListRuns implements [eventlog.EventLog]. The head of a decrypted run differs from the one in the
// listing. Its last event shows whether the run is complete.
func (c inTheClear) ListRuns(ctx context.Context) ([]eventlog.RunSummary, error) {
	runs, err := c.Decrypting.ListRuns(ctx)
	for i := range runs {
		opened, err := c.Opens(ctx, runs[i].RunID)
		if err != nil {
			return nil, err
		}
		if opened {
			runs[i].Head = canon.Hash{}
		}
	}
	return runs, err
}

// ForeignRunError is returned for a run of an archive that the tenant of a database cannot have.
type ForeignRunError struct{ RunID, Why string }

// Error names the run.
func (e *ForeignRunError) Error() string { return fmt.Sprintf("run %q %s", e.RunID, e.Why) }

// ForImport returns a database for [store.ImportArchive] that refuses runs of its own tenants that it could
// not read, or that are in the clear: with a [*ForeignRunError].
func ForImport(ctx context.Context, log store.Database) (store.Database, error) {
	tenants, err := Open(ctx, log, Options{Existing: true, AsIs: true})
	if errors.Is(err, ErrNoTables) {
		return importTarget{Database: log}, nil
	} else if err != nil {
		return nil, err
	}
	keys, err := tenants.DataKeyIDs(ctx)
	return importTarget{log, keys}, err
}

// importTarget is a database that refuses, for its own tenants, plain runs and runs that their keys
// do not decrypt.
type importTarget struct {
	store.Database
	keys map[string]string // ids of data keys by tenant ids
}

// Takes implements [store.ArchiveChooser].
func (t importTarget) Takes(first event.Event) error {
	id, _, _ := strings.Cut(first.RunID, "/")
	key, ours := t.keys[id]
	encrypted, ok := event.AsEncrypted(first.Payload)
	why := "is encrypted for a tenant of another host"
	switch {
	case !ours:
		return nil
	case !ok:
		why = "is in the clear, and the database encrypts what tenant " + strconv.Quote(id) + " does"
	case key == "" || key == hex.EncodeToString(encrypted.Key): // the runs of an erased one are unreadable
		return nil
	}
	return &ForeignRunError{first.RunID, why}
}
