package main

import (
	"bytes"
	"cmp"
	"compress/bzip2"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/starling-host/starling"
	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/eventlog/logtest"
	"github.com/starling-host/starling/eventlog/receipt"
	"github.com/starling-host/starling/eventlog/seal"
	"github.com/starling-host/starling/eventlog/store"
	"github.com/starling-host/starling/internal/pgtest"
	"github.com/starling-host/starling/internal/treetest"
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

// Answers about what is not there, or cannot be read, and is not corrupt.
const (
	answersOutdated  = "outdated"
	answersEncrypted = "encrypted"
	answersNeverSeal = "never sealed"
	answersNotSealed = "not in a checkpoint"
	answersNoRun     = "no run"
	answersInvalid   = "invalid"
)

// answerOf reduces what a surface says to one of its answers. ok is the answer if it succeeds.
func answerOf(text string, failed bool, ok string) string {
	for _, a := range []struct{ pattern, answer string }{
		{`panic|goroutine`, "panic"},
		{`corrupt`, "corrupt"},
		{`schema outdated`, answersOutdated},
		{`never (been )?sealed`, answersNeverSeal},
		{`no checkpoint has the run`, answersNotSealed},
		{`(?i)the payload is encrypted`, answersEncrypted},
		{`no run|run not found|does not exist|has no receipts|not contain`, answersNoRun},
		{`invalid`, answersInvalid},
	} {
		if failed && regexp.MustCompile(a.pattern).MatchString(text) {
			return a.answer
		}
	}
	if failed {
		return "other: " + text
	}
	return ok
}

// answered is answerOf for an error in Go, by what it is.
func answered(err error, ok string) string {
	for _, a := range []struct {
		is     error
		answer string
	}{
		{eventlog.ErrSchemaOutdated, answersOutdated}, {event.ErrEncrypted, answersEncrypted}, {seal.ErrNoLog, answersNeverSeal},
		{seal.ErrNotSealed, answersNotSealed}, {eventlog.ErrRunNotFound, answersNoRun}, {eventlog.ErrLogCorrupt, "corrupt"},
	} {
		if errors.Is(err, a.is) {
			return a.answer
		}
	}
	if err != nil {
		return answerOf(err.Error(), true, ok)
	}
	return ok
}

// command runs a command in this process. A panic is part of what it has printed.
func command(args ...string) (out string, failed bool) {
	var stdout, stderr bytes.Buffer
	code := func() (code int) {
		defer func() {
			if p := recover(); p != nil {
				fmt.Fprint(&stderr, "panic: ", p)
				code = exitFailed
			}
		}()
		return Main(args, strings.NewReader(""), &stdout, &stderr)
	}()
	if code != exitOK {
		return stdout.String() + stderr.String(), true
	}
	return stdout.String(), false
}

func must(t *testing.T, args ...string) string {
	t.Helper()
	out, failed := command(args...)
	if failed {
		t.Fatalf("%s: %s", strings.Join(args, " "), out)
	}
	return out
}

// proofs is what the tests of this file share: keys, and how databases are made.
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

// trusts are the keys that a verifier may give.
var trusts = []string{"none", "right", "foreign"}

// policy returns what a verifier gives: to Go, to the command, and to the page.
func (p *proofs) policy(t *testing.T, trust string) (policy *seal.Policy, args []string, text string) {
	t.Helper()
	key := map[string]string{"right": p.vkey, "foreign": p.foreign}[trust]
	if key == "" {
		return nil, nil, ""
	}
	return starling.Must(seal.Trust(key)), []string{"--key", key}, "log " + key + "\nquorum none\n"
}

// saidOf returns the verdict of "verify -o json", and whether a signature counts.
func saidOf(out string, failed bool) string {
	var doc struct {
		Verdict string
		Trusted bool
	}
	if line, _, _ := strings.Cut(out, "\n"); json.Unmarshal([]byte(line), &doc) != nil || doc.Verdict == "" {
		return answerOf(out, failed, "nothing")
	}
	return said(doc.Verdict, doc.Trusted)
}

func said(verdict string, trusted bool) string {
	if trusted && verdict != answersInvalid {
		return verdict + ", trusted"
	}
	return verdict
}

// surfaces are the answers to one question, by the surface that gave it.
type surfaces map[string]string

// check requires that all surfaces answer as is wanted.
func (s surfaces) check(t *testing.T, question, want string) {
	t.Helper()
	for _, name := range slices.Sorted(maps.Keys(s)) {
		if s[name] != want {
			t.Errorf("%s: %s: %q, want %q", question, name, s[name], want)
		}
	}
}

// paged is a bundle that the page's program has to verify.
type paged struct {
	Page, Policy string
	question     string
	want         string
}

// TestEverySurfaceHasTheSameVerdict makes databases in all states, all artefacts of them, and asks every
// surface that can read them, with and without keys. Nothing panics, nothing that is old or away is corrupt,
// and all surfaces agree.
func TestEverySurfaceHasTheSameVerdict(t *testing.T) {
	p, recorded := newProofs(t), recordings(t)
	var pages []paged
	existing, ageless := 0, map[string]int{}
	for _, s := range states() {
		name := fmt.Sprintf("sealed=%t,encrypted=%t,%s,%s", s.Sealed, s.Encrypted, s.Age, cmp.Or(s.Away, "whole"))
		t.Run(name, func(t *testing.T) {
			m, why := p.make(t, s, recorded)
			if why != "" {
				t.Logf("cannot exist: %s", why)
				return
			}
			existing++
			ageless[s.Age]++
			p.database(t, m)
			p.archive(t, m)
			for _, master := range []string{"", m.master} {
				p.receipts(t, m, master)
			}
			p.proof(t, m)
			pages = append(pages, p.bundle(t, m)...)
		})
	}
	if existing < 12 || len(ageless) != 1+len(seal.Tables.Steps) {
		t.Errorf("%d states exist, by age %v", existing, ageless)
	}
	t.Run("page", func(t *testing.T) { askPages(t, pages) })
}

func (m made) outdated() bool { return strings.HasPrefix(m.Age, "step ") }

// opens reports whether the runs can be read with the key.
func (m made) opens(master string) bool { return !m.Encrypted || master != "" && m.Away != "erased" }

// open opens a database as commands do.
func open(t *testing.T, file, master string) database {
	t.Helper()
	f := readFlags{keyFile: master}
	return starling.Must(f.open(t.Context(), file))
}

func withMaster(args []string, master string) []string {
	if master != "" {
		return append(slices.Clone(args), "--key-file", master)
	}
	return args
}

// database asks whether the database is valid, and as it was sealed.
func (p *proofs) database(t *testing.T, m made) {
	for _, trust := range trusts {
		policy, args, _ := p.policy(t, trust)
		want := "valid"
		switch {
		case m.outdated():
			want = answersOutdated
		case !m.Sealed:
			want = answersNeverSeal
		case trust == "foreign":
			want = answersInvalid
		case m.Away == "pruned":
			want = "unexplained"
		}
		if trust == "right" && (want == "valid" || want == "unexplained") {
			want += ", trusted"
		}
		log := open(t, m.file, "")
		r, err := starling.Over(log, starling.Options{}).Verify(t.Context(), policy)
		log.Close()
		surfaces{
			"command": saidOf(command(append([]string{"verify", m.file, "-o", "json"}, args...)...)),
			"Go":      answered(err, said(r.Verdict(), len(r.Signatures) > 0)),
		}.check(t, "verify with the key "+trust, want)
	}
	for _, master := range []string{"", m.master} {
		log := open(t, m.file, master)
		db := starling.Over(log, starling.Options{})
		invalid := 0
		err := db.ValidateAll(t.Context(), starling.Must(db.RunIDs(t.Context())), func(v starling.Validation) error {
			if v.Err != nil {
				invalid++
			}
			return nil
		})
		log.Close()
		out, failed := command(withMaster([]string{"validate", m.file}, master)...)
		assistant, refused := askTool(t, withMaster([]string{"mcp", m.file}, master), "validate_run", map[string]any{"run_id": m.kept})
		page := ask(t, "POST", inspected(t, master, m.file), "/runs/"+strings.ReplaceAll(m.kept, "/", "%2F")+"/validate")
		surfaces{
			"command":   answerOf(out, failed, "valid"),
			"Go":        answered(err, map[bool]string{true: "valid", false: answersInvalid}[invalid == 0]),
			"assistant": answerOf(assistant, refused || !strings.Contains(assistant, `"ok":true`), "valid"),
			"inspector": answerOf(page, !strings.Contains(page, "were unchanged."), "valid"),
		}.check(t, fmt.Sprintf("validate with the master key %t", master != ""), "valid")
	}
}

// archive writes one, checks it and imports it.
func (p *proofs) archive(t *testing.T, m made) {
	for _, master := range []string{"", m.master} {
		file, into := filepath.Join(t.TempDir(), "a.ndjson"), filepath.Join(t.TempDir(), "into.db")
		question := fmt.Sprintf("archive with the master key %t", master != "")
		out, failed := command(withMaster([]string{"archive", m.file, file}, master)...)
		surfaces{"command": answerOf(out, failed, "valid")}.check(t, question, "valid")
		if failed {
			continue
		}
		written := starling.Must(os.ReadFile(file))
		_, err := store.CheckArchive(t.Context(), bytes.NewReader(written))
		out, failed = command("archive", "--check", file)
		imported, unimported := command("import", into, file)
		surfaces{
			"command": answerOf(out, failed, "valid"), "Go": answered(err, "valid"), "import": answerOf(imported, unimported, "valid"),
			"validated": func() string { out, failed := command("validate", into); return answerOf(out, failed, "valid") }(),
		}.check(t, question+", checked", "valid")
	}
}

// receipts asks everything that issues them, and checks those that it got, in each kind.
func (p *proofs) receipts(t *testing.T, m made, master string) {
	runs := map[string]string{"kept": m.kept}
	if m.gone != "" {
		runs["gone"] = m.gone
	} else if !m.Encrypted && m.Age != "recorded" { // the tool of this run has failed
		log := open(t, m.file, master)
		runs["failed"] = starling.Must(log.ListRuns(t.Context()))[1].RunID
		log.Close()
	}
	for name, id := range runs {
		for _, leafOnly := range []bool{false, true} {
			want := "valid"
			switch {
			case name == "gone":
				want = answersNoRun
			case !m.opens(master):
				want = answersEncrypted
			case m.outdated():
				want = answersOutdated
			}
			log := open(t, m.file, master)
			issuer := &receipt.Issuer{Key: p.signer, LeafOnly: leafOnly}
			all, err := starling.Over(log, starling.Options{Receipts: issuer}).Receipts(t.Context(), id)
			log.Close()
			args := withMaster([]string{"receipt", m.file, id, "--key", p.key}, master)
			if leafOnly {
				args = append(args, "--leaf-only")
			}
			out, failed := command(args...)
			answers := surfaces{"Go": answered(err, "valid"), "command": answerOf(out, failed, "valid")}
			if !leafOnly {
				text, refused := askTool(t, withMaster([]string{"mcp", m.file, "--receipts", p.key}, master), "get_receipt", map[string]any{"run_id": id})
				answers["assistant"] = answerOf(text, refused, "valid")
			}
			question := fmt.Sprintf("receipt of the run %s, leaf only %t, master key %t", name, leafOnly, master != "")
			answers.check(t, question, want)
			for _, r := range all {
				if (r.Proof != "") != m.Sealed || (r.COSE != nil) != m.Sealed {
					t.Errorf("%s: proof %q, COSE %x", question, r.Proof, r.COSE)
				}
				p.verifyKinds(t, question, r)
			}
		}
	}
}

// verifyKinds verifies a receipt with each of its parts taken away.
func (p *proofs) verifyKinds(t *testing.T, question string, r *receipt.Receipt) {
	for _, kind := range []struct {
		name string
		with func(*receipt.Receipt)
	}{
		{"whole", func(*receipt.Receipt) {}},
		{"without COSE", func(r *receipt.Receipt) { r.COSE = nil }},
		{"the statement alone", func(r *receipt.Receipt) { r.COSE, r.Proof, r.Leaf = nil, "", nil }},
		{"a changed COSE receipt", func(r *receipt.Receipt) {
			if r.COSE = bytes.Clone(r.COSE); len(r.COSE) > 0 {
				r.COSE[len(r.COSE)/2] ^= 1
			}
		}},
		{"a changed proof", func(r *receipt.Receipt) { r.Proof = strings.Replace(r.Proof, "index 2", "index 1", 1) }},
	} {
		changed := *r
		kind.with(&changed)
		doc := starling.Must(json.Marshal(changed))
		file := filepath.Join(t.TempDir(), "a.receipt")
		if err := os.WriteFile(file, doc, 0o600); err != nil {
			t.Fatal(err)
		}
		for _, trust := range trusts {
			policy, args, _ := p.policy(t, trust)
			want := map[string]string{"none": "valid", "right": "valid, trusted", "foreign": answersInvalid}[trust]
			if kind.name == "a changed proof" && changed.Proof != r.Proof ||
				kind.name == "a changed COSE receipt" && r.COSE != nil && policy != nil { // which is its key's alone
				want = answersInvalid
			}
			parsed, err := receipt.Parse(t.Context(), doc)
			var c receipt.Checked
			if err == nil {
				c, err = parsed.Check(t.Context(), policy)
			}
			inGo := said("valid", c.SignedBy != "")
			if err != nil {
				inGo = answersInvalid
			}
			surfaces{"Go": inGo, "command": saidOf(command(append([]string{"verify", file, "-o", "json"}, args...)...))}.check(t, question+": "+kind.name+", key "+trust, want)
			if changed.Proof == "" {
				continue
			}
			// A reader of tlog proofs has the proof alone.
			alone := answersInvalid
			if proof, err := seal.ParseProof([]byte(changed.Proof)); err == nil {
				leaf := starling.Must(seal.ParseLeaf(changed.Leaf))
				if _, signatures, err := proof.Check(leaf, policy); err == nil {
					alone = said("valid", len(signatures) > 0)
				}
			}
			if kind.name == "a changed COSE receipt" { // which is another part
				want = map[string]string{"none": "valid", "right": "valid, trusted", "foreign": answersInvalid}[trust]
			}
			surfaces{"Go": alone}.check(t, question+": the tlog proof alone, "+kind.name+", key "+trust, want)
		}
	}
}

// proof proves a run and an event, and verifies the proofs.
func (p *proofs) proof(t *testing.T, m made) {
	for _, id := range []string{m.kept, m.gone} {
		for _, seq := range []uint64{0, 2} {
			if id == "" {
				continue
			}
			want := "valid"
			switch {
			case m.outdated():
				want = answersOutdated
			case !m.Sealed:
				want = answersNeverSeal
			case id == m.gone && seq > 0:
				want = answersNoRun
			}
			question := fmt.Sprintf("proof of event %d of %s", seq, map[bool]string{true: "a run that is there", false: "a pruned run"}[id == m.kept])
			log := open(t, m.file, "")
			s, err := starling.Over(log, starling.Options{}).Prove(t.Context(), id, seq)
			log.Close()
			args := []string{"prove", m.file, id}
			if seq > 0 {
				args = append(args, fmt.Sprint(seq))
			}
			out, failed := command(args...)
			surfaces{"Go": answered(err, "valid"), "command": answerOf(out, failed, "valid")}.check(t, question, want)
			if failed || err != nil {
				continue
			}
			file := filepath.Join(t.TempDir(), "proof.json")
			if err := os.WriteFile(file, []byte(out), 0o600); err != nil {
				t.Fatal(err)
			}
			for _, trust := range trusts {
				policy, args, _ := p.policy(t, trust)
				_, signatures, err := s.Check(policy)
				inGo := said("valid", len(signatures) > 0)
				if err != nil {
					inGo = answersInvalid
				}
				surfaces{"Go": inGo, "command": saidOf(command(append([]string{"verify", file, "-o", "json"}, args...)...))}.check(t, question+" with the key "+trust,
					map[string]string{"none": "valid", "right": "valid, trusted", "foreign": answersInvalid}[trust])
			}
		}
	}
}

// bundle makes bundles with and without receipts, verifies them, and returns what their pages have to say.
func (p *proofs) bundle(t *testing.T, m made) (pages []paged) {
	for _, id := range []string{m.kept, m.gone} {
		for _, receipts := range []bool{false, true} {
			if id == "" {
				continue
			}
			want := "valid"
			switch {
			case id == m.gone:
				want = answersNoRun
			case m.outdated():
				want = answersOutdated
			}
			dir := starling.Must(os.MkdirTemp(p.dir, "")) // until all pages were asked
			file, page := filepath.Join(dir, "a.starling"), filepath.Join(dir, "a.html")
			args, o := []string{"bundle", m.file, id}, starling.Options{}
			if receipts {
				args, o.Receipts = append(args, "--receipts", p.key), &receipt.Issuer{Key: p.signer}
			}
			question := fmt.Sprintf("bundle, receipts %t", receipts)
			out, failed := command(append(slices.Clone(args), "-o", file)...)
			asPage, failedPage := command(append(slices.Clone(args), "--html", "-o", page)...)
			log := open(t, m.file, "")
			b, err := starling.Over(log, o).Bundle(t.Context(), id)
			log.Close()
			surfaces{
				"command": answerOf(out, failed, "valid"), "page": answerOf(asPage, failedPage, "valid"), "Go": answered(err, "valid"),
			}.check(t, question, want)
			if failed || failedPage || err != nil {
				continue
			}
			written := starling.Must(b.Bytes())
			if sum := starling.Must(os.ReadFile(file)); !bytes.Equal(sum, written) {
				t.Errorf("%s: the command and Go write different bundles", question)
			}
			for _, trust := range trusts {
				policy, args, text := p.policy(t, trust)
				verdict := map[bool]string{false: "identical", true: "not_replayed"}[m.Encrypted]
				vouched := m.Sealed || receipts && !m.Encrypted
				switch {
				case trust == "right" && vouched:
					verdict = said(verdict, m.Sealed)
				case trust != "none":
					verdict = answersInvalid
				}
				v, err := starling.VerifyBundle(t.Context(), written, starling.BundleOptions{Policy: policy})
				question := question + " with the key " + trust
				surfaces{
					"Go":                answered(err, said(v.Document().Verdict, v.Document().Trusted)),
					"command":           saidOf(command(append([]string{"verify", file, "-o", "json"}, args...)...)),
					"command on a page": saidOf(command(append([]string{"verify", page, "-o", "json"}, args...)...)),
				}.check(t, question, verdict)
				pages = append(pages, paged{page, text, t.Name() + ": " + question, verdict})
			}
		}
	}
	return pages
}

// pageProgram verifies bundles with the program in a page, as the page does.
const pageProgram = `
const fs = require("fs"), { gunzipSync } = require("zlib");
const part = (file, id) => fs.readFileSync(file, "latin1").split('id="' + id + '">')[1].split("</script>")[0];
const asked = JSON.parse(fs.readFileSync(0, "utf8"));
(0, eval)(part(asked[0].Page, "glue"));
const unpack = (file, id) => new Uint8Array(gunzipSync(Buffer.from(part(file, id), "base64")));
function next() {
	const one = asked.shift();
	if (!one) process.exit(0);
	const heard = [];
	globalThis.starling.verify(unpack(one.Page, "bundle"), one.Policy ? { policy: one.Policy } : {}, (text) => {
		const m = JSON.parse(text);
		heard.push(m);
		if (!m.done) return;
		console.log(JSON.stringify(heard));
		setTimeout(next, 0);
	});
}
globalThis.starling = { ready: next };
const go = new Go();
WebAssembly.instantiate(unpack(asked[0].Page, "program"), go.importObject).then((p) => go.run(p.instance));
`

// askPages lets the program of the pages verify their bundles. A page shows the worst that it says.
func askPages(t *testing.T, pages []paged) {
	treetest.Needs(t, "node")
	cmd := exec.CommandContext(t.Context(), "node", "--stack-size=8000", "-e", pageProgram)
	var stderr bytes.Buffer
	cmd.Stdin, cmd.Stderr = bytes.NewReader(starling.Must(json.Marshal(pages))), &stderr
	out, err := cmd.Output()
	lines := bytes.Split(bytes.TrimSpace(out), []byte("\n"))
	if err != nil || len(lines) != len(pages) {
		t.Fatalf("%v: %d answers of %d: %s", err, len(lines), len(pages), stderr.String())
	}
	for i, line := range lines {
		var heard []struct {
			Proofs *struct {
				Error  string
				Signed []string
			}
			Verdict *struct{ Verdict string }
			Error   string
		}
		if err := json.Unmarshal(line, &heard); err != nil {
			t.Fatal(err)
		}
		verdict, trusted := "identical", false
		for _, m := range heard {
			switch {
			case m.Error != "" || m.Proofs != nil && m.Proofs.Error != "":
				verdict = answersInvalid
			case m.Proofs != nil:
				trusted = len(m.Proofs.Signed) > 0
			case m.Verdict != nil && m.Verdict.Verdict != "identical" && verdict != answersInvalid:
				verdict = m.Verdict.Verdict
			}
		}
		surfaces{"page's program": said(verdict, trusted)}.check(t, pages[i].question, pages[i].want)
	}
}

// askTool calls a tool of the assistant's server that the arguments start.
func askTool(t *testing.T, args []string, name string, arguments map[string]any) (text string, refused bool) {
	t.Helper()
	call := starling.Must(json.Marshal(map[string]any{"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": map[string]any{"name": name, "arguments": arguments}}))
	answer := askAssistant(t, args, initialize+string(call)+"\n")
	var doc struct {
		Result struct {
			IsError bool
			Content []struct{ Text string }
		}
		Error any
	}
	if err := json.Unmarshal([]byte(answer), &doc); err != nil || len(doc.Result.Content) == 0 {
		return answer, true
	}
	return doc.Result.Content[0].Text, doc.Result.IsError || doc.Error != nil
}

// signer is a surface that signs, or hands out proofs, what is in a database. It returns what it said, and
// whether it was refused. One without the API's key or of a run that is not encrypted may have no such surface.
type signer struct {
	files string // of the product in which the surface asks for it, separated by spaces
	ask   func(t *testing.T, f forging) (out string, refused bool)
}

type forging struct {
	p                 *proofs
	where, id, master string
	call              func(path string) (string, bool) // of the API; nil without
}

var signers = map[string]signer{
	"command receipt": {"cmd/starling-host/receipt.go", func(t *testing.T, f forging) (string, bool) {
		return command(withMaster([]string{"receipt", f.where, f.id, "--key", f.p.key}, f.master)...)
	}},
	"command bundle": {"cmd/starling-host/bundle.go", func(t *testing.T, f forging) (string, bool) {
		return command("bundle", f.where, f.id, "--receipts", f.p.key, "-o", filepath.Join(t.TempDir(), "b.starling"))
	}},
	"command prove": {"cmd/starling-host/bundle.go", func(t *testing.T, f forging) (string, bool) {
		return command("prove", f.where, f.id, "2")
	}},
	"Go receipts": {"seal.go eventlog/receipt/issuer.go", func(t *testing.T, f forging) (string, bool) {
		return f.inGo(t, func(db *starling.DB) error { _, err := db.Receipts(t.Context(), f.id); return err })
	}},
	"Go bundle": {"seal.go eventlog/seal/run.go", func(t *testing.T, f forging) (string, bool) {
		return f.inGo(t, func(db *starling.DB) error { _, err := db.Bundle(t.Context(), f.id); return err })
	}},
	"Go prove": {"seal.go", func(t *testing.T, f forging) (string, bool) {
		return f.inGo(t, func(db *starling.DB) error { _, err := db.Prove(t.Context(), f.id, 2); return err })
	}},
	"get_receipt of an assistant": {"serve/internal/mcpsrv/logtools.go serve/internal/eventview/view.go serve/gateway/service.go", func(t *testing.T, f forging) (string, bool) {
		return askTool(t, withMaster([]string{"mcp", f.where, "--receipts", f.p.key}, f.master), "get_receipt", map[string]any{"run_id": f.id})
	}},
	"API": {"serve/internal/daemon/receipts.go", func(t *testing.T, f forging) (string, bool) {
		if f.call == nil {
			return "", false
		}
		return f.call("/api/v1/runs/" + strings.TrimPrefix(f.id, "acme/") + "/receipt")
	}},
}

// signsElsewhere are the files that ask for signatures of what they have recorded themselves just before, of new
// leaves, or of what is no run. TestInvalidRunsAreNotSealed of package seal forges what becomes a leaf.
var signsElsewhere = "serve/gateway/tools.go serve/seal.go cmd/starling-host/seal.go eventlog/seal/log.go eventlog/seal/sealer.go"

func (f forging) inGo(t *testing.T, do func(db *starling.DB) error) (string, bool) {
	log := open(t, f.where, f.master)
	defer log.Close()
	if err := do(starling.Over(log, starling.Options{Receipts: &receipt.Issuer{Key: f.p.signer}})); err != nil {
		return err.Error(), true
	}
	return "", false
}

// TestNoSurfaceSignsWhatWasForged changes rows of a sealed database, a file or on a server, in the clear and
// encrypted, and asks every surface that signs.
func TestNoSurfaceSignsWhatWasForged(t *testing.T) {
	p := newProofs(t)
	for _, server := range []bool{false, true} {
		for _, encrypted := range []bool{false, true} {
			t.Run(fmt.Sprintf("server=%t,encrypted=%t", server, encrypted), func(t *testing.T) { p.forge(t, server, encrypted) })
		}
	}
}

func (p *proofs) forge(t *testing.T, server, encrypted bool) {
	where := filepath.Join(t.TempDir(), "a.db")
	if server {
		where = pgtest.Database(t)
	}
	ids, key := p.record(t, where, encrypted)
	must(t, "seal", where, "--key", p.key)
	f := forging{p: p, where: where, id: ids[1]}
	if encrypted {
		f.master = p.master
		file := fmt.Sprintf("listen: 127.0.0.1:0\ndatabase: %q\nkey_file: %q\nreceipts: {key_file: %q}\n", where, p.master, p.key)
		config := filepath.Join(t.TempDir(), "host.yaml")
		if err := os.WriteFile(config, []byte(file), 0o600); err != nil {
			t.Fatal(err)
		}
		line := listening(t, "serve", "--config", config)
		api, err := url.Parse(strings.TrimSpace(strings.TrimPrefix(line, "API")))
		if err != nil {
			t.Fatal(err)
		}
		api.Fragment = key
		f.call = func(path string) (string, bool) {
			status, text := request(t, "GET", api, path)
			return fmt.Sprint(status, " ", text), status != http.StatusOK
		}
	}
	ask := func(name, forged string) {
		t.Helper()
		out, refused := signers[name].ask(t, f)
		switch {
		case name == "API" && f.call == nil:
		case refused != (forged != ""):
			t.Errorf("%s of %q: refused %t: %s", name, forged, refused, out)
		case refused && (strings.Contains(out, "payloadType") || strings.Contains(out, "tlog_proof")):
			t.Errorf("%s of %q is refused, and signed: %s", name, forged, out)
		}
	}
	db := starling.Must(store.Open(t.Context(), where, store.Options{}))
	defer db.Close()
	set := func(sql string, args ...any) {
		t.Helper()
		err := db.Transact(t.Context(), func(tx eventlog.Tx) error {
			n, err := tx.Exec(sql, args...)
			if err == nil && n != 1 {
				err = fmt.Errorf("%d rows", n)
			}
			return err
		})
		if err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
	names := slices.Sorted(maps.Keys(signers))
	for _, name := range names {
		ask(name, "")
	}
	for _, row := range []struct {
		table, column, where string
		forge                func(was any) any
	}{
		{"eventlog_events", "ts", "seq = 3 AND run_id = $1", func(was any) any { return was.(int64) - 1000 }},
		{"eventlog_events", "payload", "seq = 1 AND run_id = $1", flipped},
		{"eventlog_events", "payload", "seq = 2 AND run_id = $1", flipped},
		{"eventlog_events", "payload", "seq = 3 AND run_id = $1", flipped},
		{"run_leaf", "terminal_hash", "run_id = $1", flipped},
		{"run_leaf_hash", "hash", "place = 0 AND '' <> $1", flipped},
	} {
		was := starling.Must(eventlog.View(t.Context(), db, func(q eventlog.Querier) (was any, err error) {
			err = q.Query("SELECT "+row.column+" FROM "+row.table+" WHERE "+row.where, []any{f.id}, func(r eventlog.Row) error {
				if row.column == "ts" {
					var n int64
					err := r.Scan(&n)
					was = n
					return err
				}
				var b []byte
				err := r.Scan(&b)
				was = b
				return err
			})
			return was, err
		}))
		update := "UPDATE " + row.table + " SET " + row.column + " = $2 WHERE " + row.where
		set(update, f.id, row.forge(was))
		for _, name := range names {
			ask(name, row.table+"."+row.column+" "+row.where)
		}
		set(update, f.id, was)
	}
	for _, name := range names {
		ask(name, "")
	}
}

func flipped(was any) any {
	b := bytes.Clone(was.([]byte))
	b[len(b)/2] ^= 1
	return b
}

// TestEverySignerIsForged finds the files of the product that ask for signatures or proofs of what a database
// has: each is that of a signer.
func TestEverySignerIsForged(t *testing.T) {
	listed := map[string]bool{}
	for _, s := range signers {
		for _, file := range strings.Fields(s.files) {
			listed[file] = true
		}
	}
	for _, file := range strings.Fields(signsElsewhere) {
		listed[file] = true
	}
	asks := regexp.MustCompile(`\.(Issue|Receipts|Issuer|ProveRuns|ProveEvent|Prove)\(|Receipts\.Sign\(|Options\{Receipts: |seal\.(Seal|Prove)|\.sealer\.Seal\(|ProveRuns\(ctx`)
	found := 0
	err := filepath.WalkDir("../..", func(name string, d fs.DirEntry, err error) error {
		rel := strings.TrimPrefix(filepath.ToSlash(name), "../../")
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == "testdata" || d.Name() == "node_modules" || d.Name() == "bench" || strings.HasPrefix(d.Name(), ".") && len(d.Name()) > 2 || strings.HasSuffix(d.Name(), "test")):
			return fs.SkipDir
		case d.IsDir() || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go"):
			return nil
		}
		text, err := os.ReadFile(name)
		if err == nil && asks.Match(regexp.MustCompile(`(?m)^\s*//.*$`).ReplaceAll(text, nil)) {
			if found++; !listed[rel] {
				t.Errorf("%s asks for signatures or proofs: forge through it as a signer of this test", rel)
			}
		}
		return err
	})
	if err != nil || found < 8 {
		t.Errorf("%d files: %v", found, err)
	}
}
