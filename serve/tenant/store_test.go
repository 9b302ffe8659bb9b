package tenant_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/eventlog/store"
	"github.com/starling-host/starling/internal/pgtest"
	"github.com/starling-host/starling/serve/tenant"
)

// clock is a clock that stands still.
type clock struct{ at time.Time }

func (c *clock) now() time.Time { return c.at }

// database is a log with tables.
type database = eventlog.Database

// fixture is a store with one tenant, acme. Dir has the files of a log on SQLite.
type fixture struct {
	*tenant.Store
	log    database
	dir    string
	clock  *clock
	master tenant.MasterKey
}

// opener opens a new store on one of the databases.
type opener func(testing.TB) fixture

func onSQLite(t testing.TB) fixture {
	t.Helper()
	dir := t.TempDir()
	log, err := store.OpenFile(t.Context(), filepath.Join(dir, "host.db"), store.FileOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return newFixture(t, log, dir)
}

func onPostgres(t testing.TB) fixture {
	t.Helper()
	log, err := store.OpenServer(t.Context(), pgtest.Database(t), store.ServerOptions{AutoMigrate: true})
	if err != nil {
		t.Fatal(err)
	}
	return newFixture(t, log, "")
}

func newFixture(t testing.TB, log database, dir string) fixture {
	t.Helper()
	t.Cleanup(func() { log.Close() })
	f := fixture{log: log, dir: dir, clock: &clock{time.Unix(1_700_000_000, 0).UTC()}, master: tenant.NewMasterKey()}
	f.Store = f.reopen(t, f.master)
	if _, err := f.Create(t.Context(), tenant.Tenant{ID: "acme", Name: "Acme Ltd."}); err != nil {
		t.Fatal(err)
	}
	return f
}

func (f fixture) reopen(t testing.TB, masters ...tenant.MasterKey) *tenant.Store {
	t.Helper()
	s, err := tenant.Open(t.Context(), f.log, tenant.Options{Masters: masters, Now: f.clock.now})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func (f fixture) another(t testing.TB, id string) {
	t.Helper()
	if _, err := f.Create(t.Context(), tenant.Tenant{ID: id}); err != nil {
		t.Fatal(err)
	}
}

func (f fixture) add(t testing.TB, id, name, wasm string, beside []tenant.Module) (tenant.Module, error) {
	return f.AddModule(t.Context(), id, name, []byte(wasm), "[]", beside, -1)
}

// added adds a module of that name and these bytes to a tenant's.
func (f fixture) added(t testing.TB, id, wasm string) tenant.Module {
	t.Helper()
	have, err := f.Modules(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	m, err := f.add(t, id, wasm, wasm, have)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// TestStore runs everything on both databases.
func TestStore(t *testing.T) {
	for name, open := range map[string]opener{"SQLite": onSQLite, "Postgres": onPostgres} {
		for section, test := range map[string]func(*testing.T, opener){
			"create is whole or nothing":           testCreateIsWholeOrNothing,
			"erasure":                              testErasure,
			"key rows do not move":                 testKeyRowsDoNotMove,
			"keys open one tenant":                 testKeysOpenOneTenant,
			"master keys":                          testMasterKeys,
			"modules":                              testModules,
			"modules that nobody needs":            testCollect,
			"room for modules":                     testRoomForModules,
			"modules of several hosts":             testModulesOfSeveralHosts,
			"newer tables":                         testNewerTables,
			"older tables":                         testOlderTables,
			"policies":                             testPolicies,
			"policies of their own":                testOwnPolicies,
			"policies without end":                 testManyPolicies,
			"repeated requests":                    testRepeatedRequests,
			"the derived key":                      testTheDerivedKey,
			"rotation":                             testRotation,
			"rows do not move":                     testRowsDoNotMove,
			"holdings":                             testHoldings,
			"sealed texts":                         testSealedTexts,
			"secrets":                              testSecrets,
			"ids":                                  testTenantIDs,
			"tenants":                              testTenants,
			"changes at once":                      testChangesAtOnce,
			"what is wrong with a key is not said": testWhatIsWrongWithAKeyIsNotSaid,
		} {
			t.Run(name+"/"+section, func(t *testing.T) { test(t, open) })
		}
	}
}

// want fails the test unless err is wanted.
func want(t testing.TB, what string, err, wanted error) {
	t.Helper()
	if !errors.Is(err, wanted) {
		t.Errorf("%s: %v, want %v", what, err, wanted)
	}
}

func testTenants(t *testing.T, open opener) {
	f := open(t)
	f.another(t, "zeta")
	limits := tenant.Limits{Running: 2, Connections: -1, RecordedPerDay: 1 << 40}
	want(t, "limits", f.Change(t.Context(), "acme", func(now *tenant.Tenant) { now.Limits = limits }), nil)
	want(t, "weight", f.Change(t.Context(), "acme", func(now *tenant.Tenant) { now.Weight = 7 }), nil)
	want(t, "suspend", f.Suspend(t.Context(), "acme"), nil)
	got, err := f.Tenants(t.Context())
	diff := cmp.Diff([]tenant.Tenant{
		{ID: "acme", Name: "Acme Ltd.", Created: f.clock.at, Suspended: true, Weight: 7, Limits: limits},
		{ID: "zeta", Created: f.clock.at, Weight: 1},
	}, got)
	if err != nil || diff != "" {
		t.Errorf("%v\n%s", err, diff)
	}
	want(t, "resume", f.Resume(t.Context(), "acme"), nil)
	if one, err := f.Tenant(t.Context(), "acme"); err != nil || one.Suspended {
		t.Errorf("%+v, %v", one, err)
	}
	_, err = f.Create(t.Context(), tenant.Tenant{ID: "acme"})
	want(t, "a second acme", err, tenant.ErrExists)
	_, err = f.Tenant(t.Context(), "nobody")
	want(t, "nobody", err, tenant.ErrNotFound)
	want(t, "suspend nobody", f.Suspend(t.Context(), "nobody"), tenant.ErrNotFound)
	want(t, "a weight of zero", f.Change(t.Context(), "acme", func(now *tenant.Tenant) { now.Weight = 0 }), tenant.ErrInvalid)
	want(t, "change nobody", f.Change(t.Context(), "nobody", func(*tenant.Tenant) {}), tenant.ErrNotFound)
}

// testChangesAtOnce has several operators change limits of one tenant, each another one.
func testChangesAtOnce(t *testing.T, open opener) {
	f := open(t)
	var wg sync.WaitGroup
	for _, change := range []func(*tenant.Tenant){
		func(now *tenant.Tenant) { now.Limits.Running++ },
		func(now *tenant.Tenant) { now.Limits.Waiting++ },
		func(now *tenant.Tenant) { now.Weight++ },
	} {
		wg.Go(func() {
			for range 10 {
				want(t, "a change", f.Change(t.Context(), "acme", change), nil)
			}
		})
	}
	wg.Wait()
	got, err := f.Tenant(t.Context(), "acme")
	if (got.Limits != tenant.Limits{Running: 10, Waiting: 10}) || got.Weight != 11 || err != nil {
		t.Errorf("%+v with weight %d, %v", got.Limits, got.Weight, err)
	}
}

func testTenantIDs(t *testing.T, open opener) {
	f := open(t)
	for _, id := range []string{"", "A", "a/b", "-a", "a-", "a_b", "a.b", "ä", "a b", "a\n", "..", strings.Repeat("a", 33)} {
		_, err := f.Create(t.Context(), tenant.Tenant{ID: id})
		want(t, id, err, tenant.ErrInvalid)
	}
	for _, id := range []string{"a", "0", "a-b", strings.Repeat("a", 32)} {
		f.another(t, id)
	}
	for _, name := range []string{"a\x1b[31m", "\xff", strings.Repeat("n", 201)} {
		_, err := f.Create(t.Context(), tenant.Tenant{ID: "x", Name: name})
		want(t, name, err, tenant.ErrInvalid)
	}
}

func TestLimitsOr(t *testing.T) {
	got := tenant.Limits{Running: 1, Waiting: -1}.Or(tenant.DefaultLimits())
	wanted := tenant.DefaultLimits()
	wanted.Running, wanted.Waiting = 1, -1
	if got != wanted {
		t.Errorf("%+v", got)
	}
	if d := tenant.DefaultLimits(); d.Or(tenant.Limits{}) != d {
		t.Error("a limit is lost")
	}
}

func testPolicies(t *testing.T, open opener) {
	f := open(t)
	_, err := f.Policy(t.Context(), "acme")
	want(t, "no policy", err, tenant.ErrNotFound)
	first, err := f.SetPolicy(t.Context(), "acme", "version: \"1.0\"\n", true)
	if err != nil || first.Version != 1 || !first.Held || first.Digest != canon.Sum([]byte(first.Text)) {
		t.Fatalf("%+v, %v", first, err)
	}
	f.clock.at = f.clock.at.Add(time.Hour)
	if same, err := f.SetPolicy(t.Context(), "acme", first.Text, true); err != nil || same != first {
		t.Errorf("the same text again: %+v, %v", same, err)
	}
	second, err := f.SetPolicy(t.Context(), "acme", first.Text, false)
	if err != nil || second.Version != 2 || second.Held {
		t.Errorf("%+v, %v", second, err)
	}
	if now, err := f.Policy(t.Context(), "acme"); err != nil || now != second {
		t.Errorf("%+v, %v", now, err)
	}
	f.another(t, "zeta")
	_, err = f.Policy(t.Context(), "zeta")
	want(t, "another tenant's policy", err, tenant.ErrNotFound)
	_, err = f.SetPolicy(t.Context(), "nobody", "x", true)
	want(t, "nobody's policy", err, tenant.ErrNotFound)
	_, err = f.SetPolicy(t.Context(), "acme", strings.Repeat("x", tenant.MaxPolicyBytes+1), true)
	want(t, "a policy that is too long", err, tenant.ErrInvalid)
}

// testOwnPolicies makes a tenant change its policy: never a version that it has not
// seen, and never the operator's.
func testOwnPolicies(t *testing.T, open opener) {
	f := open(t)
	change := func(text string, seen ...canon.Hash) (tenant.Policy, error) {
		return f.ChangePolicy(t.Context(), "acme", text, seen...)
	}
	_, err := change("one", canon.Sum([]byte("zero")))
	want(t, "a policy that is not there", err, tenant.ErrPolicyChanged)
	_, err = change("one", canon.Hash{})
	want(t, "a policy that nobody has", err, tenant.ErrPolicyChanged)
	one, err := change("one")
	if err != nil || one.Version != 1 || one.Held {
		t.Fatalf("%+v, %v", one, err)
	}
	if again, err := change("one"); err != nil || again != one {
		t.Errorf("the same request again: %+v, %v", again, err)
	}
	_, err = change("two")
	want(t, "a policy that was not seen", err, tenant.ErrPolicyChanged)
	two, err := change("two", canon.Hash{}, one.Digest)
	if err != nil || two.Version != 2 {
		t.Errorf("%+v, %v", two, err)
	}
	_, err = change("", one.Digest)
	want(t, "to remove what was not seen", err, tenant.ErrPolicyChanged)
	if _, err := change("", two.Digest); err != nil {
		t.Error(err)
	}
	_, err = f.Policy(t.Context(), "acme")
	want(t, "a policy that was removed", err, tenant.ErrNotFound)
	if back, err := change("one"); err != nil || back.Version != 4 {
		t.Errorf("%+v, %v", back, err)
	}
	if _, err := f.SetPolicy(t.Context(), "acme", "one", true); err != nil {
		t.Error(err)
	}
	for _, text := range []string{"one", "two", ""} {
		_, err = change(text, one.Digest)
		want(t, "to change what is held", err, tenant.ErrPolicyHeld)
	}
	_, err = change(strings.Repeat("x", tenant.MaxOwnPolicyBytes+1))
	want(t, "a policy that is too long", err, tenant.ErrInvalid)
	_, err = f.ChangePolicy(t.Context(), "nobody", "x")
	want(t, "nobody's policy", err, tenant.ErrNotFound)
}

// testManyPolicies: a limited number of versions is kept, including the last.
func testManyPolicies(t *testing.T, open opener) {
	f := open(t)
	for i := range 120 {
		if _, err := f.SetPolicy(t.Context(), "acme", fmt.Sprint(i), false); err != nil {
			t.Fatal(err)
		}
	}
	list, err := f.Policies(t.Context(), "acme")
	if err != nil || len(list) != 100 || list[0].Version != 120 || list[0].Text != "119" || list[99].Version != 21 {
		t.Errorf("%d versions are kept, %v", len(list), err)
	}
	if list, err := f.Policies(t.Context(), "nobody"); err != nil || len(list) != 0 {
		t.Errorf("nobody's versions: %d, %v", len(list), err)
	}
}

func testModules(t *testing.T, open opener) {
	f := open(t)
	f.another(t, "zeta")
	m, err := f.add(t, "acme", "echo", "echo", nil)
	if err != nil || m.Trusted || !m.Uploaded.Equal(f.clock.at) {
		t.Fatalf("%+v, %v", m, err)
	}
	_, err = f.add(t, "acme", "echo", "other", []tenant.Module{m})
	want(t, "the name again", err, tenant.ErrExists)
	for _, name := range []string{"", "Echo", "a_b", "1a", "a/b", strings.Repeat("a", 41)} {
		_, err = f.add(t, "acme", name, "more", []tenant.Module{m})
		want(t, name, err, tenant.ErrInvalid)
	}
	for id, has := range map[string]int{"acme": 1, "zeta": 0, "nobody": 0} {
		if got, err := f.Modules(t.Context(), id); len(got) != has || err != nil {
			t.Errorf("%s has %+v, %v", id, got, err)
		}
	}
	for what, beside := range map[string][]tenant.Module{"none": nil, "another": {{Name: "echo"}}, "two": {m, {Name: "zoo"}}} {
		_, err := f.add(t, "acme", "more", "more", beside)
		want(t, "a module beside "+what, err, tenant.ErrChanged)
	}
	f.keeps(t, "a module that was not added", canon.Sum([]byte("more")), false)
	if text, err := f.Description(t.Context(), m.Digest, "echo"); err != nil || text != "[]" {
		t.Errorf("the module says %q, %v", text, err)
	}
	want(t, "trust of other bytes", f.TrustModule(t.Context(), "acme", "echo", canon.Sum([]byte("other")), true), tenant.ErrNotFound)
	want(t, "trust", f.TrustModule(t.Context(), "acme", "echo", m.Digest, true), nil)
	if got, err := f.Modules(t.Context(), "acme"); err != nil || len(got) != 1 || !got[0].Trusted || got[0].Size != 4 {
		t.Errorf("%+v, %v", got, err)
	}
	want(t, "removal by another", f.RemoveModule(t.Context(), "zeta", "echo"), tenant.ErrNotFound)
	want(t, "removal", f.RemoveModule(t.Context(), "acme", "echo"), nil)
	if list, err := f.Modules(t.Context(), "acme"); err != nil || len(list) != 0 {
		t.Errorf("%+v, %v", list, err)
	}
}

// testModulesOfSeveralHosts makes two hosts add modules to one tenant at the same time.
func testModulesOfSeveralHosts(t *testing.T, open opener) {
	f := open(t)
	const most = 5
	var added atomic.Int64
	var all sync.WaitGroup
	for i, host := range []*tenant.Store{f.Store, f.reopen(t, f.master)} {
		for n := range 2 * most {
			all.Go(func() {
				for range 1000 {
					have, err := host.Modules(t.Context(), "acme")
					if err != nil || len(have) == most {
						return
					}
					_, err = host.AddModule(t.Context(), "acme", fmt.Sprintf("m%d-%d", i, n), []byte("echo"), "[]", have, -1)
					if err == nil {
						added.Add(1)
						return
					}
					want(t, "an addition beside others", err, tenant.ErrChanged)
				}
			})
		}
	}
	all.Wait()
	if list, err := f.Modules(t.Context(), "acme"); err != nil || len(list) != most || added.Load() != most {
		t.Errorf("%d modules, %d added, %v", len(list), added.Load(), err)
	}
}

func testRepeatedRequests(t *testing.T, open opener) {
	f := open(t)
	f.another(t, "zeta")
	digest, other := canon.Sum([]byte("request")), canon.Sum([]byte("other"))
	transact := f.log.Transact
	if server, ok := f.log.(eventlog.Shared); ok { // as the queue has it, in whose transactions requests are performed
		transact = server.TransactCommitted
	}
	once := func(id, key string, request canon.Hash, answer string) (string, error) {
		var earlier []byte
		err := transact(t.Context(), func(tx eventlog.Tx) (err error) {
			earlier, err = f.Once(tx, id, key, request, []byte(answer), time.Hour)
			return err
		})
		return string(earlier), err
	}
	expect := func(what, id string, request canon.Hash, answer string, wanted error) {
		t.Helper()
		if earlier, err := once(id, "k", request, "a later answer"); !errors.Is(err, wanted) || earlier != answer {
			t.Errorf("%s: %q, %v", what, earlier, err)
		}
		if got, found, err := f.Answered(t.Context(), id, "k", request); !errors.Is(err, wanted) || answer != "" && (!found || string(got) != answer) {
			t.Errorf("%s: answered %q, %v, %v", what, got, found, err)
		}
	}
	if _, found, err := f.Answered(t.Context(), "acme", "k", digest); found || err != nil {
		t.Errorf("before the first request: %v, %v", found, err)
	}
	if earlier, err := once("acme", "k", digest, canary); earlier != "" || err != nil {
		t.Fatalf("the first request: %q, %v", earlier, err)
	}
	expect("the same request", "acme", digest, canary, nil)
	expect("another request", "acme", other, "", tenant.ErrKeyReused)
	if earlier, err := once("zeta", "k", other, "zeta's"); earlier != "" || err != nil {
		t.Errorf("another tenant's key: %q, %v", earlier, err)
	}
	expect("another tenant's request", "zeta", other, "zeta's", nil)
	f.clock.at = f.clock.at.Add(time.Hour)
	if earlier, err := once("acme", "k", other, "anew"); earlier != "" || err != nil {
		t.Errorf("an hour later: %q, %v", earlier, err)
	}
	expect("the key's next request", "acme", other, "anew", nil)
	for round := range 10 { // the first ones only open connections
		var all sync.WaitGroup
		answers := make([]string, 4)
		for i := range answers {
			all.Go(func() {
				mine := fmt.Sprint("answer ", i)
				earlier, err := once("acme", fmt.Sprint("at once ", round), digest, mine)
				if err != nil {
					t.Error(err)
				}
				if answers[i] = earlier; earlier == "" {
					answers[i] = mine
				}
			})
		}
		all.Wait()
		if slices.Sort(answers); answers[0] != answers[3] {
			t.Errorf("one request, sent several times at once, has the answers %q", slices.Compact(answers))
		}
	}
	for _, key := range []string{"", "a\nb", strings.Repeat("k", 256)} {
		_, err := once("acme", key, digest, "")
		want(t, key, err, tenant.ErrInvalid)
		_, _, err = f.Answered(t.Context(), "acme", key, digest)
		want(t, key, err, tenant.ErrInvalid)
	}
	_, err := once("nobody", "k", digest, "")
	want(t, "nobody", err, tenant.ErrNotFound)
}

// A store whose tables a newer program has extended is not touched.
func testNewerTables(t *testing.T, open opener) {
	f := open(t)
	at := slices.IndexFunc(tenant.Tables(), func(s eventlog.TableSet) bool { return s.Name == "tenant" })
	steps := make([]string, len(tenant.Tables()[at].Steps), 9)
	err := f.log.CreateTables(t.Context(), eventlog.TableSet{Name: "tenant", Steps: append(steps, "CREATE TABLE tenant_more (a TEXT)")})
	if err != nil {
		t.Fatal(err)
	}
	_, err = tenant.Open(t.Context(), f.log, tenant.Options{})
	want(t, "a newer store", err, eventlog.ErrSchemaTooNew)
}

// onlyRead is a database of which a command only reads.
type onlyRead struct{ database }

func (onlyRead) CreateTables(context.Context, eventlog.TableSet) error { return eventlog.ErrReadOnly }

// Tables as they were made before their columns were renamed keep what they hold. A command that only reads
// lists it as it is, and the next host renames them.
func testOlderTables(t *testing.T, open opener) {
	f, ctx := open(t), t.Context()
	sec := tenant.Secret{Name: "API_KEY", Audience: []string{"example.com"}, Place: tenant.PlaceHeader}
	want(t, "the secret", f.SetSecret(ctx, "acme", sec, tenant.NewValue(canary)), nil)
	_, err := f.sureAnswer(t, "acme", "k", time.Hour)
	want(t, "the answer", err, nil)
	for _, sql := range []string{
		"ALTER TABLE tenant_secret RENAME COLUMN encrypted TO sealed", "ALTER TABLE tenant_answer RENAME COLUMN encrypted TO sealed",
		"UPDATE table_set SET steps = 1 WHERE name = 'tenant'",
	} {
		f.change(t, sql)
	}
	read, err := tenant.Open(ctx, onlyRead{f.log}, tenant.Options{Existing: true})
	if err != nil {
		t.Fatal(err)
	}
	if list, err := read.Secrets(ctx, "acme"); err != nil || len(list) != 1 {
		t.Errorf("only reading: %v, %v", list, err)
	}
	if _, err := tenant.Open(ctx, onlyRead{f.log}, tenant.Options{}); !errors.Is(err, eventlog.ErrReadOnly) {
		t.Errorf("a host on a database that cannot be written: %v", err)
	}
	for range 2 {
		s := f.reopen(t, f.master)
		if _, value, err := s.Secret(ctx, "acme", "API_KEY"); err != nil || value.Reveal() != canary {
			t.Errorf("the secret: %v", err)
		}
		if got, found, err := s.Answered(ctx, "acme", "k", canon.Sum([]byte("k"))); err != nil || !found || string(got) != "answer" {
			t.Errorf("the answer: %q, %t, %v", got, found, err)
		}
	}
}

// Transactions that are undone leave nothing.
func testCreateIsWholeOrNothing(t *testing.T, open opener) {
	f := open(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for range 100 {
		if _, err := f.Create(ctx, tenant.Tenant{ID: "late"}); !errors.Is(err, context.Canceled) {
			t.Fatalf("a canceled context creates a tenant: %v", err)
		}
	}
	f.another(t, "late")
}
