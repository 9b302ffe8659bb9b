package main

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/eventlog/seal"
	"github.com/starling-host/starling/eventlog/store"
	"github.com/starling-host/starling/serve/tenant"
)

// readFlags open a database for commands that read runs, which may be encrypted.
type readFlags struct{ keyFile string }

func (f *readFlags) add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.keyFile, "key-file", "", "`FILE` with the master key, for runs of tenants; without, the variable "+masterKeyVariable)
	_ = cmd.MarkFlagFilename("key-file")
}

// open opens a database that must be there, for reading only. With a master key
// the runs of tenants are read as they were before they were encrypted.
func (f *readFlags) open(ctx context.Context, where string) (database, error) {
	log, err := openDatabase(ctx, where)
	if err != nil {
		return nil, err
	}
	keys, err := masterKeysFrom(f.keyFile)
	if err != nil || len(keys) == 0 {
		return whole(log, err)
	}
	store, err := tenant.Open(ctx, log, tenant.Options{Masters: keys, Existing: true, AsIs: true})
	if errors.Is(err, tenant.ErrNoTables) {
		return log, nil
	}
	return whole(&decrypting{database: log, tenants: store, logs: make(map[string]opened)}, err)
}

// readCommand makes a command that reads the database of its argument DB, which is closed
// afterwards.
func readCommand(cmd *cobra.Command, read func(ctx context.Context, log database, args []string) error) *cobra.Command {
	var f readFlags
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		log, err := f.open(cmd.Context(), args[slices.Index(operands(cmd), "[DB]")])
		if err != nil {
			return err
		}
		defer log.Close()
		return read(cmd.Context(), log, args)
	}
	f.add(cmd)
	return cmd
}

// whole returns log, or closes it if there is an error.
func whole(log database, err error) (database, error) {
	if err != nil {
		log.Close()
		return nil, err
	}
	return log, nil
}

// decrypting is a database read with the master key. Its listings are those of the database, with
// only the visible fields of encrypted runs.
type decrypting struct {
	database
	tenants *tenant.Store

	mu   sync.Mutex        // guards logs
	logs map[string]opened // by tenant
}

// opened is the log from which to read a tenant's runs, until its key is read again.
type opened struct {
	eventlog.EventLog
	until time.Time
}

// keyTime bounds how long a key is used: another process may erase the tenant, or create it.
const keyTime = time.Second

// of returns the log from which to read a run: the log of its tenant, if the tenant has a key.
func (u *decrypting) of(ctx context.Context, runID string) (eventlog.EventLog, error) {
	id, _, ok := strings.Cut(runID, "/")
	if !ok || tenant.ValidID(id) != nil {
		return u.database, nil
	}
	u.mu.Lock()
	o := u.logs[id]
	u.mu.Unlock() // the database may take its time
	if time.Now().Before(o.until) {
		return o.EventLog, nil
	}
	var log eventlog.EventLog = u.database
	key, err := u.tenants.DataKey(ctx, id)
	if err == nil {
		log, err = store.Encrypted(u.database, key, id)
	}
	if err != nil && !errors.Is(err, tenant.ErrNotFound) && !errors.Is(err, tenant.ErrErased) {
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
func (u *decrypting) Erased(ctx context.Context, runID string) bool {
	id, _, _ := strings.Cut(runID, "/")
	_, err := u.tenants.DataKey(ctx, id)
	return errors.Is(err, tenant.ErrErased)
}

// Read implements [eventlog.EventLog].
func (u *decrypting) Read(ctx context.Context, runID string) ([]event.Event, error) {
	log, err := u.of(ctx, runID)
	if err != nil {
		return nil, err
	}
	return log.Read(ctx, runID)
}

// Events implements [eventlog.EventLog].
func (u *decrypting) Events(ctx context.Context, runID string, after uint64) iter.Seq2[event.Event, error] {
	log, err := u.of(ctx, runID)
	if err != nil {
		return func(yield func(event.Event, error) bool) { yield(event.Event{}, err) }
	}
	return log.Events(ctx, runID, after)
}

// Open implements [starling.Decrypting].
func (u *decrypting) Open(ctx context.Context, stored event.Event) (event.Event, error) {
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
func (u *decrypting) Stream(ctx context.Context, runID string) (<-chan event.Event, error) {
	log, err := u.of(ctx, runID)
	if err != nil {
		return nil, err
	}
	return log.Stream(ctx, runID)
}

// Run implements [eventlog.EventLog].
func (u *decrypting) Run(ctx context.Context, runID string) (eventlog.RunSummary, error) {
	log, err := u.of(ctx, runID)
	if err != nil {
		return eventlog.RunSummary{}, err
	}
	return log.Run(ctx, runID)
}

// Stored implements [starling.Decrypting].
func (u *decrypting) Stored() store.Database { return u.database }

// Opens implements [starling.Decrypting].
func (u *decrypting) Opens(ctx context.Context, runID string) (bool, error) {
	of, err := u.of(ctx, runID)
	return of != eventlog.EventLog(u.database), err
}

// erased reports whether this reader knows that the tenant of a run was erased.
func erased(ctx context.Context, log database, runID string) bool {
	u, withKey := log.(*decrypting)
	return withKey && u.Erased(ctx, runID)
}
