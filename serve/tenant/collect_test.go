package tenant_test

import (
	"errors"
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
	for _, e := range []event.Event{starts(&c, digest), c.Complete()} {
		if err := log.Append(t.Context(), run, e); err != nil {
			t.Fatal(err)
		}
	}
	want(t, "sync", log.Sync(t.Context(), run), nil)
	return run
}

// starts returns the first event of a run that names a module.
func starts(c *logtest.Chain, digest canon.Hash) event.Event {
	return c.Next(event.RunStarted{SchemaVersion: event.SchemaVersion, Goal: "g", ToolSchemas: []event.ToolSchemaRef{{
		Name: "t", SchemaHash: make([]byte, 32), Sandbox: &event.Sandbox{Module: digest[:]},
	}}})
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
	f.change(t, "DELETE FROM module_use WHERE used_by = $1", run)
}

// keeps wants a module to be in the log, or not.
func (f fixture) keeps(t testing.TB, what string, digest canon.Hash, kept bool) {
	t.Helper()
	_, err := f.log.Module(t.Context(), digest)
	if err != nil && !errors.Is(err, eventlog.ErrModuleNotFound) || (err == nil) != kept {
		t.Errorf("%s: is kept %t, want %t (%v)", what, err == nil, kept, err)
	}
}

// collect returns how many modules were removed.
func (f fixture) collect(t testing.TB) int {
	t.Helper()
	c, err := tenant.Collect(t.Context(), f.log, f.clock.at)
	if err != nil {
		t.Fatal(err)
	}
	return c.Modules
}

// testCollect: a module is kept as long as a tenant has it or a run names it, and no longer.
func testCollect(t *testing.T, open opener) {
	f, ctx := open(t), t.Context()
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
	again, err := f.add(t, "acme", "again", "twice", []tenant.Module{twice})
	want(t, "the same bytes under another name", err, nil)
	remove("acme", twice)
	f.keeps(t, "a module under another name", twice.Digest, true)
	remove("acme", again)
	f.keeps(t, "a module under no name", twice.Digest, false)

	used := f.added(t, "acme", "used")
	run := f.names(t, "acme", used.Digest)
	f.collect(t)
	f.keeps(t, "a module of a tenant", used.Digest, true)
	remove("acme", used)
	f.collect(t)
	f.keeps(t, "a module that an encrypted run names", used.Digest, true)
	f.prune(t, run)
	f.collect(t)
	f.keeps(t, "a module whose runs were removed", used.Digest, false)

	put := func(wasm string) canon.Hash {
		digest, err := f.log.PutModule(ctx, []byte(wasm))
		want(t, "put", err, nil)
		return digest
	}
	programs, lost := put("of a program"), put("of a host that died, or of a program whose run comes too late")
	plain := f.names(t, "", programs)
	f.change(t, "DELETE FROM run WHERE run_id = $1", plain)
	if n := f.collect(t); n != 1 {
		t.Errorf("%d modules were removed", n)
	}
	f.keeps(t, "a module that nothing uses", lost, false)
	f.keeps(t, "a module of a run without a summary", programs, true)
	late := logtest.Chain{RunID: event.NewID(), Clock: time.Now().UnixNano()}
	want(t, "append", f.log.Append(ctx, late.RunID, starts(&late, lost)), nil)
	want(t, "a run that comes too late", f.log.Sync(ctx, late.RunID), eventlog.ErrModuleNotFound)
	want(t, "a run that comes too late", f.log.Transact(ctx, func(tx eventlog.Tx) error { return eventlog.UseModules(tx, "late", lost) }), eventlog.ErrModuleNotFound)
	put("of a host that died, or of a program whose run comes too late")
	f.names(t, "", lost)
	f.collect(t)
	f.keeps(t, "a module that was stored again", lost, true)

	_, err = f.sureAnswer(t, "zeta", "k", time.Minute)
	want(t, "answer", err, nil)
	f.clock.at = f.clock.at.Add(time.Hour)
	for _, key := range []string{"k", "k2"} { // a request touches no other tenant's answers, and no other key's
		_, err = f.sureAnswer(t, "acme", key, time.Minute)
		want(t, "answer", err, nil)
	}
	f.clock.at = f.clock.at.Add(time.Hour)
	earlier, err := f.sureAnswer(t, "acme", "k", time.Minute)
	if n := f.count(t, "tenant_answer"); n != 3 || earlier != nil || err != nil {
		t.Errorf("%d answers are kept while requests are made, want 3; the key of an expired one: %q, %v", n, earlier, err)
	}
	f.clock.at = f.clock.at.Add(time.Hour)
	f.collect(t)
	if n := f.count(t, "tenant_answer"); n != 0 {
		t.Errorf("%d answers are kept that have expired", n)
	}

	var erased []canon.Hash
	for _, wasm := range []string{"one", "two", "three"} {
		m := f.added(t, "acme", wasm)
		f.names(t, "acme", m.Digest)
		erased = append(erased, m.Digest)
	}
	f.added(t, "zeta", "three")
	e, err := f.Erase(ctx, "acme", nil)
	if err != nil || e.ModuleCount != (eventlog.ModuleCount{Modules: 2, Bytes: 6}) {
		t.Errorf("%+v, %v", e, err)
	}
	for i, digest := range erased {
		f.keeps(t, "a module of a tenant that was erased", digest, i == 2)
	}
	if _, err := f.log.PruneRuns(ctx, eventlog.PruneOptions{}); err != nil {
		t.Fatal(err)
	}
	if n := f.count(t, "module_use"); n != 1 { // zeta's
		t.Errorf("%d rows of uses are left", n)
	}
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
	add := func(id, wasm string) error {
		have, err := f.Modules(ctx, id)
		if err == nil {
			_, err = f.AddModule(ctx, id, "m"+wasm, []byte(wasm), "[]", have, 10)
		}
		return err
	}
	m := f.added(t, "acme", "first")
	f.names(t, "acme", m.Digest)
	want(t, "the same under another name", add("acme", "first"), nil)
	want(t, "as much as there is room for", add("acme", "abcde"), nil)
	var full *tenant.NoRoomError
	want(t, "removal", f.RemoveModule(ctx, "acme", "mfirst"), nil)
	want(t, "removal", f.RemoveModule(ctx, "acme", m.Name), nil)
	if err := add("acme", "x"); !errors.As(err, &full) || full.Held != 10 || full.Most != 10 || full.Removed != 5 {
		t.Errorf("one more: %v, %+v", err, full)
	}
	want(t, "another tenant", add("zeta", "tenletters"), nil)
	want(t, "nobody", add("nobody", "x"), tenant.ErrNotFound)
	for ns, bytes := range map[string]int64{"acme": 10, "zeta": 10, "nobody": 0, "": 20} {
		if c, err := eventlog.CountModules(ctx, f.log, ns); c.Bytes != bytes || err != nil {
			t.Errorf("%q: %+v, %v", ns, c, err)
		}
	}
}
