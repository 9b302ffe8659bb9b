package tenant_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/eventlog/logtest"
	"github.com/starling-host/starling/eventlog/store"
	"github.com/starling-host/starling/serve/tenant"
)

// names appends a run that names a module, and returns its id. A tenant's is encrypted.
func (f fixture) names(t testing.TB, id string, digest canon.Hash) string {
	t.Helper()
	var log eventlog.EventLog = f.log
	run := event.NewID()
	if id != "" {
		key, err := f.DataKey(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		if log, err = store.Encrypted(f.log, key, id); err != nil {
			t.Fatal(err)
		}
		run = id + "/" + run
	}
	c := logtest.Chain{RunID: run, Clock: time.Now().UnixNano()}
	start := c.Next(event.RunStarted{SchemaVersion: event.SchemaVersion, Goal: "g", ToolSchemas: []event.ToolSchemaRef{{
		Name: "t", SchemaHash: make([]byte, 32), Sandbox: &event.Sandbox{Module: digest[:]},
	}}})
	for _, e := range []event.Event{start, c.Complete()} {
		if err := log.Append(t.Context(), run, e); err != nil {
			t.Fatal(err)
		}
	}
	want(t, "sync", log.Sync(t.Context(), run), nil)
	return run
}

// uses is names, for a run that is accepted with its module.
func (f fixture) uses(t testing.TB, id string, m tenant.Module) string {
	t.Helper()
	want(t, "use", f.log.Transact(t.Context(), func(tx eventlog.Tx) error { return f.UseModule(tx, id, m) }), nil)
	return f.names(t, id, m.Digest)
}

func (f fixture) change(t testing.TB, sql string, args ...any) {
	t.Helper()
	want(t, sql, f.log.Transact(t.Context(), func(tx eventlog.Tx) error { _, err := tx.Exec(sql, args...); return err }), nil)
}

// prune removes a run and its traces in every table, even if it has no summary.
func (f fixture) prune(t testing.TB, run string) {
	t.Helper()
	f.change(t, "DELETE FROM eventlog_events WHERE run_id = $1", run)
	f.change(t, "DELETE FROM run WHERE run_id = $1", run)
}

// keeps wants a module to be in the log, or not.
func (f fixture) keeps(t testing.TB, what string, digest canon.Hash, kept bool) {
	t.Helper()
	_, err := f.log.Module(t.Context(), digest)
	if err != nil && !errors.Is(err, eventlog.ErrModuleNotFound) || (err == nil) != kept {
		t.Errorf("%s: is kept %t, want %t (%v)", what, err == nil, kept, err)
	}
}

// collect collects as at a later time, and returns how many modules were removed.
func (f fixture) collect(t testing.TB, later time.Duration) int {
	t.Helper()
	c, err := tenant.Collect(t.Context(), f.log, time.Now().Add(later))
	if err != nil {
		t.Fatal(err)
	}
	return c.Modules
}

// testCollect: a module is kept as long as a tenant has it, a run names it, or it was
// stored a moment ago, and no longer.
func testCollect(t *testing.T, open opener) {
	f, ctx, later := open(t), t.Context(), 3*time.Hour
	f.another(t, "zeta")
	f.clock.at = time.Now()
	remove := func(id string, m tenant.Module) { t.Helper(); want(t, "removal", f.RemoveModule(ctx, id, m.Name), nil) }

	unused := f.added(t, "acme", "unused")
	remove("acme", unused)
	f.keeps(t, "a module that was never called", unused.Digest, false)
	if text, err := f.Description(ctx, unused.Digest, unused.Name); text != "" || err != nil {
		t.Errorf("its description is still there: %q, %v", text, err)
	}

	shared := f.added(t, "acme", "shared")
	f.added(t, "zeta", "shared")
	remove("acme", shared)
	f.keeps(t, "a module of another tenant, too", shared.Digest, true)
	remove("zeta", shared)
	f.keeps(t, "a module of neither", shared.Digest, false)

	twice := f.added(t, "acme", "twice")
	have, err := f.Modules(ctx, "acme")
	want(t, "modules", err, nil)
	again := twice
	again.Name = "again"
	_, err = f.AddModule(ctx, "acme", again, "[]", have)
	want(t, "the same bytes under another name", err, nil)
	remove("acme", twice)
	f.keeps(t, "a module under another name", twice.Digest, true)
	remove("acme", again)
	f.keeps(t, "a module under no name", twice.Digest, false)

	used := f.added(t, "acme", "used")
	run := f.uses(t, "acme", used)
	if list, err := f.Modules(ctx, "acme"); err != nil || len(list) != 1 || !list[0].Used {
		t.Errorf("after a run that names it: %+v, %v", list, err)
	}
	f.collect(t, later)
	f.keeps(t, "a module of a tenant", used.Digest, true)
	remove("acme", used)
	want(t, "a run that comes too late", f.log.Transact(ctx, func(tx eventlog.Tx) error { return f.UseModule(tx, "acme", used) }), tenant.ErrNotFound)
	f.names(t, "zeta", canon.Sum([]byte("elsewhere"))) // which does not concern acme's modules
	f.collect(t, later)
	f.keeps(t, "a module that a run names", used.Digest, true)
	f.prune(t, run)
	f.collect(t, 0)
	f.keeps(t, "a module that was removed a moment ago", used.Digest, true)
	f.collect(t, later)
	f.keeps(t, "a module whose runs were removed", used.Digest, false)

	lost := f.stored(t, "acme", "lost")
	f.collect(t, 0)
	f.keeps(t, "a module that is being uploaded", lost.Digest, true)
	f.collect(t, later)
	f.keeps(t, "a module of a host that died", lost.Digest, false)
	have, err = f.Modules(ctx, "acme")
	want(t, "modules", err, nil)
	_, err = f.AddModule(ctx, "acme", lost, "[]", have)
	want(t, "a module that was collected before it was added", err, tenant.ErrChanged)
	dropped := f.stored(t, "acme", "dropped")
	want(t, "drop", f.DropModule(ctx, "acme", dropped.Digest), nil)
	f.keeps(t, "a module that was not added", dropped.Digest, false)

	put := func(wasm string) canon.Hash {
		digest, err := f.log.PutModule(ctx, []byte(wasm))
		want(t, "put", err, nil)
		return digest
	}
	programs, recent := put("of a program"), put("of a program that is about to begin a run")
	plain := f.names(t, "", programs)
	f.collect(t, 0)
	f.keeps(t, "a module that was stored a moment ago", recent, true)
	f.change(t, "DELETE FROM run WHERE run_id = $1", plain)
	for _, r := range f.sealedRuns(t) {
		f.prune(t, r)
	}
	f.collect(t, later)
	f.keeps(t, "a module that nobody named in time", recent, false)
	f.keeps(t, "a module of a run without a summary", programs, true)
	f.prune(t, plain)
	f.collect(t, later)
	f.keeps(t, "a module of a run that was removed", programs, false)

	agents := put("of an agent of the host")
	run = f.names(t, "zeta", agents)
	f.collect(t, later)
	f.keeps(t, "a module that an encrypted run may name", agents, true)
	f.prune(t, run)
	f.collect(t, later)
	f.keeps(t, "a module that no run names", agents, false)

	newer := put("of a run that a newer program wrote")
	run = f.names(t, "", newer)
	f.change(t, "UPDATE eventlog_events SET payload = $1 WHERE run_id = $2 AND seq = 1", []byte{0xff}, run)
	f.collect(t, later)
	f.keeps(t, "a module that a run which cannot be read may name", newer, true)
	f.prune(t, run)
	f.collect(t, later)

	_, err = f.sureAnswer(t, "zeta", "k", time.Minute)
	want(t, "answer", err, nil)
	f.collect(t, later)
	if n := f.count(t, "tenant_answer"); n != 0 {
		t.Errorf("%d answers are kept that have expired", n)
	}

	var gone []canon.Hash
	for _, wasm := range []string{"one", "two", "three"} {
		m := f.added(t, "acme", wasm)
		f.uses(t, "acme", m)
		gone = append(gone, m.Digest)
	}
	other := f.added(t, "zeta", "three")
	e, err := f.Erase(ctx, "acme", nil)
	if err != nil || e.Collected.Modules != 2 || e.Collected.Bytes != 6 {
		t.Errorf("%+v, %v", e, err)
	}
	for i, digest := range gone {
		f.keeps(t, "a module of a tenant that was erased", digest, i == 2)
	}
	remove("zeta", other)
	if n := f.count(t, "module") + f.count(t, "module_hold") + f.count(t, "daemon_description"); n != 0 {
		t.Errorf("%d rows are left", n)
	}
}

func (f fixture) sealedRuns(t testing.TB) (runs []string) {
	t.Helper()
	err := f.log.View(t.Context(), func(q eventlog.Querier) error {
		return q.Query("SELECT run_id FROM run WHERE run_id > '0' ORDER BY run_id", nil, func(r eventlog.Row) error {
			var id string
			err := r.Scan(&id)
			if strings.Contains(id, "/") {
				runs = append(runs, id)
			}
			return err
		})
	})
	want(t, "runs", err, nil)
	return runs
}

func (f fixture) count(t testing.TB, table string) (n int64) {
	t.Helper()
	err := f.log.View(t.Context(), func(q eventlog.Querier) error {
		return q.Query("SELECT count(*) FROM "+table, nil, func(r eventlog.Row) error { return r.Scan(&n) })
	})
	want(t, table, err, nil)
	return n
}

// sureAnswer keeps an answer to an idempotency key.
func (f fixture) sureAnswer(t testing.TB, id, key string, lives time.Duration) (earlier []byte, err error) {
	t.Helper()
	err = f.log.Transact(t.Context(), func(tx eventlog.Tx) error {
		earlier, err = f.Once(tx, id, key, canon.Sum([]byte(key)), []byte("answer"), lives)
		return err
	})
	return earlier, err
}

// testRoomForModules: a tenant's stored bytes are bounded, and removed modules that
// runs still need count.
func testRoomForModules(t *testing.T, open opener) {
	f, ctx := open(t), t.Context()
	f.another(t, "zeta")
	f.clock.at = time.Now()
	hold := func(id, wasm string) error {
		return f.HoldModule(ctx, id, canon.Sum([]byte(wasm)), int64(len(wasm)), 10)
	}
	m := f.added(t, "acme", "first")
	f.uses(t, "acme", m)
	want(t, "the same again", hold("acme", "first"), nil)
	want(t, "as much as there is room for", hold("acme", "abcde"), nil)
	err := hold("acme", "x")
	var full *tenant.NoRoomError
	if !errors.As(err, &full) || full.Held != 10 || full.Most != 10 || full.Removed != 5 {
		t.Errorf("one more: %v, %+v", err, full)
	}
	want(t, "another tenant", hold("zeta", "tenletters"), nil)
	want(t, "nobody", hold("nobody", "x"), tenant.ErrNotFound)
	want(t, "drop", f.DropModule(ctx, "acme", canon.Sum([]byte("abcde"))), nil)
	want(t, "removal", f.RemoveModule(ctx, "acme", m.Name), nil)
	if err := hold("acme", "abcdef"); !errors.As(err, &full) || full.Removed != 5 {
		t.Errorf("what a run names of a removed module: %v, %+v", err, full)
	}
	if modules, bytes, err := f.HeldBytes(ctx, ""); modules != 2 || bytes != 15 || err != nil {
		t.Errorf("%d modules of %d bytes, %v", modules, bytes, err)
	}
}
