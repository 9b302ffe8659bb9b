package sqlitelog

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/logtest"
	"github.com/starling-host/starling/internal/treetest"
)

// endless is a query that never ends.
const endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n) SELECT 'r' AS run_id, i AS seq, NULL AS prev_hash, i AS ts, 9 AS kind, x'f6' AS payload FROM n"

func TestHostileFilesAreRefused(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, damage string
		want         error
		text         string
	}{
		{"the events are a view that computes for ever",
			"DROP TABLE eventlog_events; CREATE VIEW eventlog_events AS " + endless, eventlog.ErrLogCorrupt, `view "eventlog_events"`},
		{"the runs are a view",
			"DROP TABLE run; CREATE VIEW run AS SELECT 1", eventlog.ErrLogCorrupt, `view "run"`},
		{"a view of another name",
			"CREATE VIEW other AS SELECT 1", eventlog.ErrLogCorrupt, `view "other"`},
		{"a trigger on the events",
			"CREATE TRIGGER tr AFTER INSERT ON eventlog_events BEGIN DELETE FROM eventlog_events; END", eventlog.ErrLogCorrupt, `trigger "tr"`},
		{"a virtual table",
			"CREATE VIRTUAL TABLE v USING fts5(x)", eventlog.ErrLogCorrupt, `table "v"`},
		{"an index that calls a function",
			"CREATE INDEX i ON eventlog_events (abs(ts))", eventlog.ErrLogCorrupt, `index "i"`},
		{"an index that calls a function, on a table of ours by another spelling",
			"CREATE INDEX i ON run (abs(started)); PRAGMA writable_schema=ON; UPDATE sqlite_schema SET tbl_name = 'RUN' WHERE name = 'i'", eventlog.ErrLogCorrupt, `index "i"`},
		{"a table of ours by another spelling",
			"DROP TABLE module_piece; CREATE TABLE Module_Piece (digest BLOB, n INTEGER, bytes BLOB AS (zeroblob(n)))", eventlog.ErrLogCorrupt, `table "Module_Piece"`},
		{"a column of somebody else's table that is computed",
			"CREATE TABLE tenant (k INTEGER, id TEXT AS (hex(zeroblob(k))))", eventlog.ErrLogCorrupt, `column "id" of the table "tenant"`},
		{"a column that is computed and kept",
			"CREATE TABLE tenant (k INTEGER, id TEXT AS (hex(k)) STORED)", eventlog.ErrLogCorrupt, `column "id" of the table "tenant"`},
		{"a generated column",
			"ALTER TABLE eventlog_events ADD COLUMN g AS (abs(ts))", eventlog.ErrLogCorrupt, `table "eventlog_events"`},
		{"a table with other constraints",
			"DROP TABLE module; CREATE TABLE module (digest BLOB, wasm BLOB)", eventlog.ErrLogCorrupt, `table "module"`},
		{"no table of runs",
			"DROP TABLE run", eventlog.ErrLogCorrupt, "no table run"},
		{"no events",
			"DROP TABLE eventlog_events", nil, "not an event log"},
		{"a header that contradicts the tables",
			"PRAGMA user_version=0", eventlog.ErrLogCorrupt, "header says 0"},
		{"a newer layout",
			"PRAGMA user_version=3", eventlog.ErrSchemaTooNew, "layout 3"},
		{"a newer Starling runtime",
			"INSERT INTO eventlog_schema_migrations VALUES (3, 0)", eventlog.ErrSchemaTooNew, "at 3"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l := open(t)
			storeAll(t, l, logtest.Finished("run-1", 1))
			newVandal(t, l).exec(tc.damage)
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
			for _, o := range []Options{{}, {ReadOnly: true}} {
				_, err := Open(t.Context(), l.path, o)
				if err == nil || !strings.Contains(err.Error(), tc.text) || tc.want != nil && !errors.Is(err, tc.want) {
					t.Errorf("%+v: %v", o, err)
				}
			}
		})
	}
}

func TestTablesOfOthersAreLeftAlone(t *testing.T) {
	t.Parallel()
	l := open(t)
	storeAll(t, l, logtest.Finished("run-1", 1))
	newVandal(t, l).exec("CREATE TABLE _litestream_seq (id INTEGER PRIMARY KEY, seq INTEGER); CREATE INDEX theirs ON _litestream_seq (seq)")
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	readAll(t, openAt(t, l.path, Options{}))
}

