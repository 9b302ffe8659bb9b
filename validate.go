package starling

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/eventlog/store"
)

// Decrypting is a log that decrypts the runs of tenants. [Over] takes one, and then checks
// encrypted runs both as they are stored and as they were before.
type Decrypting interface {
	store.Database
	// Stored returns the log that has the runs as they are stored.
	Stored() store.Database
	// Opens reports whether the log decrypts a run.
	Opens(ctx context.Context, runID string) (bool, error)
	// Erased reports whether the key of a run was destroyed.
	Erased(ctx context.Context, runID string) bool
}

func decrypting(log store.Database) Decrypting {
	if u, ok := log.(unclosed); ok {
		log = u.Database
	}
	u, _ := log.(Decrypting)
	return u
}

// stored returns the log that has the runs as they are stored.
func stored(log store.Database) store.Database {
	if u := decrypting(log); u != nil {
		return u.Stored()
	}
	return log
}

// Validation is what a check of one run found.
type Validation struct {
	RunID  string
	Report eventlog.Report
	Opened bool  // the run is encrypted, and was checked with its key as well
	Err    error // why the run is not valid; nil if it is
}

// Validate checks one run without executing anything: the hash chain, the Merkle root, the
// invariants of a log, and that the modules of the run are in the database with the
// digests that it recorded. What is wrong with the run is in the validation. An error, such
// as an [*UnreadError], means that the run was not checked.
func (db *DB) Validate(ctx context.Context, run string) (Validation, error) {
	log, id, err := db.find(ctx, run)
	if err != nil {
		return Validation{}, err
	}
	return newModuleChecks(log).validate(ctx, log, id)
}

// ValidateAll checks the runs with these ids on all processors, and calls found with what
// came of each, in their order. The first error of found ends it.
func (db *DB) ValidateAll(ctx context.Context, ids []string, found func(Validation) error) error {
	log, err := db.Log(ctx)
	if err != nil {
		return err
	}
	modules := newModuleChecks(log)
	return inOrder(ctx, ids, func(ctx context.Context, id string) (Validation, error) { return modules.validate(ctx, log, id) }, found)
}

// RunIDs returns the ids of every run, oldest first. Beside an [eventlog.ErrLogCorrupt], which
// names a row without a run's id, it returns those of the other runs.
func (db *DB) RunIDs(ctx context.Context) ([]string, error) {
	log, err := db.Log(ctx)
	if err != nil {
		return nil, err
	}
	runs, err := log.ListRuns(ctx)
	ids := make([]string, len(runs))
	for i, run := range runs {
		ids[len(runs)-1-i] = run.RunID
	}
	return ids, err
}

// moduleChecks checks the modules that runs name, each once: thousands of runs name the
// same module, of which all bytes have to be read and hashed.
type moduleChecks struct {
	store eventlog.ModuleStore

	mu    sync.Mutex            // held while a module is checked, for which others would wait anyway
	found map[canon.Hash]string // what is wrong with each; guarded by mu
}

func newModuleChecks(store eventlog.ModuleStore) *moduleChecks {
	return &moduleChecks{store: store, found: make(map[canon.Hash]string)}
}

// validate checks a run as it is stored and, if it is sealed and the key is at hand, as it
// was before, and its modules.
func (m *moduleChecks) validate(ctx context.Context, log store.Database, id string) (v Validation, err error) {
	v.RunID = id
	defer func() { // what could not be read is no verdict
		if ctx.Err() != nil {
			err = ctx.Err()
		} else if v.Err != nil && !eventlog.IsVerdict(v.Err) && !errors.Is(v.Err, store.ErrDataKey) {
			err = &UnreadError{id, v.Err}
		}
	}()
	options := eventlog.CheckOptions{Strict: true, AllowOpen: true}
	if v.Report, v.Err = eventlog.CheckRun(ctx, stored(log), id, options); v.Err != nil {
		return v, nil
	}
	if v.Report.Encrypted > 0 {
		if u := decrypting(log); u != nil {
			v.Opened, v.Err = u.Opens(ctx, id)
		}
		if v.Err != nil || !v.Opened { // only its key tells which modules a sealed run has
			return v, nil
		}
		if _, v.Err = eventlog.CheckRun(ctx, log, id, options); v.Err != nil {
			return v, nil
		}
	}
	for first, err := range log.Events(ctx, id, 0) {
		if v.Err = err; err == nil {
			v.Err = m.of(ctx, first)
		}
		return v, nil
	}
	return v, nil
}

// of checks that the modules which the first event of a run names are there and unchanged.
func (m *moduleChecks) of(ctx context.Context, first event.Event) error {
	started, err := first.AsRunStarted()
	if err != nil {
		return err
	}
	for _, ref := range started.ToolSchemas {
		if ref.Sandbox == nil {
			continue
		}
		reason, err := m.check(ctx, ref.Sandbox.Module)
		if err != nil {
			return err
		}
		if reason != "" {
			return &eventlog.CorruptError{RunID: first.RunID, Seq: first.Seq, Kind: first.Kind,
				Reason: fmt.Sprintf("module %x of tool %q %s", ref.Sandbox.Module, ref.Name, reason)}
		}
	}
	return nil
}

// check returns what is wrong with a module, nothing if all is well. One that could not be
// read is read again for the next run that names it.
func (m *moduleChecks) check(ctx context.Context, digest []byte) (reason string, err error) {
	if len(digest) != len(canon.Hash{}) {
		return "has a digest of the wrong length", nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	sum := canon.Hash(digest)
	if reason, known := m.found[sum]; known {
		return reason, nil
	}
	switch _, err := m.store.Module(ctx, sum); {
	case errors.Is(err, eventlog.ErrModuleNotFound):
		reason = "is not in the database"
	case eventlog.IsVerdict(err):
		reason = "was changed, or cannot be read from a damaged file: " + Corruption(err)
	case err != nil:
		return "", err
	}
	m.found[sum] = reason
	return reason, nil
}
