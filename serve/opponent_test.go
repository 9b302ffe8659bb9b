package serve

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/starling-host/starling"
	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/eventlog/logtest"
	"github.com/starling-host/starling/eventlog/seal"
	"github.com/starling-host/starling/eventlog/store"
	"github.com/starling-host/starling/internal/witnesstest"
)

// sealedDatabase is a database of four runs, of which three are sealed and cosigned, and
// what its owner, a witness and a verifier keep.
type sealedDatabase struct {
	t       *testing.T
	path    string
	db      *store.File
	key     *seal.Key
	url     string // of the witness
	kept    []byte // the checkpoint of three runs
	log     string // the key of the log
	pinned  *seal.Policy
	anyLog  *seal.Policy
	witness string
}

func (s *sealedDatabase) open(path string) *store.File {
	s.t.Helper()
	db, err := store.OpenFile(s.t.Context(), path, store.FileOptions{})
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { db.Close() })
	return db
}

func (s *sealedDatabase) record(db *store.File, ids ...string) {
	s.t.Helper()
	for _, id := range ids {
		for _, e := range logtest.Finished(id, 1) {
			if err := db.Append(s.t.Context(), id, e); err != nil {
				s.t.Fatal(err)
			}
		}
		if err := db.Sync(s.t.Context(), id); err != nil {
			s.t.Fatal(err)
		}
	}
}

// copy returns a copy of the database as it is.
func (s *sealedDatabase) copy() *store.File {
	s.t.Helper()
	path := filepath.Join(s.t.TempDir(), "copy.db")
	if _, err := store.Backup(s.t.Context(), s.path, path); err != nil {
		s.t.Fatal(err)
	}
	return s.open(path)
}

func (s *sealedDatabase) write(db *store.File, statements ...string) {
	s.t.Helper()
	err := db.Transact(s.t.Context(), func(tx eventlog.Tx) error {
		for _, sql := range statements {
			if n, err := tx.Exec(sql); err != nil || n == 0 {
				return fmt.Errorf("%s: %d rows, %w", sql, n, err)
			}
		}
		return nil
	})
	if err != nil {
		s.t.Fatal(err)
	}
}

// seal returns what the owner's command says.
func (s *sealedDatabase) seal(db *store.File) (seal.Result, string) {
	r, err := seal.Seal(s.t.Context(), db, s.key)
	return r, fmt.Sprint(err)
}

// verify returns what a verifier is told, as one text.
func (s *sealedDatabase) verify(db *store.File, policy *seal.Policy, given ...[]byte) (seal.Report, string) {
	s.t.Helper()
	r, err := starling.Over(db, starling.Options{}).Verify(s.t.Context(), policy, seal.Evidence{Checkpoints: given})
	switch {
	case err != nil:
		s.t.Fatal(err)
	case len(r.Problems) > 0:
		return r, "invalid: " + fmt.Sprint(r.Problems)
	case len(r.Unexplained) > 0:
		return r, "unexplained: " + fmt.Sprint(r.Unexplained)
	}
	return r, "valid"
}

func (s *sealedDatabase) expect(what, got, want string) {
	s.t.Helper()
	if !strings.Contains(got, want) {
		s.t.Errorf("%s: %s; want %q", what, got, want)
	}
}