func TestColumnsOfAnotherTypeAreReported(t *testing.T) {
	t.Parallel()
	for column, value := range map[string]string{
		"prev_hash": "'text'", "ts": "'noon'", "kind": "1000", "payload": "'text'",
		"ts ": "1.5", "kind ": "-1", "payload ": "12", "payload  ": "zeroblob(16777217)",
		"prev_hash ": "zeroblob(100000000)", "kind  ": "zeroblob(1000000)",
	} {
		l := open(t)
		storeAll(t, l, logtest.Finished("run-1", 1))
		newVandal(t, l).exec("UPDATE eventlog_events SET " + column + " = " + value + " WHERE seq = 3")
		_, err := eventlog.CheckRun(t.Context(), l, "run-1", eventlog.CheckOptions{})
		var corrupt *eventlog.CorruptError
		if !errors.As(err, &corrupt) || corrupt.Invariant != "storage" || corrupt.Seq != 3 {
			t.Errorf("%s = %s: %v", column, value, err)
		}
		if len(fmt.Sprint(err)) > 200 {
			t.Errorf("%s = %s: a message of %d bytes", column, value, len(fmt.Sprint(err)))
		}
	}
}

// A malformed row of one run hides no run: listings go by its events, and only a check of the
// run itself names the row.
func TestARowOfARunThatIsNoSummary(t *testing.T) {
	t.Parallel()
	for damage, named := range map[string]bool{
		"run_id = hex(zeroblob(40000))": false, "run_id = zeroblob(1000000)": false, "head = zeroblob(1000000)": true,
		"last_seq = -1": true, "terminal = 256": true, "started = 'noon'": true, "turns = 'x'": true, "cost_usd = 'x'": true,
	} {
		l := open(t)
		storeAll(t, l, logtest.Finished("run-1", 1))
		storeAll(t, l, logtest.Finished("run-2", 1))
		want, err := l.ListRuns(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		newVandal(t, l).exec("UPDATE run SET " + damage + " WHERE run_id = 'run-1'")
		l = openAt(t, l.path, Options{ReadOnly: true}) // an open log does not compare the objects again
		all, err := l.ListRuns(t.Context())
		page, pageErr := l.ListRunsPage(t.Context(), eventlog.RunPageOptions{})
		_, checkErr := eventlog.CheckRun(t.Context(), l, "run-1", eventlog.CheckOptions{})
		if len(all) != len(want) || all[0].StartedAt != want[0].StartedAt || all[1].Status() != want[1].Status() {
			t.Errorf("%s: listed are %v", damage, all)
		}
		if named && (err != nil || pageErr != nil || page.TotalMatching != 2 || !errors.Is(checkErr, eventlog.ErrLogCorrupt)) {
			t.Errorf("%s: %v, %v, a page of %d, checked: %v", damage, err, pageErr, page.TotalMatching, checkErr)
		}
		if !named && (!errors.Is(err, eventlog.ErrLogCorrupt) || len(err.Error()) > 200 || !strings.Contains(err.Error(), "row 1 of the table run")) {
			t.Errorf("%s: %.200v", damage, err)
		}
		if _, err := eventlog.CheckRun(t.Context(), l, "run-2", eventlog.CheckOptions{}); err != nil {
			t.Errorf("%s: the other run: %v", damage, err)
		}
	}
}

// The Starling runtime takes any text for the id of a run. Such runs are read, migrated and
// continued.
func TestARunOfTheSeedRuntimeWithAnyIDGoesOn(t *testing.T) {
	t.Parallel()
	const id = "$(id) \x1b[2J\n\u202e"
	path := filepath.Join(t.TempDir(), "seed.db")
	c, err := connect(t.Context(), path, "mode=rwc")
	if err != nil {
		t.Fatal(err)
	}
	run := logtest.Chain{RunID: id}
	first := run.Start("g")
	err = c.execAll(t.Context(), []string{seedEventsTable, migrationsTable, "INSERT INTO eventlog_schema_migrations VALUES (2, 0)",
		fmt.Sprintf("INSERT INTO eventlog_events VALUES (CAST(x'%x' AS TEXT), 1, NULL, 0, 1, x'%x')", id, []byte(first.Payload))})
	if err = errors.Join(err, c.Close()); err != nil {
		t.Fatal(err)
	}
	l := openAt(t, path, Options{})
	if _, err := l.MigrateSchema(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	if err := l.Append(t.Context(), id, run.Complete()); err != nil {
		t.Error(err)
	}
	if events, err := l.Read(t.Context(), id); err != nil || len(events) != 2 {
		t.Errorf("%d events, %v", len(events), err)
	}
}

func TestAnIDInAFileOfTheSeedRuntimeThatIsTooLong(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "seed.db")
	c, err := connect(t.Context(), path, "mode=rwc")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	err = c.execAll(t.Context(), []string{seedEventsTable, migrationsTable,
		"INSERT INTO eventlog_schema_migrations VALUES (2, 0)",
		"INSERT INTO eventlog_events VALUES (hex(zeroblob(40000)), 1, NULL, 1, 1, x'a0')"})
	if err != nil {
		t.Fatal(err)
	}
	l := openAt(t, path, Options{ReadOnly: true})
	if _, err := l.ListRuns(t.Context()); !errors.Is(err, eventlog.ErrLogCorrupt) || len(err.Error()) > 200 {
		t.Errorf("%.200v", err)
	}
}

func TestWhatIsNoDatabaseIsRefused(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "text.db")
	for _, text := range []string{strings.Repeat("not a database ", 1000), "short", magic[:15]} {
		if err := os.WriteFile(path, []byte(text), 0o640); err != nil {
			t.Fatal(err)
		}
		for _, o := range []Options{{}, {ReadOnly: true}} {
			if _, err := Open(t.Context(), path, o); !strings.Contains(fmt.Sprint(err), "not a database") {
				t.Errorf("%+v, %.20q: %v", o, text, err)
			}
		}
		if got, err := os.ReadFile(path); err != nil || string(got) != text {
			t.Errorf("%.20q has become %.20q, %v", text, got, err)
		}
	}
	if files, err := os.ReadDir(dir); err != nil || len(files) != 1 {
		t.Errorf("beside a file that is no database: %v, %v", files, err)
	}
	missing := filepath.Join(dir, "missing.db")
	if _, err := Open(t.Context(), missing, Options{ReadOnly: true}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a missing file, for reading: %v", err)
	}
	if _, err := os.Stat(missing); err == nil {
		t.Error("opening for reading created the file")
	}
	if _, err := Open(t.Context(), missing, Options{Synchronous: "OFF"}); err == nil {
		t.Error("synchronous OFF was accepted")
	}
}

