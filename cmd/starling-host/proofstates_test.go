package main

import (
	"bytes"
	"cmp"
	"compress/bzip2"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/starling-host/starling"
	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/logtest"
	"github.com/starling-host/starling/eventlog/seal"
	"github.com/starling-host/starling/eventlog/store"
	"github.com/starling-host/starling/serve"
	"github.com/starling-host/starling/serve/tenant"
)

// The state of a database with runs. A state that cannot exist is found by making it: the command that
// would make it is refused.
type state struct {
	Sealed, Encrypted bool
	Age               string // "new", "recorded" by an earlier version, or "step N" of the tables of a seal
	Away              string // "", a run that was "pruned", or "pruned and sealed"; a tenant that was "erased"
}

// proofs is what the tests of proofs share: keys, and how databases are made.
type proofs struct {
	dir           string
	key, master   string    // files
	vkey, foreign string    // the public key, and one that has signed nothing
	signer        *seal.Key // of key
}

func newProofs(t *testing.T) *proofs {
	t.Helper()
	skipShort(t)
	p := &proofs{dir: t.TempDir()}
	p.key, p.master = filepath.Join(p.dir, "seal.key"), filepath.Join(p.dir, "master.key")
	p.vkey = strings.TrimSpace(must(t, "seal", "keygen", p.key, "--name", "example.com/runs"))
	p.foreign = strings.TrimSpace(must(t, "seal", "keygen", filepath.Join(p.dir, "foreign.key"), "--name", "example.com/runs"))
	var err error
	if p.signer, err = seal.ReadKey(p.key); err != nil {
		t.Fatal(err)
	}
	if _, err := tenant.CreateMasterKey(p.master); err != nil {
		t.Fatal(err)
	}
	return p
}

// Two runs of a tool that completes, and one of a tool that traps, oldest first.
var proofRuns = []string{"../../spec/tck/modules/clock.wasm", "../../spec/tck/modules/trap.wasm", "../../spec/tck/modules/clock.wasm"}

// record makes runs in a new database, in the clear or as those of the tenant acme, with the tables of a
// host. It returns the ids, oldest first, and a key for the API.
func (p *proofs) record(t *testing.T, where string, encrypted bool) (ids []string, apiKey string) {
	t.Helper()
	ctx := t.Context()
	clear := where
	if encrypted {
		clear = filepath.Join(t.TempDir(), "clear.db")
	} else if onServer(where) {
		must(t, "migrate", where)
	}
	for _, module := range proofRuns {
		out, _ := command("run", module, "{}", "--db", clear, "-o", "json") // one fails
		id := regexp.MustCompile(`"run_id":"([0-9A-Z]+)"`).FindStringSubmatch(out)
		if id == nil {
			t.Fatal(out)
		}
		ids = append(ids, id[1])
	}
	if !encrypted {
		return ids, ""
	}
	from := starling.Must(store.Open(ctx, clear, store.Options{ReadOnly: true}))
	defer from.Close()
	var to store.Database
	var err error
	if onServer(where) {
		to, err = store.OpenServer(ctx, where, store.ServerOptions{AutoMigrate: true})
	} else {
		to, err = store.Open(ctx, where, store.Options{})
	}
	if err != nil {
		t.Fatal(err)
	}
	defer to.Close()
	for _, set := range serve.Tables() {
		if err := to.CreateTables(ctx, set); err != nil {
			t.Fatal(err)
		}
	}
	masters := starling.Must(tenant.ReadMasterKeys(p.master))
	tenants := starling.Must(tenant.Open(ctx, to, tenant.Options{Masters: masters}))
	starling.Must(tenants.Create(ctx, tenant.Tenant{ID: "acme", Limits: tenant.Limits{RequestsPerSecond: -1}}))
	_, revealed, err := tenants.CreateKey(ctx, "acme", "")
	if err != nil {
		t.Fatal(err)
	}
	log := starling.Must(store.Encrypted(to, starling.Must(tenants.DataKey(ctx, "acme")), "acme"))
	for i, id := range ids {
		events := starling.Must(from.Read(ctx, id))
		ids[i] = "acme/" + id
		digests := starling.Must(events[0].Modules())
		for _, d := range digests {
			starling.Must(to.PutModule(ctx, starling.Must(from.Module(ctx, d))))
		}
		for n := range events {
			events[n].RunID = ids[i]
		}
		for _, e := range logtest.Relink(events) {
			if err := log.Append(ctx, e.RunID, e); err != nil {
				t.Fatal(err)
			}
		}
		if err := log.Sync(ctx, ids[i]); err != nil {
			t.Fatal(err)
		}
	}
	return ids, revealed.Reveal()
}

