package serve

import (
	"errors"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/eventlog/logtest"
	"github.com/starling-host/starling/eventlog/seal"
	"github.com/starling-host/starling/eventlog/store"
	"github.com/starling-host/starling/internal/pgtest"
	"github.com/starling-host/starling/serve/queue"
	"github.com/starling-host/starling/serve/tenant"
)

// TestWhatIsAcknowledgedIsOnTheStandby carries out everything that the log, the queue and the tenants
// acknowledge while the only standby is away, and interrupts each wait for it. Then the primary is
// lost: the standby has all of it. Every exported method is in one of the lists.
func TestWhatIsAcknowledgedIsOnTheStandby(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIPPED: a standby stops and starts for each acknowledgement; run without -short")
	}
	t.Parallel()
	pair := pgtest.StartPair(t)
	_, address := pair.Database(t)
	ctx := t.Context()
	master := tenant.NewMasterKey()
	open := func() (store.Database, *tenant.Store, *queue.Queue) {
		t.Helper()
		log, err := store.OpenServer(ctx, address, store.ServerOptions{AutoMigrate: true})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { log.Close() })
		tenants, err := tenant.Open(ctx, log, tenant.Options{Masters: []tenant.MasterKey{master}})
		if err != nil {
			t.Fatal(err)
		}
		q, err := queue.Open(ctx, log, queue.Config{})
		if err != nil {
			t.Fatal(err)
		}
		return log, tenants, q
	}
	log, tenants, q := open()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, id := range []string{"alice", "bob", "carol"} {
		_, err := tenants.Create(ctx, tenant.Tenant{ID: id})
		must(err)
	}
	_, revoked, err := tenants.CreateKey(ctx, "alice", "revoked")
	must(err)
	secret := tenant.Secret{Name: "KEPT", Audience: []string{"api.example.com"}, Place: tenant.PlaceHeader}
	must(tenants.SetSecret(ctx, "alice", secret, tenant.NewValue("a secret value")))
	wasm := func(n byte) []byte { return append([]byte("\x00asm\x01\x00\x00\x00"), 0, 2, 1, n) }
	for i, name := range []string{"trusted", "removed"} {
		beside, err := tenants.Modules(ctx, "alice")
		must(err)
		_, err = tenants.AddModule(ctx, "alice", name, wasm(byte(i)), "[]", beside, -1)
		must(err)
	}
	for _, id := range []string{"alice/cancelled", "alice/kept"} {
		must(q.Enqueue(ctx, queue.Job{RunID: id, Tenant: "alice"}, nil))
	}
	must(q.Enqueue(ctx, queue.Job{RunID: "alice/answered", Tenant: "alice"}, func(tx eventlog.Tx) error {
		_, err := tenants.Once(tx, "alice", "key", canon.Sum([]byte("r")), []byte("answer"), time.Hour)
		return err
	}))
	pruned := logtest.Finished("pruned", 3)
	storeAll := func() error {
		for _, e := range pruned {
			if err := log.Append(ctx, e.RunID, e); err != nil {
				return err
			}
		}
		return log.Sync(ctx, "pruned")
	}
	must(storeAll())
	key, err := seal.NewKey("standby.example")
	must(err)

	// What each operation leaves, as a host finds it that begins to work with the standby.
	type operation struct {
		do   func() error
		left func() error // on the standby
		seen error
	}
	holds := func(ok bool, err error) error {
		if err == nil && !ok {
			err = errors.New("the standby lacks it")
		}
		return err
	}
	of := func(id string) tenant.Tenant {
		one, err := tenants.Tenant(ctx, id)
		must(err)
		return one
	}
	chain := logtest.Chain{RunID: "synced"}
	first := chain.Start("g")
	begun := false
	operations := map[string]operation{
		"Log.Sync": {do: func() error {
			if !begun { // the event is queued once, and waited for again
				must(log.Append(ctx, "synced", first))
				begun = true
			}
			return log.Sync(ctx, "synced")
		}, left: func() error { _, err := log.Run(ctx, "synced"); return err }},
		"Log.Transact": {do: func() error {
			return log.Transact(ctx, func(tx eventlog.Tx) error {
				_, err := tx.Exec("INSERT INTO tenant_policy (tenant, version, digest, text, held, created) VALUES ('t', 1, '', '', 0, 0)")
				return err
			})
		}, left: func() error {
			return log.View(ctx, func(v eventlog.Querier) error {
				found, err := eventlog.QueryOne(v, "SELECT version FROM tenant_policy WHERE tenant = 't'", nil, new(int64))
				return holds(found, err)
			})
		}, seen: eventlog.ErrConflict},
		"Log.PutModule":   {do: func() error { _, err := log.PutModule(ctx, wasm(9)); return err }},                              // an erasure removes it
		"Log.PutContents": {do: func() error { return log.PutContents(ctx, "", []eventlog.Content{{Bytes: []byte("a file")}}) }}, // as a module
		"Log.PruneRuns": {do: func() error {
			_, err := log.PruneRuns(ctx, eventlog.PruneOptions{RunIDs: []string{"pruned"}})
			return err
		}, left: func() error {
			_, err := log.Run(ctx, "pruned")
			return holds(errors.Is(err, eventlog.ErrRunNotFound), nil)
		}},
		"Log.Import": {do: func() error {
			var archive strings.Builder
			source := store.Memory()
			for _, e := range logtest.Finished("imported", 3) {
				must(source.Append(ctx, e.RunID, e))
			}
			_, err := store.WriteArchive(ctx, &archive, source, eventlog.PruneOptions{})
			must(err)
			_, err = store.ImportArchive(ctx, log, strings.NewReader(archive.String()))
			return err
		}, left: func() error { _, err := log.Run(ctx, "imported"); return err }},
		"seal.Seal": {do: func() error { _, err := seal.Seal(ctx, log, key); return err },
			left: func() error { kept, err := seal.Kept(ctx, log); return holds(kept, err) }},

		"Queue.Enqueue": {do: func() error { return q.Enqueue(ctx, queue.Job{RunID: "alice/new", Tenant: "alice"}, nil) },
			left: func() error { _, err := q.Find(ctx, "alice/new"); return err }, seen: queue.ErrExists},
		"Queue.Cancel": {do: func() error { return q.Cancel(ctx, "alice/cancelled") }, left: func() error {
			s, err := q.Find(ctx, "alice/cancelled")
			return holds(s.State == queue.Cancelling, err)
		}},
		"Queue.Retry": {do: func() error { return q.Retry(ctx, "alice/kept") }, seen: queue.ErrNotSleeping},
		"Queue.Drain": {do: func() error { return q.Drain(ctx, "nobody", true) }, seen: queue.ErrNoHost},

		"Store.Create": {do: func() error { _, err := tenants.Create(ctx, tenant.Tenant{ID: "dave"}); return err },
			left: func() error { _, err := tenants.Tenant(ctx, "dave"); return err }, seen: tenant.ErrExists},
		"Store.Suspend": {do: func() error { return tenants.Suspend(ctx, "bob") },
			left: func() error { return holds(of("bob").Suspended, nil) }},
		"Store.Change": {do: func() error { return tenants.Change(ctx, "carol", func(t *tenant.Tenant) { t.Weight = 7 }) },
			left: func() error { return holds(of("carol").Weight == 7, nil) }},
		"Store.Erase": {do: func() error { _, err := tenants.Erase(ctx, "carol", log); return err },
			left: func() error { return holds(!of("carol").Erased.IsZero(), nil) }},
		"Store.CreateKey": {do: func() error { _, _, err := tenants.CreateKey(ctx, "alice", "new"); return err }},
		"Store.RevokeKey": {do: func() error { return tenants.RevokeKey(ctx, "alice", tenant.KeyID(revoked.Reveal())) }, left: func() error {
			_, err := tenants.Authenticate(ctx, revoked.Reveal())
			return holds(errors.Is(err, tenant.ErrUnauthorized), nil)
		}},
		"Store.DerivedKey": {do: func() error { _, err := tenants.DerivedKey(ctx, "alice", "derived"); return err }},
		"Store.SetSecret": {do: func() error {
			return tenants.SetSecret(ctx, "alice", tenant.Secret{Name: "NEW", Audience: secret.Audience, Place: secret.Place}, tenant.NewValue("a secret value"))
		}, left: func() error { _, _, err := tenants.Secret(ctx, "alice", "NEW"); return err }},
		"Store.DeleteSecret": {do: func() error { return tenants.DeleteSecret(ctx, "alice", "KEPT") }, left: func() error {
			_, _, err := tenants.Secret(ctx, "alice", "KEPT")
			return holds(errors.Is(err, tenant.ErrNotFound), nil)
		}, seen: tenant.ErrNotFound},
		"Store.SetPolicy": {do: func() error { _, err := tenants.SetPolicy(ctx, "alice", "version: \"1.0\"\n", false); return err },
			left: func() error { _, err := tenants.Policy(ctx, "alice"); return err }},
		"Store.ChangePolicy": {do: func() error { _, err := tenants.ChangePolicy(ctx, "bob", "version: \"1.0\"\n"); return err },
			left: func() error { _, err := tenants.Policy(ctx, "bob"); return err }},
		"Store.AddModule": {do: func() error { _, err := tenants.AddModule(ctx, "bob", "added", wasm(3), "[]", nil, -1); return err },
			left: func() error { list, err := tenants.Modules(ctx, "bob"); return holds(len(list) == 1, err) }, seen: tenant.ErrChanged},
		"Store.TrustModule": {do: func() error { return tenants.TrustModule(ctx, "alice", "trusted", canon.Sum(wasm(0)), true) }},
		"Store.RemoveModule": {do: func() error { return tenants.RemoveModule(ctx, "alice", "removed") },
			left: func() error { list, err := tenants.Modules(ctx, "alice"); return holds(len(list) == 1, err) }, seen: tenant.ErrNotFound},
		"Store.Rewrap": {do: func() error { _, err := tenants.Rewrap(ctx, master); return err }},
		"Store.Answered": {do: func() error {
			_, found, err := tenants.Answered(ctx, "alice", "key", canon.Sum([]byte("r")))
			return holds(found, err)
		}},
	}
	elsewhere := map[string]string{
		"Store.Resume": "Store.Suspend", "Store.RotateKey": "Store.CreateKey", "Store.Once": "Log.Transact", "Store.UseMasters": "memory",
		"Queue.Steer": "Queue.Cancel", "Queue.Work": "Log.Transact",
		"Log.Append": "Log.Sync", "Log.Fenced": "Log.Sync", "Log.Close": "Log.Sync", "Log.MigrateSchema": "Log.PruneRuns",
		"Log.RemoveUnusedModules": "Log.Transact", "Log.CreateTables": "lost tables are made again",
	}
	reads := strings.Fields(`Store.Authenticate Store.CheckMaster Store.DataKey Store.DataKeyIDs Store.Description Store.Holdings Store.Keys
		Store.MasterKeys Store.MasterUses Store.MayChangePolicy Store.ModuleRoom Store.Modules Store.Policies Store.Policy Store.Secret Store.Secrets
		Store.Tenant Store.Tenants Queue.Draining Queue.Find Queue.HeldBytes Queue.HostList Queue.Hosts Queue.List Queue.Loads Queue.Lookup
		Queue.Overview Queue.Stats Queue.Usage Log.Events Log.HasModule Log.ListRuns Log.ListRunsPage Log.Miscounted Log.Module Log.Read Log.Recorded Log.Run Log.SchemaVersions
		Log.Stream Log.TableSteps Log.View`)
	for kind, typ := range map[string]reflect.Type{"Store": reflect.TypeFor[*tenant.Store](), "Queue": reflect.TypeFor[*queue.Queue](), "Log": reflect.TypeFor[store.Database]()} {
		for i := range typ.NumMethod() {
			name := kind + "." + typ.Method(i).Name
			_, walked := operations[name]
			if !walked && elsewhere[name] == "" && !slices.Contains(reads, name) {
				t.Errorf("%s neither reads nor is it tried", name)
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(operations)) {
		pair.NeverAlone(t, name, operations[name].do, operations[name].seen)
	}
	pair.Primary.Crash(t)
	pair.Promote(t)
	log, tenants, q = open()
	for name, o := range operations {
		if o.left != nil {
			if err := o.left(); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}