// TestDamagedFiles changes bytes of the file itself. SQLite, the vetting or the
// check has to notice what touches a run; nothing may panic or hang.
func TestDamagedFiles(t *testing.T) {
	t.Parallel()
	l := open(t)
	storeAll(t, l, agentRun("run-1"))
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	good, err := os.ReadFile(l.path)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "bad.db")
	want := agentRun("run-1")
	step := treetest.Count(1621, 1621, 211) // about 70 places in a file of seven pages, at night about 500
	for at := 0; at < len(good); at += step {
		bad := append([]byte(nil), good...)
		bad[at] ^= 1 << (at % 8)
		if err := os.WriteFile(path, bad, 0o600); err != nil {
			t.Fatal(err)
		}
		r, err := Open(t.Context(), path, Options{ReadOnly: true})
		if err != nil {
			continue
		}
		if _, err := eventlog.CheckRun(t.Context(), r, "run-1", eventlog.CheckOptions{}); err == nil {
			got, err := r.Read(t.Context(), "run-1")
			if err != nil || got[len(got)-1].Hash() != want[len(want)-1].Hash() {
				t.Errorf("byte %d: another run passes the check: %v", at, err)
			}
		}
		r.Close()
	}
}

// TestTableThatContradictsItsIndex changes a number in a row, but not in the
// index that finds the row, which no statement could do.
func TestTableThatContradictsItsIndex(t *testing.T) {
	t.Parallel()
	l := open(t)
	evs := logtest.Finished("run-1", 1100)
	storeAll(t, l, evs)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	file, err := os.ReadFile(l.path)
	if err != nil {
		t.Fatal(err)
	}
	row := append([]byte("run-1\x03\xe8"), evs[999].PrevHash...) // the columns run_id, seq and prev_hash of event 1000
	at := bytes.Index(file, row)
	if at < 0 {
		t.Fatal("the row is not in the file")
	}
	file[at+5], file[at+6] = 0, 5
	if err := os.WriteFile(l.path, file, 0o600); err != nil {
		t.Fatal(err)
	}
	r := openAt(t, l.path, Options{ReadOnly: true})
	_, err = eventlog.CheckRun(t.Context(), r, "run-1", eventlog.CheckOptions{})
	var corrupt *eventlog.CorruptError
	if !errors.As(err, &corrupt) || corrupt.Invariant != "storage" {
		t.Error(err)
	}
}

func TestOldSQLiteIsRefused(t *testing.T) {
	t.Parallel()
	for version, ok := range map[int]bool{3_051_002: false, 3_051_003: true, 3_053_004: true, 3_045_001: false} {
		if err := checkVersion(version); (err == nil) != ok {
			t.Errorf("%d: %v", version, err)
		}
	}
	if err := checkVersion(libraryVersion); err != nil {
		t.Error(err)
	}
}
