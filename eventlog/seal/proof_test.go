package seal_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/mod/sumdb/note"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/eventlog/logtest"
	"github.com/starling-host/starling/eventlog/seal"
	"github.com/starling-host/starling/eventlog/store"
	"github.com/starling-host/starling/internal/witnesstest"
)

// database returns a new database with runs.
func database(t *testing.T, ids ...string) store.Database {
	t.Helper()
	db, err := store.Open(t.Context(), filepath.Join(t.TempDir(), "a.db"), store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	for _, id := range ids {
		add(t, db, logtest.Finished(id, 2))
	}
	return db
}

func add(t *testing.T, db store.Database, events []event.Event) {
	t.Helper()
	for _, ev := range events {
		if err := db.Import(t.Context(), ev); err != nil {
			t.Fatal(err)
		}
	}
	if err := db.Sync(t.Context(), events[0].RunID); err != nil {
		t.Fatal(err)
	}
}

func exec(t *testing.T, db store.Database, sql string, args ...any) {
	t.Helper()
	err := db.Transact(t.Context(), func(tx eventlog.Tx) error {
		_, err := tx.Exec(sql, args...)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

func verify(t *testing.T, db store.Database, key *seal.Key) seal.Report {
	t.Helper()
	trust, err := seal.Trust(key.VKey())
	if err != nil {
		t.Fatal(err)
	}
	r, err := seal.Verify(t.Context(), db, trust, seal.Evidence{}, func(ctx context.Context, ids []string, found func(string, eventlog.Report, error) error) error {
		for _, id := range ids {
			_, err := db.Run(ctx, id)
			var report eventlog.Report
			if err == nil {
				report, err = eventlog.CheckRun(ctx, db, id, eventlog.CheckOptions{Strict: true, AllowOpen: true})
			}
			if err := found(id, report, err); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func mustSeal(t *testing.T, db eventlog.Database, key *seal.Key) seal.Result {
	t.Helper()
	r, err := seal.Seal(t.Context(), db, key)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestInvalidRunsAreNotSealed: each kind of fault of a run is named, and the other runs are sealed.
func TestInvalidRunsAreNotSealed(t *testing.T) {
	key := fixedKey(t, "example.com/runs", 1)
	for name, fault := range map[string]string{
		"a copy with the Merkle root of another run": "UPDATE eventlog_events SET payload = (SELECT payload FROM eventlog_events WHERE run_id = 'good-1' AND kind = 12) WHERE run_id = 'bad' AND kind = 12",
		"a time":        "UPDATE eventlog_events SET ts = ts + 1 WHERE run_id = 'bad' AND seq = 2",
		"the last time": "UPDATE eventlog_events SET ts = ts + 1 WHERE run_id = 'bad' AND kind = 12",
		"a kind":        "UPDATE eventlog_events SET kind = 77 WHERE run_id = 'bad' AND seq = 2",
		"a gap":         "DELETE FROM eventlog_events WHERE run_id = 'bad' AND seq = 2",
		"a payload":     "UPDATE eventlog_events SET payload = x'a0' WHERE run_id = 'bad' AND seq = 2",
	} {
		db := database(t, "bad", "good-1", "good-2")
		if kinds := count(t, db, "SELECT count(*) FROM eventlog_events WHERE kind = 12"); kinds != 3 {
			t.Fatalf("%d events of kind 12, RunCompleted", kinds)
		}
		exec(t, db, fault)
		for range 2 {
			r := mustSeal(t, db, key)
			if len(r.Refused) != 1 || r.Refused[0].RunID != "bad" || !errors.Is(r.Refused[0].Err, eventlog.ErrLogCorrupt) || r.Checkpoint.Leaves != 2 {
				t.Errorf("%s: %+v", name, r)
			}
		}
		if r := verify(t, db, key); len(r.Problems) > 0 || r.Present != 2 || r.Unsealed != 1 {
			t.Errorf("%s: %+v", name, r)
		}
		if _, _, err := seal.Prove(t.Context(), db, "bad"); !errors.Is(err, seal.ErrNotSealed) {
			t.Errorf("%s: proven: %v", name, err)
		}
	}
}

func count(t *testing.T, db store.Database, sql string) (n int64) {
	t.Helper()
	err := db.View(t.Context(), func(q eventlog.Querier) error {
		return q.Query(sql, nil, func(r eventlog.Row) error { return r.Scan(&n) })
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// TestARemovalExplainsOneRemoval removes a run, brings it back, and deletes it by hand.
func TestARemovalExplainsOneRemoval(t *testing.T) {
	key, ctx := fixedKey(t, "example.com/runs", 1), t.Context()
	db := database(t, "run-0", "run-1", "run-2")
	expect := func(what string, present, gone, unsealed int64, unexplained int) {
		t.Helper()
		if r := verify(t, db, key); len(r.Problems) > 0 || r.Present != present || r.Gone != gone || r.Unsealed != unsealed || len(r.Unexplained) != unexplained {
			t.Errorf("%s: %+v", what, r)
		}
	}
	mustSeal(t, db, key)
	remove := func() {
		t.Helper()
		if r, err := db.PruneRuns(ctx, eventlog.PruneOptions{RunIDs: []string{"run-1"}}); err != nil || r.Runs != 1 {
			t.Fatal(r, err)
		}
	}
	remove()
	expect("removed, not yet sealed", 2, 0, 0, 1)
	mustSeal(t, db, key)
	expect("removed", 2, 1, 0, 0)
	add(t, db, logtest.Finished("run-1", 2))
	if r := mustSeal(t, db, key); r.Checkpoint.Leaves != 5 || r.Removed != 1 {
		t.Errorf("back: %+v", r)
	}
	if r := mustSeal(t, db, key); r.New {
		t.Errorf("back, and sealed again: %+v", r)
	}
	expect("back", 3, 1, 0, 0)
	if leaves, proofs, err := seal.Prove(ctx, db, "run-1"); err != nil || proofs[0].Index != 4 || leaves[0].RunID != "run-1" {
		t.Errorf("the proof of what is back: %+v, %v", proofs, err)
	}
	remove()
	mustSeal(t, db, key)
	expect("removed again", 2, 2, 0, 0)
	add(t, db, logtest.Finished("run-1", 2))
	mustSeal(t, db, key)
	expect("back again", 3, 2, 0, 0)
	exec(t, db, "DELETE FROM eventlog_events WHERE run_id = 'run-1'")
	exec(t, db, "DELETE FROM run WHERE run_id = 'run-1'")
	expect("deleted by hand", 2, 2, 0, 1)
	mustSeal(t, db, key)
	expect("deleted by hand, and sealed after that", 2, 2, 0, 1)
}

// dying is a database that fails at one of its transactions, as if the process died before it.
type dying struct {
	store.Database
	left int
}

var errDied = errors.New("the process died")

func (d *dying) Transact(ctx context.Context, fn func(eventlog.Tx) error) error {
	if d.left--; d.left < 0 {
		return errDied
	}
	return d.Database.Transact(ctx, fn)
}

// TestSealAfterACrash ends a seal before each of its transactions, removes one of the runs that it had
// added, and seals again: the leaves that no checkpoint has are made anew.
func TestSealAfterACrash(t *testing.T) {
	key, ctx := fixedKey(t, "example.com/runs", 1), t.Context()
	for left := range 5 {
		db := database(t, "a", "b")
		mustSeal(t, db, key)
		if _, err := db.PruneRuns(ctx, eventlog.PruneOptions{RunIDs: []string{"a"}}); err != nil {
			t.Fatal(err)
		}
		add(t, db, logtest.Finished("c", 2))
		add(t, db, logtest.Finished("d", 3))
		_, err := seal.Seal(ctx, &dying{db, left}, key)
		if died := errors.Is(err, errDied); died != (left < 4) || !died && err != nil {
			t.Fatalf("%d transactions: %v", left, err)
		}
		if left < 4 {
			exec(t, db, "DELETE FROM eventlog_events WHERE run_id = 'c'")
			exec(t, db, "DELETE FROM run WHERE run_id = 'c'")
		}
		add(t, db, logtest.Finished("e", 1))
		want := int64(5) // a, b, the removal, d and e
		if left == 4 {
			want = 6
		}
		if r := mustSeal(t, db, key); r.Checkpoint.Leaves != want || r.Removed != 1 {
			t.Errorf("after %d transactions: %+v", left, r)
		}
		if r := verify(t, db, key); len(r.Problems)+len(r.Unexplained) > 0 || r.Gone != 1 || r.Present != want-2 {
			t.Errorf("after %d transactions: %+v", left, r)
		}
	}
}

// TestBundlesAreStrict: a bundle is checked by the strict rules wherever it is made or opened.
func TestBundlesAreStrict(t *testing.T) {
	f := newFixture(t, 3)
	for name, events := range logtest.Lenient("run-2") {
		if _, err := eventlog.Check(events, eventlog.CheckOptions{}); err != nil {
			t.Fatalf("%s: the run is not lenient: %v", name, err)
		}
		b := f.bundle(false, 2)
		b.Runs[0], b.Modules = events, nil
		if _, err := b.Certificate(); !errors.Is(err, eventlog.ErrLogCorrupt) {
			t.Errorf("%s: the bundle is accepted: %v", name, err)
		}
	}
}

// TestSigningIsStrict seals and reads runs that only the strict rules refuse, in the clear and encrypted.
func TestSigningIsStrict(t *testing.T) {
	key := fixedKey(t, "example.com/runs", 1)
	for name, events := range logtest.Lenient("acme/run") {
		if !events[1].Kind.Valid() {
			continue // no log takes it
		}
		db := database(t)
		add(t, db, events)
		if r := mustSeal(t, db, key); len(r.Refused) != 1 || r.Checkpoint.Leaves != 0 {
			t.Errorf("%s: sealed: %+v", name, r)
		}
		if _, err := seal.ReadRun(t.Context(), db, nil, "acme/run"); !errors.Is(err, eventlog.ErrLogCorrupt) {
			t.Errorf("%s: read: %v", name, err)
		}
		dataKey, err := store.NewDataKey([]byte(strings.Repeat("k", 32)))
		if err != nil {
			t.Fatal(err)
		}
		db = database(t)
		log, err := store.Encrypted(db, dataKey, "acme")
		if err != nil {
			t.Fatal(err)
		}
		for _, ev := range events {
			if err := log.Append(t.Context(), ev.RunID, ev); err != nil {
				t.Fatal(err)
			}
		}
		if err := log.Sync(t.Context(), "acme/run"); err != nil {
			t.Fatal(err)
		}
		if _, err := seal.ReadRun(t.Context(), db, log.(seal.Opener), "acme/run"); !errors.Is(err, eventlog.ErrLogCorrupt) {
			t.Errorf("%s: encrypted, read: %v", name, err)
		}
	}
}

// TestLengthsInABundle changes the lengths in the header of each entry.
func TestLengthsInABundle(t *testing.T) {
	file, err := newFixture(t, 5).bundle(true, 4, 1).Bytes()
	if err != nil {
		t.Fatal(err)
	}
	for at, entry := 0, 1; bytes.HasPrefix(file[at:], []byte("PK\x03\x04")); entry++ {
		size, name := binary.LittleEndian.Uint32(file[at+18:]), binary.LittleEndian.Uint16(file[at+26:])
		for _, n := range []uint32{0, 1, size - 1, size + 1, uint32(len(file) - at), uint32(len(file)), 1 << 31, 1<<32 - 1} {
			for _, fields := range [][]int{{18}, {22}, {18, 22}} {
				lying := bytes.Clone(file)
				for _, field := range fields {
					binary.LittleEndian.PutUint32(lying[at+field:], n)
				}
				if _, _, err := seal.OpenBundle(t.Context(), lying); err == nil && n != size {
					t.Errorf("entry %d of %d bytes says %d in %v, and is read", entry, size, n, fields)
				}
			}
		}
		for _, n := range []uint16{0, name + 1, 201, 1<<16 - 1} {
			lying := bytes.Clone(file)
			binary.LittleEndian.PutUint16(lying[at+26:], n)
			if _, _, err := seal.OpenBundle(t.Context(), lying); err == nil {
				t.Errorf("entry %d has a name of %d bytes", entry, n)
			}
		}
		at += 30 + int(name) + int(size)
	}
}

// TestOtherProgramsVerifyACheckpoint verifies with package note and the printed vkey alone.
func TestOtherProgramsVerifyACheckpoint(t *testing.T) {
	f := newFixture(t, 3)
	v, err := note.NewVerifier(f.key.For("example.com/runs/0123456789abcdef").VKey())
	if err != nil {
		t.Fatal(err)
	}
	n, err := note.Open(f.checkpoint, note.VerifierList(v))
	if err != nil || len(n.Sigs) != 1 || len(n.UnverifiedSigs) != 1 {
		t.Errorf("%+v, %v", n, err)
	}
	if _, err := note.NewSigner(f.key.Text()); err != nil {
		t.Error(err)
	}
}

// TestAnswersOfWitnesses: a checkpoint takes no line after which it could not be read or trusted any more.
func TestAnswersOfWitnesses(t *testing.T) {
	key, witness := fixedKey(t, "example.com/runs", 1), witnesstest.NewKey("witness.example", 2)
	db := database(t, "run-0")
	sealed := mustSeal(t, db, key)
	good := witness.Cosign(sealed.Signed, time.Unix(1_700_000_000, 0))
	own, _, _ := bytes.Cut(sealed.Signed[bytes.Index(sealed.Signed, []byte("\n\n"))+2:], []byte("\n"))
	at := bytes.LastIndexByte(own, ' ')
	sig, _ := base64.StdEncoding.DecodeString(string(own[at+1:]))
	sig[10] ^= 1
	var many strings.Builder
	for i := range 100 {
		fmt.Fprintf(&many, "— w%d %s\n", i, base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{byte(i)}, 76)))
	}
	line := func(text string) string { return "— witness.example " + text + "\n" }
	for name, answer := range map[string]string{
		"no bytes of a signature": line("AAA="), "four bytes": line("AAAAAA=="), "a key and no signature": line("AAAAAAA="), "one byte": line("AA=="),
		"nothing": "", "an empty line": "\n", "no base64": line("????"), "another length": line(base64.StdEncoding.EncodeToString(make([]byte, 68))),
		"a line break": "— witness.example\n", "no name": "— " + string(good[bytes.LastIndexByte(good, ' '):]),
		"too many":                        many.String(),
		"the log's own key":               string(own[:at+1]) + base64.StdEncoding.EncodeToString(sig) + "\n",
		"the log's own signature, longer": string(own[:at+1]) + base64.StdEncoding.EncodeToString(append(sig, make([]byte, 8)...)) + "\n",
		"HTML":                            "<html>\n",
	} {
		if _, err := seal.KeepCosignatures(t.Context(), db, sealed.Checkpoint, []byte(answer)); err == nil {
			t.Errorf("%s: taken", name)
		}
	}
	trust, _ := seal.ParsePolicy("log " + key.VKey() + "\nwitness w " + witness.VKey() + "\nquorum w\n")
	signed, err := seal.KeepCosignatures(t.Context(), db, sealed.Checkpoint, good)
	if err == nil {
		_, _, err = trust.Check(signed)
	}
	if err != nil {
		t.Error(err)
	}
}

// TestGroupsOfGroups: a policy whose groups share members costs what it is long.
func TestGroupsOfGroups(t *testing.T) {
	key, witness := fixedKey(t, "example.com/runs", 1), witnesstest.NewKey("witness.example", 2)
	text := "log " + key.VKey() + "\nwitness w " + witness.VKey() + "\ngroup a0 all w\ngroup b0 all w\n"
	for i := range 60 {
		text += fmt.Sprintf("group a%d all a%d b%d\ngroup b%d all a%d b%d\n", i+1, i, i, i+1, i, i)
	}
	policy, err := seal.ParsePolicy(text + "quorum a60\n")
	if err != nil {
		t.Fatal(err)
	}
	f := newFixture(t, 2)
	if _, _, err := policy.Check(f.checkpoint); err != nil {
		t.Error(err)
	}
}
