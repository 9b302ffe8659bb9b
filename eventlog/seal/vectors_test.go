package seal_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/eventlog/internal/vectortest"
	"github.com/starling-host/starling/eventlog/logtest"
	"github.com/starling-host/starling/eventlog/seal"
	"github.com/starling-host/starling/eventlog/store"
	"github.com/starling-host/starling/internal/witnesstest"
	"github.com/starling-host/starling/internal/workspace"
)

// fixedKey returns a key with a public private half, for vectors.
func fixedKey(t testing.TB, name string, seed byte) *seal.Key {
	t.Helper()
	skey, _, err := note.GenerateKey(bytes.NewReader(bytes.Repeat([]byte{seed}, 32)), name)
	if err != nil {
		t.Fatal(err)
	}
	k, err := seal.ParseKey(skey)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// fixture is a log of runs that is the same each time.
type fixture struct {
	key        *seal.Key
	witness    witnesstest.Key
	policy     string // of the log alone
	cosigned   string // of the log and the witness
	runs       [][]event.Event
	modules    map[canon.Hash][]byte
	leaves     []seal.Leaf
	checkpoint []byte // signed and cosigned
	proofs     []seal.Proof
}

// tlogHashes are the hashes of a tree in memory.
type tlogHashes []tlog.Hash

func (h tlogHashes) ReadHashes(places []int64) ([]tlog.Hash, error) {
	out := make([]tlog.Hash, len(places))
	for i, p := range places {
		out[i] = h[p]
	}
	return out, nil
}

func newFixture(t testing.TB, runs int) fixture {
	t.Helper()
	f := fixture{key: fixedKey(t, "example.com/runs", 1), witness: witnesstest.NewKey("witness.example", 2), modules: map[canon.Hash][]byte{}}
	f.policy = "log " + f.key.VKey() + "\nquorum none\n"
	f.cosigned = "log " + f.key.VKey() + "\nwitness w " + f.witness.VKey() + "\nquorum w\n"
	var hashes tlogHashes
	for i := range runs {
		wasm := []byte(fmt.Sprintf("\x00asm\x01\x00\x00\x00 module %d, which is none", i%2))
		digest := canon.Sum(wasm)
		c := logtest.Chain{RunID: fmt.Sprintf("run-%d", i), Clock: 1_700_000_000_000_000_000 + int64(i)*1e9}
		events := []event.Event{c.Next(event.RunStarted{SchemaVersion: event.SchemaVersion, Goal: "call", ToolSchemas: []event.ToolSchemaRef{
			{Name: "t", SchemaHash: make([]byte, 32), Sandbox: &event.Sandbox{Module: digest[:], ABI: "starling:v1", CostTable: 1}}}})}
		for n := range i {
			events = append(events, c.Effect(n))
		}
		events = append(events, c.Complete())
		f.runs, f.modules[digest] = append(f.runs, events), wasm
		l, err := seal.LeafOf(events[len(events)-1], events[len(events)-1].Hash())
		if err != nil {
			t.Fatal(err)
		}
		f.leaves = append(f.leaves, l)
		added, err := tlog.StoredHashes(int64(i), l.Marshal(), hashes)
		if err != nil {
			t.Fatal(err)
		}
		hashes = append(hashes, added...)
	}
	root, err := tlog.TreeHash(int64(runs), hashes)
	if err != nil {
		t.Fatal(err)
	}
	f.checkpoint, err = seal.Checkpoint{Origin: "example.com/runs/0123456789abcdef", Leaves: int64(runs), Root: root}.Sign(f.key)
	if err != nil {
		t.Fatal(err)
	}
	if f.checkpoint, err = seal.AddCosignatures(f.checkpoint, f.witness.Cosign(f.checkpoint, time.Unix(1_700_000_123, 0))); err != nil {
		t.Fatal(err)
	}
	for i := range runs {
		p, err := tlog.ProveRecord(int64(runs), int64(i), hashes)
		if err != nil {
			t.Fatal(err)
		}
		f.proofs = append(f.proofs, seal.Proof{Index: int64(i), Hashes: p, Checkpoint: f.checkpoint})
	}
	return f
}

// bundle returns the bundle of some of the runs.
func (f fixture) bundle(sealed bool, runs ...int) seal.Bundle {
	b := seal.Bundle{Modules: map[canon.Hash][]byte{}}
	for _, i := range runs {
		b.Runs = append(b.Runs, f.runs[i])
		digests, _ := f.runs[i][0].Modules()
		for _, d := range digests {
			b.Modules[d] = f.modules[d]
		}
		if sealed {
			b.Proofs = append(b.Proofs, f.proofs[i])
		}
	}
	return b
}

// withFiles returns a bundle of two runs whose calls were given files and left others.
func withFiles(t testing.TB) seal.Bundle {
	t.Helper()
	log := store.Memory()
	given, from := logtest.Tree(map[string]string{"data/a.txt": "a text", "data/deep/b.txt": "another", "data/empty": "", "same": "a text"})
	left, to := logtest.Tree(map[string]string{"data/a.txt": "a text", "made": "by the call"})
	if err := log.PutContents(t.Context(), "", slices.Concat(given, left)); err != nil {
		t.Fatal(err)
	}
	var b seal.Bundle
	for _, run := range [][]event.Event{logtest.WithFiles("run-a", from, to), logtest.WithFiles("run-b", to, to)} {
		if err := b.Add(t.Context(), run, log); err != nil {
			t.Fatal(err)
		}
	}
	return b
}

// appendFile adds a file where it belongs, if there are no entries behind the files.
func appendFile(all []content, text string) []content {
	all = append(slices.Clone(all), content{"files/" + canon.Sum([]byte(text)).String(), []byte(text)})
	slices.SortFunc(all[3:], func(a, b content) int { return strings.Compare(a.name, b.name) })
	return all
}

// exported are the lines of a run in runs.ndjson.
func exported(t testing.TB, run []event.Event) (lines []byte) {
	for _, e := range run {
		line, err := event.ToJSON(e)
		if err != nil {
			t.Fatal(err)
		}
		lines = append(append(lines, line...), '\n')
	}
	return lines
}

// statement returns the proof of a run, or of its event seq.
func (f fixture) statement(t testing.TB, run int, seq uint64) string {
	t.Helper()
	s := seal.Statement{Leaf: f.leaves[run], Proof: f.proofs[run]}
	if seq > 0 {
		s.Event = &f.runs[run][seq-1]
		if seq < s.Leaf.Events {
			var hashes []canon.Hash
			for _, e := range f.runs[run][:s.Leaf.Events-1] {
				hashes = append(hashes, e.Hash())
			}
			var err error
			if s.Path, err = canon.Prove(hashes, int(seq-1)); err != nil {
				t.Fatal(err)
			}
		}
	}
	doc, err := s.JSON()
	if err != nil {
		t.Fatal(err)
	}
	return string(doc)
}

// upper returns the proof of an event with its envelope in upper case.
func upper(doc string) string {
	before, rest, _ := strings.Cut(doc, `"envelope": "`)
	envelope, rest, _ := strings.Cut(rest, `"`)
	return before + `"envelope": "` + strings.ToUpper(envelope) + `"` + rest
}

// spoiled returns a line of signature with another last byte.
func spoiled(line string) string {
	space := strings.LastIndex(line, " ")
	b, err := base64.StdEncoding.DecodeString(line[space+1:])
	if err != nil {
		panic(err)
	}
	b[len(b)-1] ^= 1
	return line[:space+1] + base64.StdEncoding.EncodeToString(b)
}

// vector is a line of seal.jsonl, seal-refused.jsonl, bundle.jsonl and bundle-refused.jsonl.
type vector struct {
	Name   string `json:"name"`
	Type   string `json:"type"`             // leaf, removal, checkpoint, proof, policy or bundle
	Leaf   string `json:"leaf,omitempty"`   // hexadecimal
	Hash   string `json:"hash,omitempty"`   // of the leaf, base64
	RunID  string `json:"run_id,omitempty"` // in the leaf
	Text   string `json:"text,omitempty"`   // of a checkpoint or proof
	File   string `json:"file,omitempty"`   // a bundle, base64
	Policy string `json:"policy,omitempty"` // the policy for the check; empty trusts no key
	Reason string `json:"reason,omitempty"` // why it is refused
}

// check returns why a vector is refused, or nil.
func (v vector) check() error {
	var policy *seal.Policy
	if v.Policy != "" || v.Type == "policy" {
		var err error
		if policy, err = seal.ParsePolicy(v.Policy); err != nil || v.Type == "policy" {
			return err
		}
	}
	switch v.Type {
	case "checkpoint":
		_, _, err := policy.Check([]byte(v.Text))
		return err
	case "proof":
		s, err := seal.ParseStatement(context.Background(), []byte(v.Text))
		if err == nil {
			_, _, err = s.Check(policy)
		}
		return err
	case "bundle":
		file, err := base64.StdEncoding.DecodeString(v.File)
		if err != nil {
			return err
		}
		b, _, err := seal.OpenBundle(context.Background(), file)
		if err == nil && len(b.Proofs) > 0 {
			_, _, err = b.CheckProofs(policy)
		}
		return err
	}
	return fmt.Errorf("no type %q", v.Type)
}

func TestVectors(t *testing.T) {
	f := newFixture(t, 7)
	var good []vector
	for i, l := range f.leaves[:3] {
		h := l.Hash()
		good = append(good, vector{Name: fmt.Sprintf("leaf %d", i), Type: "leaf", Leaf: hex.EncodeToString(l.Marshal()), Hash: h.String(), RunID: l.RunID})
	}
	checkpoint := string(f.checkpoint)
	alone := checkpoint[:strings.LastIndex(strings.TrimSuffix(checkpoint, "\n"), "\n")+1]
	exact := "log " + f.key.For("example.com/runs/0123456789abcdef").VKey() + "\nquorum none\n"
	groups := f.cosigned[:strings.Index(f.cosigned, "quorum")] + "witness x " + witnesstest.NewKey("x.example", 3).VKey() + "\ngroup both all w x\ngroup one any both w\nquorum one # of them\n"
	good = append(good,
		vector{Name: "a checkpoint that nobody is trusted for", Type: "checkpoint", Text: checkpoint},
		vector{Name: "the key of the log's key", Type: "checkpoint", Text: checkpoint, Policy: f.policy},
		vector{Name: "the key of the log", Type: "checkpoint", Text: checkpoint, Policy: exact},
		vector{Name: "one key under both names", Type: "checkpoint", Text: checkpoint, Policy: "log " + f.key.VKey() + "\n" + exact},
		vector{Name: "a witness", Type: "checkpoint", Text: checkpoint, Policy: f.cosigned},
		vector{Name: "groups of witnesses", Type: "checkpoint", Text: checkpoint, Policy: groups},
		vector{Name: "a checkpoint without witnesses", Type: "checkpoint", Text: alone, Policy: f.policy},
		vector{Name: "the first run", Type: "proof", Text: f.statement(t, 0, 0), Policy: f.cosigned},
		vector{Name: "the last run", Type: "proof", Text: f.statement(t, 6, 0), Policy: f.cosigned},
	)
	for seq := uint64(1); seq <= 5; seq++ {
		good = append(good, vector{Name: fmt.Sprintf("event %d of 5", seq), Type: "proof", Text: f.statement(t, 3, seq), Policy: f.cosigned})
	}
	removal := seal.Removal{Leaf: 2, RunID: "run-2", At: time.Unix(1_700_000_200, 5), By: "ann@host", Why: "prune --older-than 720h"}
	hash := tlog.RecordHash(removal.Marshal())
	good = append(good, vector{Name: "a removal", Type: "removal", Leaf: hex.EncodeToString(removal.Marshal()), Hash: hash.String(), RunID: "run-2"},
		vector{Name: "a policy with a URL behind each key", Type: "policy", Policy: "log " + f.key.VKey() + " https://log.example\n" + "witness w " + f.witness.VKey() + "\thttps://witness.example\r\nquorum w\n"})
	for _, v := range vectortest.Check(t, "seal.jsonl", good) {
		if v.Type == "leaf" || v.Type == "removal" {
			continue
		}
		if err := v.check(); err != nil {
			t.Errorf("%s: %v", v.Name, err)
		}
	}

	bad := func(name, kind, text, policy string) vector {
		return vector{Name: name, Type: kind, Text: text, Policy: policy}
	}
	change := func(text, from, to string) string {
		if !strings.Contains(text, from) {
			t.Fatalf("%q is not in %q", from, text)
		}
		return strings.Replace(text, from, to, 1)
	}
	other := "log " + fixedKey(t, "example.com/runs", 9).VKey() + "\nquorum none\n"
	proof, ofEvent := f.statement(t, 3, 0), f.statement(t, 3, 2)
	refused := []vector{
		bad("a key of the same name", "checkpoint", checkpoint, other),
		bad("another number of leaves", "checkpoint", change(checkpoint, "\n7\n", "\n8\n"), f.policy),
		bad("a number with a leading zero", "checkpoint", change(checkpoint, "\n7\n", "\n07\n"), ""),
		bad("another origin of the key", "checkpoint", change(checkpoint, "0123456789abcdef", "0123456789abcdee"), f.policy),
		bad("an origin that the key cannot draw", "checkpoint", strings.ReplaceAll(checkpoint, "0123456789abcdef", "0123456789ABCDEF"), f.policy),
		bad("lines that end with a carriage return", "checkpoint", strings.ReplaceAll(checkpoint, "\n", "\r\n"), ""),
		bad("an empty line before it", "checkpoint", "\n"+checkpoint, ""),
		bad("a root with other unused bits", "checkpoint", otherBits(checkpoint), ""),
		bad("more leaves than there can be", "checkpoint", change(checkpoint, "\n7\n", "\n4611686018427387904\n"), ""),
		bad("no leaves, and the root of some", "checkpoint", change(checkpoint, "\n7\n", "\n0\n"), ""),
		bad("the cosignature before the signature", "checkpoint", exchanged(checkpoint), f.policy),
		bad("a line more in the text", "checkpoint", change(checkpoint, "\n\n", "\nmore\n\n"), ""),
		bad("a root that is short", "checkpoint", change(checkpoint, "=\n\n", "\n\n"), ""),
		bad("no signature", "checkpoint", checkpoint[:strings.Index(checkpoint, "\n\n")+2], ""),
		bad("a witness that has not signed", "checkpoint", alone, f.cosigned),
		bad("a group of which one is missing", "checkpoint", checkpoint, change(groups, "quorum one", "quorum both")),
		bad("a cosignature at another time", "checkpoint", recosigned(t, f), f.cosigned),
		bad("a proof at another index", "proof", change(proof, `index 3\n`, `index 2\n`), f.policy),
		bad("a proof beyond the tree", "proof", change(proof, `index 3\n`, `index 7\n`), f.policy),
		bad("a proof of another run", "proof", change(proof, "run-3", "run-4"), f.policy),
		bad("another number of events", "proof", change(proof, `"events": 5`, `"events": 4`), f.policy),
		bad("no events", "proof", change(proof, `"events": 5`, `"events": 0`), f.policy),
		bad("another root of the run", "proof", change(proof, `"merkle_root": "`+f.leaves[3].MerkleRoot.String()[:4], `"merkle_root": "0000`), f.policy),
		bad("a member too many", "proof", change(proof, `"events"`, `"more": 1, "events"`), f.policy),
		bad("an unknown format", "proof", change(proof, "run-proof/1", "run-proof/2"), f.policy),
		bad("a line of extra data", "proof", change(proof, `v1\nindex`, `v1\nextra AA==\nindex`), f.policy),
		bad("a path that is short", "proof", shorter(t, ofEvent), f.policy),
		bad("an event of another number", "proof", change(ofEvent, "6373657102", "6373657103"), f.policy),
		bad("upper-case hexadecimal", "proof", change(ofEvent, `"terminal_hash": "`+f.leaves[3].TerminalHash.String(), `"terminal_hash": "`+strings.ToUpper(f.leaves[3].TerminalHash.String())), f.policy),
		bad("a policy without a log", "policy", "", "quorum none\n"),
		bad("a policy without a quorum", "policy", "", "log "+f.key.VKey()+"\n"),
		bad("a member that is not defined", "policy", "", f.policy+"group g any nobody\n"),
		bad("a quorum that is not defined", "policy", "", "log "+f.key.VKey()+"\nquorum nobody\n"),
		bad("more members than there are", "policy", "", change(groups, "group both all", "group both 3")),
		bad("a key of a log for a witness", "policy", "", change(f.cosigned, f.witness.VKey(), fixedKey(t, "witness.example", 2).VKey())),
		bad("a key whose hash is another", "policy", "", change(f.policy, "+"+strings.Split(f.key.VKey(), "+")[1]+"+", "+00000000+")),
		bad("a member of the document twice", "proof", change(ofEvent, `"events": 5`, `"events": 5, "events": 5`), f.policy),
		bad("something behind the document", "proof", ofEvent+"{}", f.policy),
		bad("a terminal event that is not the last", "proof", change(f.statement(t, 3, 5), `"events": 5`, `"events": 6`), f.policy),
		bad("a terminal event of another root", "proof", change(f.statement(t, 3, 5), `"merkle_root": "`+f.leaves[3].MerkleRoot.String()[:4], `"merkle_root": "0000`), f.policy),
		bad("a witness of the key of another", "policy", "", change(f.cosigned, "quorum", "witness x "+witnesstest.NewKey("x.example", 2).VKey()+"\nquorum")),
		bad("a member of a group twice", "policy", "", change(groups, "group both all w x", "group both all w w")),
		bad("a second quorum", "policy", "", f.policy+"quorum none\n"),
		bad("a name twice", "policy", "", change(f.cosigned, "quorum", "witness w "+f.witness.VKey()+"\nquorum")),
	}
	empty := change(ofEvent, `"events"`, `"run_id": "", "events"`)
	wrong := strings.TrimSuffix(checkpoint[strings.LastIndex(strings.TrimSuffix(checkpoint, "\n"), "\n")+1:], "\n") // the cosignature
	refused = append(refused,
		bad("a member in other letters", "proof", change(proof, `"events"`, `"Events"`), f.policy),
		bad("a run id that is empty beside an event", "proof", empty, f.policy),
		bad("a run id that is empty", "proof", change(proof, `"run-3"`, `""`), f.policy),
		bad("an envelope in upper case", "proof", upper(ofEvent), f.policy),
		bad("a format in an array", "proof", change(proof, `"starling-run-proof/1"`, `["starling-run-proof/1"]`), f.policy),
		bad("a second cosignature that is wrong", "checkpoint", checkpoint+spoiled(wrong)+"\n", f.cosigned),
		bad("a second signature of the log that is wrong", "checkpoint", checkpoint+spoiled(strings.Split(checkpoint, "\n")[4])+"\n", f.policy),
		bad("a word behind the quorum", "policy", "", change(f.cosigned, "quorum w", "quorum w x")),
		bad("a word behind a key that is no URL", "policy", "", change(f.policy, "\nquorum", " x\nquorum")),
		bad("two words behind the key of a witness", "policy", "", change(f.cosigned, "\nquorum", " https://a.example https://b.example\nquorum")),
		bad("two keys in a line", "policy", "", change(f.policy, "\nquorum", " "+f.key.VKey()+"\nquorum")),
	)
	checkRefused(t, "seal-refused.jsonl", refused)

	var bundles []vector
	for _, c := range []struct {
		name   string
		b      seal.Bundle
		policy string
	}{
		{"a run that is not sealed", f.bundle(false, 1), ""},
		{"a sealed run", f.bundle(true, 2), f.cosigned},
		{"runs of two modules, in another order", f.bundle(true, 5, 0, 3), f.policy},
		{"an open run", seal.Bundle{Runs: [][]event.Event{f.runs[4][:3]}, Modules: f.bundle(false, 4).Modules}, ""},
		{"runs with files", withFiles(t), ""},
	} {
		file, err := c.b.Bytes()
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		bundles = append(bundles, vector{Name: c.name, Type: "bundle", File: base64.StdEncoding.EncodeToString(file), Policy: c.policy})
	}
	for _, v := range vectortest.Check(t, "bundle.jsonl", bundles) {
		if err := v.check(); err != nil {
			t.Errorf("%s: %v", v.Name, err)
		}
	}
	file, _ := base64.StdEncoding.DecodeString(bundles[1].File)
	spoil := func(name string, find, put string) vector {
		if !bytes.Contains(file, []byte(find)) {
			t.Fatalf("%q is not in the bundle", find)
		}
		return vector{Name: name, Type: "bundle", File: base64.StdEncoding.EncodeToString(rezip(t, bytes.Replace(file, []byte(find), []byte(put), 1))), Policy: f.policy}
	}
	cut := func(name string, changed []byte) vector {
		return vector{Name: name, Type: "bundle", File: base64.StdEncoding.EncodeToString(changed), Policy: f.policy}
	}
	three, _ := base64.StdEncoding.DecodeString(bundles[2].File) // README.txt, certificate.json, runs.ndjson, two modules, three proofs
	arranged := func(name string, change func(all []content) []content) vector {
		return cut(name, archive(change(files(t, three))))
	}
	four, _ := base64.StdEncoding.DecodeString(bundles[4].File) // README.txt, certificate.json, runs.ndjson, and files
	filed := func(name string, change func(all []content) []content) vector {
		v := cut(name, archive(change(files(t, four))))
		v.Policy = ""
		return v
	}
	foreign := f.bundle(true, 2)
	foreign.Proofs[0].Index++
	moved, err := foreign.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	checkRefused(t, "bundle-refused.jsonl", []vector{
		cut("cut off", file[:len(file)-1]),
		cut("a byte more", append(bytes.Clone(file), 0)),
		cut("a byte of the content", flip(file, bytes.Index(file, []byte("SideEffect")))),
		cut("a byte of the time", flip(file, 12)),
		cut("a byte of the directory", flip(file, bytes.LastIndex(file, []byte("PK\x01\x02"))+40)),
		spoil("another module", "module 0", "module 9"),
		spoil("another text for people", "This file is", "This line is"),
		spoil("a certificate of another status", `"status":"completed"`, `"status":"cancelled"`),
		spoil("a payload that is shown otherwise", `"kind":"RunCompleted"`, `"kind":"RunCompletex"`),
		spoil("an event that was changed", "6373657102", "6373657103"),
		spoil("another checkpoint", "\n7\n", "\n8\n"),
		cut("a proof of another run", moved),
		cut("a run that was linked anew", relinked(t, f)),
		arranged("modules that descend", func(all []content) []content { all[3], all[4] = all[4], all[3]; return all }),
		arranged("a module less", func(all []content) []content { return slices.Delete(all, 4, 5) }),
		arranged("a module that no run names", func(all []content) []content {
			more := []byte("\x00asm\x01\x00\x00\x00 module 2")
			modules := append(all[3:5:5], content{"modules/" + canon.Sum(more).String() + ".wasm", more})
			slices.SortFunc(modules, func(a, b content) int { return strings.Compare(a.name, b.name) })
			return slices.Concat(all[:3], modules, all[5:])
		}),
		arranged("proofs that were exchanged", func(all []content) []content {
			all[5].bytes, all[6].bytes = all[6].bytes, all[5].bytes
			return all
		}),
		arranged("a number of a proof with a leading zero", func(all []content) []content { all[5].name = "proofs/01.tlog-proof"; return all }),
		arranged("a proof less", func(all []content) []content { return all[:7] }),
		arranged("a proof more", func(all []content) []content { return append(all, content{"proofs/4.tlog-proof", all[7].bytes}) }),
		arranged("a checkpoint with fewer signatures in one proof", func(all []content) []content {
			text := strings.TrimSuffix(string(all[6].bytes), "\n")
			all[6].bytes = []byte(text[:strings.LastIndex(text, "\n")+1])
			return all
		}),
		arranged("a run twice", func(all []content) []content {
			first, _, _ := bytes.Cut(all[2].bytes, []byte(`"RunCompleted"`))
			end := len(first) + bytes.IndexByte(all[2].bytes[len(first):], '\n') + 1
			all[2].bytes = append(bytes.Clone(all[2].bytes), all[2].bytes[:end]...)
			return all
		}),
		arranged("an event that stands elsewhere", func(all []content) []content {
			lines := bytes.SplitAfter(all[2].bytes, []byte("\n"))
			lines[1], lines[2] = lines[2], lines[1]
			all[2].bytes = bytes.Join(lines, nil)
			return all
		}),
		arranged("a file more", func(all []content) []content { return append(all, content{"notes.txt", []byte("more\n")}) }),
		arranged("certificate and runs exchanged", func(all []content) []content { all[1], all[2] = all[2], all[1]; return all }),
		filed("a file less", func(all []content) []content { return slices.Delete(all, 4, 5) }),
		filed("a file that was changed", func(all []content) []content { all[4].bytes = append(bytes.Clone(all[4].bytes), 0); return all }),
		filed("files that descend", func(all []content) []content { all[3], all[4] = all[4], all[3]; return all }),
		filed("a file that no run uses", func(all []content) []content { return appendFile(all, "unused") }),
		filed("a root that is not there", func(all []content) []content {
			all[2].bytes = exported(t, logtest.WithFiles("run-a", canon.Hash{1}, canon.Hash{1}))
			return all
		}),
		filed("a folder with an entry of an unknown kind", func(all []content) []content {
			list := workspace.Encode([]workspace.Entry{{Name: "a", Kind: 9}})
			all = appendFile(all[:3], string(list))
			all[2].bytes = exported(t, logtest.WithFiles("run-a", canon.Sum(list), canon.Sum(list)))
			return all
		}),
		filed("a file that is larger than its folder lists", func(all []content) []content {
			list := workspace.Encode([]workspace.Entry{{Name: "a", Kind: workspace.File, Size: 3, Digest: canon.Sum([]byte("four"))}})
			all = appendFile(appendFile(all[:3], "four"), string(list))
			all[2].bytes = exported(t, logtest.WithFiles("run-a", canon.Sum(list), canon.Sum(list)))
			return all
		}),
		filed("modules behind files", func(all []content) []content {
			return append(all, content{"modules/" + canon.Sum([]byte("m")).String() + ".wasm", []byte("m")})
		}),
	})
	if readme := files(t, file)[0].bytes; string(readme) != readVector(t, "bundle-readme.txt") {
		t.Error("spec/vectors/bundle-readme.txt is not README.txt of a bundle")
	}
}

func checkRefused(t *testing.T, file string, all []vector) {
	t.Helper()
	for i, v := range all {
		err := v.check()
		if err == nil {
			t.Errorf("%s: accepted", v.Name)
			continue
		}
		all[i].Reason = strings.TrimPrefix(err.Error(), "seal: ")
	}
	vectortest.Check(t, file, all)
}

// shorter returns the proof of an event without the first hash of its path.
func shorter(t *testing.T, doc string) string {
	t.Helper()
	s, err := seal.ParseStatement(t.Context(), []byte(doc))
	if err != nil || len(s.Path) == 0 {
		t.Fatal(s.Path, err)
	}
	s.Path = s.Path[1:]
	changed, err := s.JSON()
	if err != nil {
		t.Fatal(err)
	}
	return string(changed)
}

// relinked is a sealed bundle whose run was changed and linked anew, by an attacker who
// cannot change the checkpoint.
func relinked(t *testing.T, f fixture) []byte {
	t.Helper()
	b := f.bundle(true, 2)
	b.Runs[0] = slices.Clone(b.Runs[0])
	b.Runs[0][1].Timestamp++
	b.Runs[0] = logtest.Relink(b.Runs[0])
	changed, err := b.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	return changed
}

// exchanged has the two signatures of a checkpoint in the other order.
func exchanged(checkpoint string) string {
	lines := strings.SplitAfter(checkpoint, "\n") // three, an empty one, two signatures
	return strings.Join(lines[:4], "") + lines[5] + lines[4]
}

// otherBits changes padding bits of the root in base64.
func otherBits(checkpoint string) string {
	const digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
	i := strings.Index(checkpoint, "=\n\n") - 1
	return checkpoint[:i] + string(digits[strings.IndexByte(digits, checkpoint[i])^1]) + checkpoint[i+1:]
}

// recosigned returns the checkpoint with the time in its cosignature changed.
func recosigned(t *testing.T, f fixture) string {
	t.Helper()
	text := strings.TrimSuffix(string(f.checkpoint), "\n")
	i := strings.LastIndexByte(text, ' ') + 1
	b, err := base64.StdEncoding.DecodeString(text[i:])
	if err != nil {
		t.Fatal(err)
	}
	b[11]++
	return text[:i] + base64.StdEncoding.EncodeToString(b) + "\n"
}

func flip(b []byte, at int) []byte {
	b = bytes.Clone(b)
	b[at] ^= 1
	return b
}

func readVector(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "spec", "vectors", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