// outdate returns the tables of a seal to one of their earlier steps, with what the tables of that step can hold.
func outdate(t *testing.T, where string, step int) {
	t.Helper()
	db := starling.Must(store.Open(t.Context(), where, store.Options{}))
	defer db.Close()
	older := seal.Tables
	older.Steps, older.Name = seal.Tables.Steps[:step], "old_seal"
	columns := func(table string) (names []string) {
		err := db.View(t.Context(), func(q eventlog.Querier) error {
			return q.Query("SELECT name FROM pragma_table_info($1)", []any{table}, func(r eventlog.Row) error {
				var name string
				err := r.Scan(&name)
				names = append(names, name)
				return err
			})
		})
		if err != nil {
			t.Fatal(err)
		}
		return names
	}
	exec := func(format string, args ...any) {
		err := db.Transact(t.Context(), func(tx eventlog.Tx) error {
			_, err := tx.Exec(fmt.Sprintf(format, args...))
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	exec("DROP INDEX IF EXISTS run_leaf_by_run")
	for _, table := range seal.Tables.Tables {
		exec("ALTER TABLE %s RENAME TO newer_%[1]s", table)
	}
	if err := db.CreateTables(t.Context(), older); err != nil {
		t.Fatal(err)
	}
	for _, table := range seal.Tables.Tables {
		newer := columns("newer_" + table)
		both := slices.DeleteFunc(columns(table), func(name string) bool { return !slices.Contains(newer, name) })
		if len(both) > 0 {
			exec("INSERT INTO %s (%s) SELECT %[2]s FROM newer_%[1]s", table, strings.Join(both, ", "))
		}
		exec("DROP TABLE newer_%s", table)
	}
	exec("DELETE FROM table_set WHERE name = 'old_seal'")
	exec("UPDATE table_set SET steps = %d WHERE name = 'seal'", step)
}

// states returns all of them, also those that cannot exist.
func states() (all []state) {
	ages := []string{"new", "recorded"}
	for step := 1; step < len(seal.Tables.Steps); step++ {
		ages = append(ages, fmt.Sprint("step ", step))
	}
	for _, sealed := range []bool{false, true} {
		for _, encrypted := range []bool{false, true} {
			for _, age := range ages {
				for _, away := range []string{"", "pruned", "pruned and sealed", "erased"} {
					all = append(all, state{sealed, encrypted, age, away})
				}
			}
		}
	}
	return all
}

// made is a database in some state.
type made struct {
	state
	file, master string
	kept, gone   string // a run that is there, and one that was pruned, if any
}

// make makes a database. It returns why there is none.
func (p *proofs) make(t *testing.T, s state, recordings string) (m made, why string) {
	t.Helper()
	m = made{state: s, file: filepath.Join(t.TempDir(), "a.db"), master: p.master}
	var ids []string
	if s.Age == "recorded" {
		name := map[bool]string{false: "plain", true: "tenants"}[s.Encrypted]
		m.master = filepath.Join(recordings, "tenants.key")
		if err := os.WriteFile(m.file, starling.Must(os.ReadFile(filepath.Join(recordings, name+".db"))), 0o600); err != nil {
			t.Fatal(err)
		}
		log := starling.Must(store.Open(t.Context(), m.file, store.Options{ReadOnly: true}))
		for _, run := range starling.Must(log.ListRuns(t.Context())) {
			if erased := strings.HasPrefix(run.RunID, "acme/") == (s.Away == "erased"); run.TerminalKind != 0 && !(s.Encrypted && erased) {
				ids = append(ids, run.RunID)
			}
		}
		log.Close()
		slices.Reverse(ids)
	} else {
		ids, _ = p.record(t, m.file, s.Encrypted)
	}
	m.kept = ids[len(ids)-1]
	for _, do := range []struct {
		needed  bool
		without string // of what the step makes no sense
		args    []string
	}{
		{s.Sealed, "", []string{"seal", m.file, "--key", p.key}},
		{strings.HasPrefix(s.Away, "pruned"), "", []string{"prune", m.file, "--status", "failed", "--confirm"}},
		{s.Away == "pruned and sealed", cmp.Or(map[bool]string{false: "what was never sealed has no sealed removal"}[s.Sealed]), []string{"seal", m.file, "--key", p.key}},
		{s.Away == "erased" && s.Age != "recorded", cmp.Or(map[bool]string{false: "there is no tenant"}[s.Encrypted]), []string{"tenant", "erase", "acme", "--yes", "--db", m.file}},
	} {
		switch {
		case !do.needed:
		case do.without != "":
			return m, do.without
		default:
			if out, failed := command(do.args...); failed {
				answer := answerOf(out, true, "")
				if s.Age != "recorded" || answer != answersOutdated {
					t.Errorf("%+v: %s: %s", s, strings.Join(do.args, " "), out)
				}
				return m, do.args[0] + " is refused: " + answer
			}
		}
	}
	if strings.HasPrefix(s.Away, "pruned") {
		m.gone = ids[1]
	}
	if s.Away == "erased" && !s.Encrypted {
		return m, "there is no tenant"
	}
	if step, ok := strings.CutPrefix(s.Age, "step "); ok {
		if !s.Sealed {
			return m, "it has no tables of a seal"
		}
		n := 0
		if _, err := fmt.Sscan(step, &n); err != nil {
			t.Fatal(err)
		}
		outdate(t, m.file, n)
	}
	return m, ""
}

// recordings unpacks the databases that an earlier version recorded.
func recordings(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{"plain.db.bz2", "tenants.db.bz2", "tenants.key"} {
		data := starling.Must(os.ReadFile(filepath.Join("testdata/recorded/2026-11", name)))
		if short, packed := strings.CutSuffix(name, ".bz2"); packed {
			name, data = short, starling.Must(io.ReadAll(bzip2.NewReader(bytes.NewReader(data))))
		}
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}