// opponents are the rows of the table in docs/proof.md.
var opponents = map[string]func(s *sealedDatabase){
	"changes, exchanges or reorders sealed runs": func(s *sealedDatabase) {
		s.write(s.db, "UPDATE eventlog_events SET ts = ts + 1 WHERE run_id = 'b' AND seq = 2")
		_, said := s.verify(s.db, s.pinned)
		s.expect("verify", said, "invalid: [run b (leaf 1)")
	},
	"deletes a sealed run, and writes into the tables that it was removed": func(s *sealedDatabase) {
		s.write(s.db, "DELETE FROM eventlog_events WHERE run_id = 'b'", "DELETE FROM run WHERE run_id = 'b'")
		_, said := s.verify(s.db, s.pinned, s.kept)
		s.expect("verify", said, "unexplained: [run b (leaf 1): is missing, and no sealed removal explains it]")
		s.write(s.db, "INSERT INTO run_removal (run_id, removed, removed_by, why) VALUES ('b', 1, 'root', 'prune')")
		_, said = s.verify(s.db, s.pinned, s.kept)
		s.expect("verify", said, "unexplained: [run b (leaf 1): is missing, and no sealed removal explains it]")
		s.write(s.db, "UPDATE run_removal SET leaf = 3") // and a leaf that no checkpoint has
		_, said = s.verify(s.db, s.pinned, s.kept)
		s.expect("verify", said, "unexplained: [run b")
	},
	"does that and waits until you seal": func(s *sealedDatabase) {
		s.write(s.db, "DELETE FROM eventlog_events WHERE run_id = 'b'", "DELETE FROM run WHERE run_id = 'b'",
			"INSERT INTO run_removal (run_id, removed, removed_by, why) VALUES ('b', 1, 'root', 'prune')")
		r, _ := s.seal(s.db)
		if len(r.Removals) != 1 || r.Removals[0].RunID != "b" || r.Removals[0].By != "root" {
			s.t.Errorf("seal shows %+v", r.Removals)
		}
		report, said := s.verify(s.db, s.pinned, s.kept)
		s.expect("verify", said, "valid")
		if report.Gone != 1 || len(report.Removals) != 1 {
			s.t.Errorf("%+v", report)
		}
	},
	"deletes the summary row of a run": func(s *sealedDatabase) {
		s.write(s.db, "DELETE FROM run WHERE run_id = 'd'")
		if r, said := s.verify(s.db, s.pinned); r.Unsealed != 1 || said != "valid" {
			s.t.Errorf("%+v", r)
		}
		if r, said := s.seal(s.db); r.Checkpoint.Leaves != 4 {
			s.t.Errorf("%+v, %s", r, said)
		}
	},
	"adds a leaf of an invented run, or changes a leaf that no checkpoint covers": func(s *sealedDatabase) {
		s.write(s.db, "INSERT INTO run_leaf (leaf, run_id, events, merkle_root, terminal_hash) VALUES (3, 'never', 3, zeroblob(32), zeroblob(32)), (4, 'd', 3, zeroblob(32), zeroblob(32))",
			"INSERT INTO run_leaf_hash (place, hash) VALUES (4, zeroblob(32)), (5, zeroblob(32)), (6, zeroblob(32))",
			"INSERT INTO run_removal (run_id, removed, removed_by, why) VALUES ('never', 1, 'root', 'prune')")
		r, said := s.seal(s.db)
		if r.Checkpoint.Leaves != 4 || len(r.Removals) > 0 {
			s.t.Errorf("%+v, %s", r, said)
		}
		if r, said := s.verify(s.db, s.pinned, s.kept); r.Present != 4 || said != "valid" {
			s.t.Errorf("%+v, %s", r, said)
		}
	},
	"changes leaves that a checkpoint covers": func(s *sealedDatabase) {
		s.write(s.db, "UPDATE run_leaf SET terminal_hash = zeroblob(32) WHERE leaf = 2", "UPDATE run_leaf_hash SET hash = zeroblob(32) WHERE place = 3")
		_, said := s.verify(s.db, s.pinned)
		s.expect("verify", said, "invalid: [run c (leaf 2)")
		_, said = s.seal(s.db)
		s.expect("seal", said, "the log of runs does not begin with the 3 leaves of the last checkpoint")
	},
	"writes another database's origin into the tables": func(s *sealedDatabase) {
		s.write(s.db, "UPDATE run_log SET origin = 'example.com/runs/0000000000000000'")
		_, said := s.seal(s.db)
		s.expect("seal", said, "the log of runs has the origin")
		_, said = s.verify(s.db, s.pinned)
		s.expect("verify", said, "invalid: [the table run_log has the log example.com/runs/0000000000000000")
	},
	"deletes the checkpoints": func(s *sealedDatabase) {
		s.write(s.db, "DELETE FROM run_checkpoint", "UPDATE run_log SET origin = 'example.com/runs/0000000000000000'")
		r, said := s.seal(s.db)
		if strings.HasSuffix(r.Checkpoint.Origin, "/0000000000000000") || r.Checkpoint.Leaves != 4 {
			s.t.Errorf("%+v, %s", r, said)
		}
		_, said = s.verify(s.db, s.pinned)
		s.expect("verify", said, "no key that you trust has signed")
	},
	"signs with another key of the same name": func(s *sealedDatabase) {
		theirs, err := seal.NewKey("example.com/runs")
		if err != nil {
			s.t.Fatal(err)
		}
		if _, err := seal.Seal(s.t.Context(), s.db, theirs, s.key.VKey()); err != nil { // as who changes the key
			s.t.Fatal(err)
		}
		_, said := s.seal(s.db)
		s.expect("seal", said, seal.ErrOtherKey.Error())
		_, said = s.verify(s.db, s.pinned)
		s.expect("verify", said, "no key that you trust has signed")
	},
	"puts an older copy in its place": func(s *sealedDatabase) {
		old := s.copy()
		later, _ := s.seal(s.db)
		_, said := s.verify(old, s.pinned, later.Signed)
		s.expect("verify", said, "the database was reset to an older copy")
	},
	"continues from an older copy, on a host that has the seal key": func(s *sealedDatabase) {
		old := s.copy()
		s.record(old, "aa", "ab")
		s.seal(s.db)
		if _, err := Cosign(s.t.Context(), s.db, s.url); err != nil {
			s.t.Fatal(err)
		}
		s.seal(old)
		_, err := Cosign(s.t.Context(), old, s.url)
		s.expect("the witness", fmt.Sprint(err), "status 422")
		_, said := s.verify(old, s.cosigned(s.log))
		s.expect("verify", said, "witnesses that the policy wants have not signed")
		_, kept, err := seal.Newest(s.t.Context(), s.db)
		if err != nil {
			s.t.Fatal(err)
		}
		_, said = s.verify(old, s.pinned, kept)
		s.expect("verify", said, "has another tree")
	},
	"begins another log from a copy, and has it cosigned": func(s *sealedDatabase) {
		other := s.copy()
		if _, err := other.PruneRuns(s.t.Context(), eventlog.PruneOptions{RunIDs: []string{"b"}}); err != nil {
			s.t.Fatal(err)
		}
		if err := seal.Forget(s.t.Context(), other); err != nil {
			s.t.Fatal(err)
		}
		s.seal(other)
		if _, err := Cosign(s.t.Context(), other, s.url); err != nil {
			s.t.Fatal(err)
		}
		_, said := s.verify(other, s.cosigned(s.log))
		s.expect("verify", said, "no key that you trust has signed")
		r, said := s.verify(other, s.cosigned(s.key.VKey()))
		if said != "valid" || !r.Signatures[0].AnyLog {
			s.t.Errorf("%s, %+v", said, r.Signatures)
		}
		if r, _ := s.verify(s.db, s.cosigned(s.log)); r.Signatures[0].AnyLog {
			s.t.Errorf("%+v", r.Signatures)
		}
	},
	"records an invented run before it is sealed": func(s *sealedDatabase) {
		var b seal.Bundle
		wasm := []byte("\x00asm\x01\x00\x00\x00")
		digest := canon.Sum(wasm)
		c := logtest.Chain{RunID: "made-up"}
		for _, e := range []event.Event{c.Next(event.RunStarted{SchemaVersion: event.SchemaVersion, Goal: "t", ToolSchemas: []event.ToolSchemaRef{
			{Name: "t", SchemaHash: make([]byte, 32), Sandbox: &event.Sandbox{Module: digest[:], ABI: "starling:v1", CostTable: 1}}}}), c.Complete()} {
			if err := s.db.Append(s.t.Context(), "made-up", e); err != nil {
				s.t.Fatal(err)
			}
		}
		if _, err := s.db.PutModule(s.t.Context(), wasm); err != nil {
			s.t.Fatal(err)
		}
		if r, said := s.seal(s.db); r.Checkpoint.Leaves != 5 {
			s.t.Fatalf("%+v, %s", r, said)
		}
		b, err := starling.Over(s.db, starling.Options{}).Bundle(s.t.Context(), "made-up")
		if err != nil {
			s.t.Fatal(err)
		}
		file, err := b.Bytes()
		if err != nil {
			s.t.Fatal(err)
		}
		v, err := starling.VerifyBundle(s.t.Context(), file, starling.BundleOptions{Policy: s.pinned})
		if err != nil || !v.Sealed || v.Invalid != nil || v.Identical() {
			s.t.Errorf("%+v, %v", v, err)
		}
	},
}

