package receipt_test

import (
	"bytes"
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
	"github.com/starling-host/starling/internal/pgtest"
)

// databases open an empty database of each kind.
var databases = map[string]func(t *testing.T) (store.Database, error){
	"SQLite": func(t *testing.T) (store.Database, error) {
		return store.Open(t.Context(), filepath.Join(t.TempDir(), "a.db"), store.Options{})
	},
	"PostgreSQL": func(t *testing.T) (store.Database, error) {
		return store.OpenServer(t.Context(), pgtest.Database(t), store.ServerOptions{AutoMigrate: true})
	},
}

// sealedDatabase returns a database that key has sealed, with a run of several calls, and what decrypts
// it if it is encrypted.
func sealedDatabase(t *testing.T, kind string, key *seal.Key, encrypted bool) (store.Database, seal.Opener, string) {
	t.Helper()
	ctx := t.Context()
	db, err := databases[kind](t)
	if err == nil {
		err = db.CreateTables(ctx, seal.Tables)
	}
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

// TestNothingForgedIsSigned changes each column of each row of a sealed run, in each kind of database, in
// the clear and encrypted, and asks for receipts: there are none, and the log is named as corrupt.
func TestNothingForgedIsSigned(t *testing.T) {
	key := fixedKey(t, "example.com/runs", 1)
	trust, err := seal.Trust(key.VKey())
	if err != nil {
		t.Fatal(err)
	}
	for kind := range databases {
		for _, encrypted := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/encrypted %t", kind, encrypted), func(t *testing.T) { forgeEach(t, kind, key, trust, encrypted) })
		}
	}
}

func forgeEach(t *testing.T, kind string, key *seal.Key, trust *seal.Policy, encrypted bool) {
	db, opener, id := sealedDatabase(t, kind, key, encrypted)
	issue := func() error {
		all, err := (&receipt.Issuer{Key: key}).Issue(t.Context(), db, opener, id)
		for _, r := range all {
			if _, wrong := r.Check(t.Context(), trust); wrong != nil {
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
	// forge changes a column of one row, asks, and changes it back.
	forge := func(table, column, where string, forged, was any) {
		t.Helper()
		name := fmt.Sprintf("%s.%s WHERE %s: %x", table, column, where, forged)
		change(t, db, "UPDATE "+table+" SET "+column+" = $1 WHERE "+where, forged)
		if err := issue(); err == nil {
			t.Errorf("%s: a receipt was issued", name)
		} else if !errors.Is(err, eventlog.ErrLogCorrupt) && !errors.Is(err, event.ErrEncrypted) {
			t.Errorf("%s: %v", name, err)
		}
		if column == "seq" {
			where = strings.Replace(where, fmt.Sprint(was), fmt.Sprint(forged), 1)
		}
		change(t, db, "UPDATE "+table+" SET "+column+" = $1 WHERE "+where, was)
		if err := issue(); err != nil {
			t.Fatalf("%s, mended: %v", name, err)
		}
	}
	number := func(table, column, where string, by int64) {
		t.Helper()
		was := query[int64](t, db, "SELECT "+column+" FROM "+table+" WHERE "+where)[0]
		forge(table, column, where, was+by, was)
	}
	blob := func(table, column, where string, forgeries ...func(was []byte) []byte) {
		t.Helper()
		was := query[[]byte](t, db, "SELECT "+column+" FROM "+table+" WHERE "+where)[0]
		for _, f := range forgeries {
			forge(table, column, where, f(bytes.Clone(was)), was)
		}
	}
	zero := func([]byte) []byte { return make([]byte, 32) }
	run := "run_id = '" + id + "'"
	for _, seq := range query[int64](t, db, "SELECT seq FROM eventlog_events WHERE "+run) {
		row := fmt.Sprintf("seq = %d AND %s", seq, run)
		number("eventlog_events", "ts", row, -1000)
		number("eventlog_events", "kind", row, 100)
		forge("eventlog_events", "seq", row, int64(99), seq)
		if seq > 1 {
			blob("eventlog_events", "prev_hash", row, zero)
		} else {
			forge("eventlog_events", "prev_hash", row, make([]byte, 32), nil)
		}
		blob("eventlog_events", "payload", row,
			func(b []byte) []byte { b[len(b)/2] ^= 1; return b },
			func(b []byte) []byte { b[len(b)-1] ^= 1; return b },
			func(b []byte) []byte { return append(b, 0) })
	}
	for _, column := range []string{"started", "last_seq", "terminal", "turns", "tools", "input_tokens", "output_tokens", "duration_ms"} {
		number("run", column, run, 1)
	}
	blob("run", "head", run, func([]byte) []byte { return bytes.Repeat([]byte{1}, 32) }) // without a head a row says nothing
	blob("run_leaf", "merkle_root", run, zero)
	blob("run_leaf", "terminal_hash", run, zero)
	number("run_leaf", "events", run, 1)
	for _, place := range []int{0, 3} { // the run is leaf 1 of three: its path is the hashes of the leaves 0 and 2
		blob("run_leaf_hash", "hash", fmt.Sprint("place = ", place), zero)
	}
	if !encrypted { // the modules of tenants are elsewhere
		blob("module", "wasm", "1 = 1", func([]byte) []byte { return []byte("other") })
	}

	// A whole history, consistent in itself, in place of the one that was sealed.
	signed := query[[]byte](t, db, "SELECT signed FROM run_checkpoint")[0]
	change(t, db, "UPDATE run_checkpoint SET signed = $1", bytes.Replace(signed, []byte("— "), []byte("— x"), 1))
	if err := issue(); err == nil {
		t.Error("a checkpoint that was changed got a receipt")
	}
}

// TestNoSignatureOnAForeignRoot: the owner of a key does not sign, as a COSE receipt, the root of a
// checkpoint that another key made.
func TestNoSignatureOnAForeignRoot(t *testing.T) {
	db, _, id := sealedDatabase(t, "SQLite", fixedKey(t, "example.com/runs", 1), false)
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
