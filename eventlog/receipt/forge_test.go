package receipt_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/eventlog/receipt"
	"github.com/starling-host/starling/eventlog/seal"
	"github.com/starling-host/starling/eventlog/store"
)

// sealedDatabase returns a database that key has sealed, with a run of several calls, and what decrypts
// it if it is encrypted.
func sealedDatabase(t *testing.T, key *seal.Key, encrypted bool) (store.Database, seal.Opener, string) {
	t.Helper()
	ctx := t.Context()
	db, err := store.Open(ctx, filepath.Join(t.TempDir(), "a.db"), store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	log, namespace := eventlog.EventLog(db), ""
	var opener seal.Opener
	if encrypted {
		dataKey, err := store.NewDataKey([]byte(strings.Repeat("k", 32)))
		if err != nil {
			t.Fatal(err)
		}
		if log, err = store.Encrypted(db, dataKey, "acme"); err != nil {
			t.Fatal(err)
		}
		opener, namespace = log.(seal.Opener), "acme/"
	}
	if _, err := db.PutModule(ctx, []byte("module")); err != nil {
		t.Fatal(err)
	}
	for _, events := range runs(t) {
		at := eventlog.Cursor{}
		var hashes []canon.Hash
		for _, ev := range events {
			ev.RunID = namespace + ev.RunID
			if ev.PrevHash = nil; ev.Seq > 1 {
				head := at.Run().Head
				ev.PrevHash = head[:]
			}
			if ev.Kind.Terminal() { // the ids of runs are in the hashes
				root := canon.Root(hashes)
				if ev.Payload, err = event.EncodePayload(event.RunCompleted{MerkleRoot: root[:]}); err != nil {
					t.Fatal(err)
				}
			}
			hashes = append(hashes, ev.Hash())
			at.Skip(ev)
			if err := log.Append(ctx, ev.RunID, ev); err != nil {
				t.Fatal(err)
			}
		}
		if err := log.Sync(ctx, namespace+events[0].RunID); err != nil {
			t.Fatal(err)
		}
	}
	if r, err := seal.Seal(ctx, db, key); err != nil || len(r.Refused) > 0 || r.Checkpoint.Leaves != 3 {
		t.Fatalf("%+v, %v", r, err)
	}
	return db, opener, namespace + "run-module"
}

// query returns the first column of the rows.
func query[T any](t *testing.T, db store.Database, sql string, args ...any) []T {
	t.Helper()
	all, err := eventlog.View(t.Context(), db, func(q eventlog.Querier) ([]T, error) {
		return eventlog.QueryAll(q, sql, args, func(r eventlog.Row) (v T, err error) {
			err = r.Scan(&v)
			return v, err
		})
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func change(t *testing.T, db store.Database, sql string, args ...any) {
	t.Helper()
	err := db.Transact(t.Context(), func(tx eventlog.Tx) error {
		_, err := tx.Exec(sql, args...)
		return err
	})
	if err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

// TestNothingForgedIsSigned changes each column of each row of a sealed run, in the clear and encrypted,
// and asks everything that signs or proves: none may, and each must name the log as corrupt.
func TestNothingForgedIsSigned(t *testing.T) {
	key := fixedKey(t, "example.com/runs", 1)
	trust, err := seal.Trust(key.VKey())
	if err != nil {
		t.Fatal(err)
	}
	for _, encrypted := range []bool{false, true} {
		t.Run(fmt.Sprintf("encrypted %t", encrypted), func(t *testing.T) {
			db, opener, id := sealedDatabase(t, key, encrypted)
			issue := func() error {
				all, err := (&receipt.Issuer{Key: key}).Issue(t.Context(), db, opener, id)
				for _, r := range all {
					if _, wrong := r.Check(trust); wrong != nil {
						t.Errorf("an issued receipt is refused: %v", wrong)
					}
					if r.Proof == "" || r.COSE == nil {
						t.Error("a receipt of a sealed run has no proof")
					}
				}
				return err
			}
			if err := issue(); err != nil {
				t.Fatal(err)
			}
			type forgery struct{ name, forge, mend string }
			var all []forgery
			for _, seq := range query[int64](t, db, "SELECT seq FROM eventlog_events WHERE run_id = $1", id) {
				row := fmt.Sprintf(" WHERE run_id = '%s' AND seq = %d", id, seq)
				set := func(name, forge, mend string) {
					all = append(all, forgery{fmt.Sprintf("event %d, %s", seq, name), "UPDATE eventlog_events SET " + forge + row, "UPDATE eventlog_events SET " + mend + row})
				}
				set("ts", "ts = ts - 1000", "ts = ts + 1000")
				set("kind", "kind = kind + 100", "kind = kind - 100")
				prev := "NULL"
				if seq > 1 {
					prev = fmt.Sprintf("x'%x'", query[[]byte](t, db, "SELECT prev_hash FROM eventlog_events"+row)[0])
				}
				set("prev_hash", "prev_hash = zeroblob(32)", "prev_hash = "+prev)
				payload := query[[]byte](t, db, "SELECT payload FROM eventlog_events"+row)[0]
				// a byte in the middle, at the end, and one more
				for _, at := range []int{len(payload) / 2, len(payload) - 1} {
					forged := append([]byte(nil), payload...)
					forged[at] ^= 1
					set(fmt.Sprintf("byte %d of the payload", at), fmt.Sprintf("payload = x'%x'", forged), fmt.Sprintf("payload = x'%x'", payload))
				}
				set("a longer payload", fmt.Sprintf("payload = x'%x00'", payload), fmt.Sprintf("payload = x'%x'", payload))
				all = append(all, forgery{fmt.Sprintf("event %d moved", seq), "UPDATE eventlog_events SET seq = 99" + row,
					fmt.Sprintf("UPDATE eventlog_events SET seq = %d WHERE run_id = '%s' AND seq = 99", seq, id)})
			}
			for _, column := range []string{"started", "last_seq", "terminal", "turns", "tools", "input_tokens", "output_tokens", "duration_ms"} {
				all = append(all, forgery{"run." + column, "UPDATE run SET " + column + " = " + column + " + 1 WHERE run_id = '" + id + "'",
					"UPDATE run SET " + column + " = " + column + " - 1 WHERE run_id = '" + id + "'"})
			}
			head := query[[]byte](t, db, "SELECT head FROM run WHERE run_id = $1", id)[0]
			all = append(all, forgery{"run.head", "UPDATE run SET head = x'" + strings.Repeat("11", 32) + "' WHERE run_id = '" + id + "'", fmt.Sprintf("UPDATE run SET head = x'%x' WHERE run_id = '%s'", head, id)})
			for _, column := range []string{"merkle_root", "terminal_hash"} {
				was := query[[]byte](t, db, "SELECT "+column+" FROM run_leaf WHERE run_id = $1", id)[0]
				all = append(all, forgery{"run_leaf." + column, "UPDATE run_leaf SET " + column + " = zeroblob(32) WHERE run_id = '" + id + "'",
					fmt.Sprintf("UPDATE run_leaf SET %s = x'%x' WHERE run_id = '%s'", column, was, id)})
			}
			all = append(all, forgery{"run_leaf.events", "UPDATE run_leaf SET events = events + 1 WHERE run_id = '" + id + "'", "UPDATE run_leaf SET events = events - 1 WHERE run_id = '" + id + "'"})
			// The run is leaf 1 of three: its path is the hashes of the leaves 0 and 2.
			for i, place := range query[int64](t, db, "SELECT place FROM run_leaf_hash WHERE place IN (0, 3)") {
				was := query[[]byte](t, db, "SELECT hash FROM run_leaf_hash WHERE place = $1", place)[0]
				all = append(all, forgery{fmt.Sprintf("run_leaf_hash %d", i), fmt.Sprintf("UPDATE run_leaf_hash SET hash = zeroblob(32) WHERE place = %d", place),
					fmt.Sprintf("UPDATE run_leaf_hash SET hash = x'%x' WHERE place = %d", was, place)})
			}
			if !encrypted { // the modules of tenants are elsewhere
				wasm := query[[]byte](t, db, "SELECT wasm FROM module")[0]
				all = append(all, forgery{"module.wasm", "UPDATE module SET wasm = zeroblob(3)", fmt.Sprintf("UPDATE module SET wasm = x'%x'", wasm)})
			}
			for _, f := range all {
				change(t, db, f.forge)
				if err := issue(); err == nil {
					t.Errorf("%s: a receipt was issued", f.name)
				} else if !errors.Is(err, eventlog.ErrLogCorrupt) && !errors.Is(err, event.ErrEncrypted) {
					t.Errorf("%s: %v", f.name, err)
				}
				change(t, db, f.mend)
				if err := issue(); err != nil {
					t.Fatalf("%s, mended: %v", f.name, err)
				}
			}

			// A whole history, consistent in itself, in place of the one that was sealed.
			change(t, db, "UPDATE run_checkpoint SET signed = CAST(replace(CAST(signed AS TEXT), '— ', '— x') AS BLOB)")
			if err := issue(); err == nil {
				t.Error("a checkpoint that was changed got a receipt")
			}
		})
	}
}

// TestNoSignatureOnAForeignRoot: the owner of a key does not sign, as a COSE receipt, the root of a
// checkpoint that another key made.
func TestNoSignatureOnAForeignRoot(t *testing.T) {
	db, _, id := sealedDatabase(t, fixedKey(t, "example.com/runs", 1), false)
	for _, name := range []string{"example.com/runs", "example.com/others"} {
		other := fixedKey(t, name, 2)
		all, err := (&receipt.Issuer{Key: other}).Issue(context.Background(), db, nil, id)
		if err != nil || len(all) == 0 {
			t.Fatal(len(all), err)
		}
		for _, r := range all {
			if r.COSE != nil || r.Proof == "" {
				t.Errorf("%s: COSE receipt %x, proof %q", name, r.COSE, r.Proof)
			}
		}
	}
}
