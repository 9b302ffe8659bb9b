package starling

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/eventlog/logtest"
	"github.com/starling-host/starling/eventlog/store"
)

// reads counts how often each module is read.
type reads map[canon.Hash]int

func (r reads) Module(_ context.Context, digest canon.Hash) ([]byte, error) {
	r[digest]++
	if digest[0] == 0 {
		return nil, eventlog.ErrModuleNotFound
	}
	return nil, nil
}

// TestAModuleIsCheckedOnce checks the modules of many runs: each is read once, whatever
// is wrong with it.
func TestAModuleIsCheckedOnce(t *testing.T) {
	store := make(reads)
	checks := newModuleChecks(store)
	there, gone := canon.Hash{1}, canon.Hash{}
	for range 3 {
		if reason, err := checks.check(t.Context(), there[:]); err != nil || reason != "" {
			t.Error(reason)
		}
		if reason, _ := checks.check(t.Context(), gone[:]); reason != "is not in the database" {
			t.Errorf("%q", reason)
		}
	}
	if store[there] != 1 || store[gone] != 1 {
		t.Errorf("read %v times", store)
	}
}

// TestFilesThatAreNotThereAreNamed removes a file of a run from its database, and changes another.
func TestFilesThatAreNotThereAreNamed(t *testing.T) {
	log, err := store.Open(t.Context(), filepath.Join(t.TempDir(), "runs.db"), store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	contents, root := logtest.Tree(map[string]string{"data/a": "a", "data/b": "b", "c": "c"})
	if err := log.PutContents(t.Context(), "", contents); err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"first", "second"} {
		for _, e := range logtest.WithFiles(id, root, root) {
			if err := log.Append(t.Context(), id, e); err != nil {
				t.Fatal(err)
			}
		}
	}
	b := canon.Sum([]byte("b"))
	for _, tc := range []struct{ sql, want string }{
		{"", ""},
		{"UPDATE module SET wasm = x'78' WHERE digest = $1", `its file "/data/b": `},
		{"DELETE FROM module WHERE digest = $1", `its file "/data/b": eventlog: module not found: ` + b.String()},
	} {
		err := log.Transact(t.Context(), func(tx eventlog.Tx) error {
			if tc.sql == "" {
				return nil
			}
			_, err := tx.Exec(tc.sql, b[:])
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		for _, id := range []string{"first", "second"} {
			v, err := Over(log, Options{}).Validate(t.Context(), id)
			where, ok := errors.AsType[*eventlog.CorruptError](v.Err)
			if tc.want == "" && (err != nil || v.Err != nil) || tc.want != "" && (err != nil || !ok || where.Seq != 2 || !strings.Contains(v.Err.Error(), tc.want)) {
				t.Errorf("%s: %v, %v", tc.sql, v.Err, err)
			}
		}
	}
}