// cosigned returns a policy that requires a log and the witness.
func (s *sealedDatabase) cosigned(log string) *seal.Policy {
	s.t.Helper()
	p, err := seal.ParsePolicy("log " + log + "\nwitness w " + s.witness + "\nquorum w\n")
	if err != nil {
		s.t.Fatal(err)
	}
	return p
}

// TestOpponentOfASealedDatabase carries out the attacks in the table of docs/proof.md, each on its own database.
func TestOpponentOfASealedDatabase(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../docs/proof.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(page), "| the attacker |")
	table, _, _ = strings.Cut(table, "\n\n")
	rows := regexp.MustCompile(`(?m)^\| ([^|]+) \|`).FindAllStringSubmatch(table, -1)
	if len(rows) != len(opponents) {
		t.Errorf("docs/proof.md has %d rows, there are %d opponents", len(rows), len(opponents))
	}
	for _, row := range rows {
		do := opponents[row[1]]
		if do == nil {
			t.Errorf("docs/proof.md: nothing does %q", row[1])
			continue
		}
		t.Run(row[1], func(t *testing.T) { do(newSealedDatabase(t)) })
	}
}

func newSealedDatabase(t *testing.T) *sealedDatabase {
	t.Helper()
	dir := t.TempDir()
	s := &sealedDatabase{t: t, path: filepath.Join(dir, "a.db")}
	key, err := seal.NewKey("example.com/runs")
	if err != nil {
		t.Fatal(err)
	}
	witness := witnesstest.NewKey("witness.example", 2)
	s.key, s.witness, s.url = key, witness.VKey(), witnesstest.Serve(t, witness)
	if s.anyLog, err = seal.Trust(key.VKey()); err != nil {
		t.Fatal(err)
	}
	s.db = s.open(s.path)
	s.record(s.db, "a", "b", "c")
	first, err := seal.Seal(t.Context(), s.db, key)
	if err != nil {
		t.Fatal(err)
	}
	s.kept, s.log = first.Signed, first.VKey
	if s.pinned, err = seal.Trust(first.VKey); err != nil {
		t.Fatal(err)
	}
	if _, err := Cosign(t.Context(), s.db, s.url); err != nil {
		t.Fatal(err)
	}
	s.record(s.db, "d")
	return s
}
