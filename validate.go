package starling

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/eventlog/seal"
	"github.com/starling-host/starling/eventlog/store"
)

// Decrypting is a log that decrypts the runs of tenants. A database [Over] one checks
// encrypted runs both as stored and decrypted.
type Decrypting interface {
	store.Database
	seal.Opener
	// Stored returns the underlying log with the encrypted runs.
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

// stored returns the log with the runs in their stored form.
func stored(log store.Database) store.Database {
	if u := decrypting(log); u != nil {
		return u.Stored()
	}
	return log
}

// opener returns what decrypts the runs of a log, or nil.
func opener(log store.Database) seal.Opener {
	if u := decrypting(log); u != nil {
		return u
	}
	return nil
}

// Validation is the result of checking one run.
type Validation struct {
	RunID  string
	Report eventlog.Report
	Opened bool  // the run is encrypted, and was checked with its key as well
	Err    error // why the run is invalid; nil if it is valid

	// Miscounted means that the database counts other recorded bytes for the run than its events
	// have. The run can be valid, but limits and the usage of its tenant go by the count.
	Miscounted bool
}

// Validate checks one run without executing anything: the hash chain, the Merkle root, the
// invariants of a log, and that the database has the run's modules with their recorded
// digests. The validation reports an invalid run. An error, such as an [*UnreadError],
// means that the run was not checked.
func (db *DB) Validate(ctx context.Context, run string) (Validation, error) {
	log, id, err := db.find(ctx, run)
	if err != nil {
		return Validation{}, err
	}
	return newModuleChecks(log).validate(ctx, log, id)
}

// ValidateAll checks the runs with these ids on all processors, and calls found with each
// validation, in order. The first error of found ends it.
func (db *DB) ValidateAll(ctx context.Context, ids []string, found func(Validation) error) error {
	log, err := db.Log(ctx)
	if err != nil {
		return err
	}
	modules := newModuleChecks(log)
	return inOrder(ctx, ids, func(ctx context.Context, id string) (Validation, error) { return modules.validate(ctx, log, id) }, found)
}

// RunIDs returns the ids of all runs, oldest first. If a row has no run id, it returns the ids
// of the other runs with an [eventlog.ErrLogCorrupt] that names the row.
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

// moduleChecks checks each module of the runs once: thousands of runs may name the same
// module, and a check reads and hashes all of it.
type moduleChecks struct {
	store eventlog.ModuleReader

	mu    sync.Mutex            // held while a module is checked; others would wait for it anyway
	found map[canon.Hash]string // "" if the module is intact; guarded by mu
	last  []byte                // the module that was read last, for one replay; guarded by mu
	sum   canon.Hash            // its digest
	needs eventlog.Needs        // the files that are intact; guarded by mu
}

// Module returns a module, without reading it again if it has just been checked.
func (m *moduleChecks) Module(ctx context.Context, digest canon.Hash) ([]byte, error) {
	m.mu.Lock()
	last, sum := m.last, m.sum
	m.last = nil
	m.mu.Unlock()
	if last != nil && sum == digest {
		return last, nil
	}
	return m.store.Module(ctx, digest)
}

func newModuleChecks(store eventlog.ModuleReader) *moduleChecks {
	return &moduleChecks{store: store, found: make(map[canon.Hash]string)}
}

// validate checks a run as stored and its modules and files, and an encrypted run also decrypted, if
// the key is at hand.
func (m *moduleChecks) validate(ctx context.Context, log store.Database, id string) (v Validation, err error) {
	v.RunID = id
	defer func() { // a failure to read is no verdict
		if ctx.Err() != nil {
			err = ctx.Err()
		} else if v.Err != nil && !eventlog.IsVerdict(v.Err) && !errors.Is(v.Err, store.ErrDataKey) {
			err = &UnreadError{id, v.Err}
		}
	}()
	options := eventlog.CheckOptions{Strict: true, AllowOpen: true}
	var first event.Event
	var roots []canon.Hash
	var where []*eventlog.CorruptError // the events that name the roots
	visit := func(e event.Event) error {
		if e.Seq == 1 {
			first = e
		}
		_, named, _ := e.Needs()
		for _, root := range named {
			roots, where = append(roots, root), append(where, &eventlog.CorruptError{RunID: id, Seq: e.Seq, Kind: e.Kind})
		}
		return nil
	}
	if v.Report, v.Err = eventlog.VisitRun(ctx, stored(log), id, options, visit); v.Err != nil {
		return v, nil
	}
	wrong, err := log.Miscounted(ctx, id)
	if v.Miscounted, v.Err = len(wrong) > 0, err; err != nil {
		return v, nil
	}
	if v.Report.Encrypted > 0 {
		if u := decrypting(log); u != nil {
			v.Opened, v.Err = u.Opens(ctx, id)
		}
		if v.Err != nil || !v.Opened { // the modules of an encrypted run are known only with its key
			return v, nil
		}
		if _, v.Err = eventlog.VisitRun(ctx, log, id, options, visit); v.Err != nil {
			return v, nil
		}
	}
	v.Err = m.of(ctx, first)
	for i, root := range roots {
		if v.Err == nil {
			v.Err = m.files(ctx, root, where[i])
		}
	}
	return v, nil
}

// files checks that the files with a root exist and are unchanged.
func (m *moduleChecks) files(ctx context.Context, root canon.Hash, where *eventlog.CorruptError) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	err := m.needs.Tree(ctx, root, m.store, func(eventlog.Need) error { return nil })
	if eventlog.IsVerdict(err) {
		where.Reason = eventlog.Corruption(err)
		err = where
	}
	return err
}

// of checks that the modules named in the first event of a run exist and are unchanged.
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

// check returns the defect of a module, "" if it has none. A module that could not be read
// is tried again for the next run.
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
	wasm, err := m.store.Module(ctx, sum)
	m.last, m.sum = wasm, sum
	switch {
	case errors.Is(err, eventlog.ErrModuleNotFound):
		reason = "is not in the database"
	case eventlog.IsVerdict(err):
		reason = "was changed, or cannot be read from a damaged file: " + eventlog.Corruption(err)
	case err != nil:
		return "", err
	}
	m.found[sum] = reason
	return reason, nil
}
