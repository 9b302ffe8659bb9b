package starling_test

import (
	"database/sql"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/starling-host/starling"
	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/logtest"
	"github.com/starling-host/starling/eventlog/store"
)

// TestFindRunByName has more runs that a name may mean than fit on a page, in a
// file of the Starling runtime and in the same file after a migration.
func TestFindRunByName(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "seed.db")
	seed, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	_, err = seed.Exec(`CREATE TABLE eventlog_events (run_id TEXT NOT NULL, seq INTEGER NOT NULL, prev_hash BLOB, ts INTEGER NOT NULL,
		kind INTEGER NOT NULL, payload BLOB NOT NULL, PRIMARY KEY (run_id, seq));
		CREATE TABLE eventlog_schema_migrations (version INTEGER PRIMARY KEY, applied_at INTEGER NOT NULL);
		INSERT INTO eventlog_schema_migrations VALUES (1, 0), (2, 0); BEGIN`)
	if err != nil {
		t.Fatal(err)
	}
	ids := []string{"run", "0x-alone"}
	for i := range eventlog.MaxPageLimit + 50 {
		ids = append(ids, fmt.Sprintf("run-%04d-0x", i))
	}
	for i, id := range ids {
		c := logtest.Chain{RunID: id, Clock: int64(i)}
		e := c.Start("g")
		if _, err := seed.Exec("INSERT INTO eventlog_events VALUES (?, 1, NULL, ?, ?, ?)", id, e.Timestamp, e.Kind, []byte(e.Payload)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := seed.Exec("COMMIT"); err != nil {
		t.Fatal(err)
	}
	if err := seed.Close(); err != nil {
		t.Fatal(err)
	}
	for _, layout := range []string{"seed", "ours"} {
		log, err := store.OpenFile(t.Context(), path, store.FileOptions{ReadOnly: layout == "seed"})
		if err == nil && layout == "ours" {
			_, err = log.MigrateSchema(t.Context(), false)
		}
		if err != nil {
			t.Fatal(err)
		}
		for name, want := range map[string]string{
			"run": "run", "RUN-0007": "run-0007-0x", "0x": "0x-alone", "run-0": "several runs", "nobody": "no run", "7-0x": "no run", starling.LastRun: ids[len(ids)-1],
		} {
			id, err := starling.FindRun(t.Context(), log, name)
			if err != nil {
				id = err.Error()
			}
			if id != want && (err == nil || !strings.Contains(id, want)) {
				t.Errorf("%s: %s: %s, want %s", layout, name, id, want)
			}
		}
		if err := log.Close(); err != nil {
			t.Error(err)
		}
	}
}
