package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/starling-host/starling"
	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/eventlog/receipt"
	"github.com/starling-host/starling/eventlog/seal"
	"github.com/starling-host/starling/eventlog/store"
	"github.com/starling-host/starling/internal/treetest"
)

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
	t.Parallel()
	p, recorded := newProofs(t), recordings(t)
	var mu sync.Mutex
	var pages []paged
	existing, ageless := 0, map[string]int{}
	t.Run("states", func(t *testing.T) {
		for _, s := range states() {
			name := fmt.Sprintf("sealed=%t,encrypted=%t,%s,%s", s.Sealed, s.Encrypted, s.Age, cmp.Or(s.Away, "whole"))
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				m, why := p.make(t, s, recorded)
				if why != "" {
					t.Logf("cannot exist: %s", why)
					return
				}
				p.database(t, m)
				p.archive(t, m)
				for _, master := range []string{"", m.master} {
					p.receipts(t, m, master)
				}
				p.proof(t, m)
				asked := p.bundle(t, m)
				mu.Lock()
				defer mu.Unlock()
				existing++
				ageless[s.Age]++
				pages = append(pages, asked...)
			})
		}
	})
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
		r, err := starling.Over(log, starling.Options{}).Verify(t.Context(), policy, seal.Evidence{})
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
