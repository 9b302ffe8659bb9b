package serve

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/logtest"
	"github.com/starling-host/starling/eventlog/seal"
	"github.com/starling-host/starling/eventlog/store"
	"github.com/starling-host/starling/internal/witnesstest"
)

// TestCosign has a witness over HTTP cosign a database that grows, and refuse one that was
// set back and went on with another run.
func TestCosign(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	key, err := seal.NewKey("example.com/runs")
	if err != nil {
		t.Fatal(err)
	}
	witness := witnesstest.NewKey("witness.example", 2)
	dir, url := t.TempDir(), witnesstest.Serve(t, witness)
	policy, err := seal.ParsePolicy("log " + key.VKey() + "\nwitness w " + witness.VKey() + "\nquorum w\n")
	if err != nil {
		t.Fatal(err)
	}

	open := func(name string) *store.File {
		t.Helper()
		db, err := store.OpenFile(ctx, filepath.Join(dir, name), store.FileOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return db
	}
	record := func(db eventlog.Database, ids ...string) {
		t.Helper()
		for _, id := range ids {
			for _, e := range logtest.Finished(id, 1) {
				if err := db.Append(ctx, id, e); err != nil {
					t.Fatal(err)
				}
			}
			if err := db.Sync(ctx, id); err != nil {
				t.Fatal(err)
			}
		}
	}
	sign := func(db eventlog.Database) error {
		t.Helper()
		if _, err := seal.Seal(ctx, db, key); err != nil {
			t.Fatal(err)
		}
		if _, err := Cosign(ctx, db, url); err != nil {
			return err
		}
		_, signed, err := seal.Newest(ctx, db)
		if err != nil {
			t.Fatal(err)
		}
		if _, signatures, err := policy.Check(signed); err != nil || len(signatures) != 2 {
			t.Errorf("%v, %v", signatures, err)
		}
		return nil
	}
	db := open("a.db")
	record(db, "a", "b")
	for range 2 { // the second time nothing is new
		if err := sign(db); err != nil {
			t.Fatal(err)
		}
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	old, err := os.ReadFile(filepath.Join(dir, "a.db"))
	if err != nil {
		t.Fatal(err)
	}
	db = open("a.db")
	record(db, "c", "d", "e")
	if err := sign(db); err != nil {
		t.Fatal(err)
	}
	db.Close()

	if err := os.WriteFile(filepath.Join(dir, "back.db"), old, 0o600); err != nil {
		t.Fatal(err)
	}
	back := open("back.db")
	defer back.Close()
	for _, c := range []struct{ run, want string }{
		{"x", "it has seen 5 runs of this log, which has 3: the database was reset to an older copy"},
		{"y", "it has seen 5 runs of this log, which has 4: the database was reset to an older copy"},
		{"z", "it has seen another checkpoint of 5 runs of this log"},
		{"zz", "status 422"},
	} {
		record(back, c.run)
		if err := sign(back); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("run %s: %v, want %q", c.run, err, c.want)
		}
	}
}
