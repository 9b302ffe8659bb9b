package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/eventlog/logtest"
	"github.com/starling-host/starling/eventlog/store"
	"github.com/starling-host/starling/internal/pgtest"
	"github.com/starling-host/starling/internal/terminal"
)

// TestPartitionsOfASealedDatabase divides a server, and drops the months of a sealed one as an operator does: verify then
// explains every run, the archive has them, and they come back.
func TestPartitionsOfASealedDatabase(t *testing.T) {
	dsn := pgtest.Database(t)
	t.Chdir(t.TempDir())
	run := func(want int, args ...string) string {
		t.Helper()
		var out, errs strings.Builder
		a := &app{stdin: strings.NewReader(""), stdout: terminal.New(&out), stderr: terminal.New(&errs)}
		if code := a.execute(t.Context(), args); code != want {
			t.Fatalf("%q exits with %d:\n%s%s", args, code, &out, &errs)
		}
		return out.String() + errs.String()
	}
	expect := func(text string, wants ...string) {
		t.Helper()
		for _, want := range wants {
			if !strings.Contains(text, want) {
				t.Errorf("%q is not in:\n%s", want, text)
			}
		}
	}
	run(exitOK, "migrate", dsn)
	expect(run(exitUsage, "partitions", dsn, "--ahead", "121"), "--ahead must be from 0 to 120")
	server, err := store.OpenServer(t.Context(), dsn, store.ServerOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	january := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	if _, err := server.MakePartitions(t.Context(), january.AddDate(0, -2, 0), 4, false); err != nil {
		t.Fatal(err)
	}
	record := func(n int, at time.Time, events ...func([]event.Event) []event.Event) string {
		t.Helper()
		id := fmt.Sprintf("%s%016d", event.IDPrefix(at), n)
		evs := logtest.Finished(id, 3)
		for _, change := range events {
			evs = change(evs)
		}
		for _, e := range evs {
			if err := server.Append(t.Context(), id, e); err != nil {
				t.Fatal(err)
			}
		}
		if err := server.Sync(t.Context(), id); err != nil {
			t.Fatal(err)
		}
		return id
	}
	for i := range 4 {
		record(i, january.AddDate(0, i-2, 3))
	}
	if err := os.WriteFile("log.vkey", []byte(run(exitOK, "seal", "keygen", "seal.key")), 0o600); err != nil {
		t.Fatal(err)
	}
	run(exitOK, "seal", dsn, "--key", "seal.key")
	unsealed := record(5, january.AddDate(0, 0, -1))
	open := record(6, january.AddDate(0, 1, 5), func(evs []event.Event) []event.Event { return evs[:1] })

	// Nothing to make, and what cannot be.
	expect(run(exitUsage, "partitions", "starling.db"), "only a PostgreSQL server has partitions")
	expect(run(exitUsage, "partitions", dsn, "--drop-before", "2999-01"), "is not a month until now", "--drop-before 2026-01")
	expect(run(exitUsage, "partitions", dsn, "--drop-before", "2026-01-01"), "is not a month until now")
	expect(run(exitUsage, "partitions", dsn, "--archive-to", "."), "are for the partitions to drop")
	expect(run(exitUsage, "partitions", dsn, "--drop-before", "2026-01", "--key", "absent.key"), "absent.key: no such file")

	expect(run(exitOK, "partitions", dsn, "--drop-before", "2026-01", "--dry-run", "--ahead", "0"),
		"would have dropped eventlog_events_until_2025_12: 1 run, 7 events\nwould have dropped eventlog_events_2025_12: 2 runs, 14 events\n")
	os.Mkdir("archives", 0o700)
	expect(run(exitOK, "partitions", dsn, "--drop-before", "2026-01", "--archive-to", "archives", "--key", "seal.key", "--ahead", "1"),
		"made eventlog_events_"+time.Now().UTC().Format("2006_01")+"\n",
		"dropped eventlog_events_2025_12: 2 runs, 14 events, archived in "+filepath.Join("archives", "eventlog_events_2025_12.ndjson.zst")+"\n")
	expect(run(exitOK, "verify", dsn, "--checkpoint", filepath.Join("archives", "eventlog_events_2025_12.note")), "valid")

	// Without the key the removal is recorded, and waits for the next seal. A month with an open run stays.
	expect(run(exitFailed, "partitions", dsn, "--drop-before", "2026-03", "--ahead", "0"), "dropped eventlog_events_2026_01: 1 run",
		"error: eventlog_events_2026_02 stays: run \""+open+"\" has not ended")
	expect(run(exitInvalid, "verify", dsn), "1 missing without a recorded removal")
	run(exitOK, "seal", dsn, "--key", "seal.key")
	expect(run(exitOK, "verify", dsn), "valid")

	// The archives are proven as they are, by what the database keeps of the runs.
	archive := filepath.Join("archives", "eventlog_events_2025_12.ndjson.zst")
	expect(run(exitOK, "verify", archive), "valid: 2 runs, 14 events and 0 modules\nnot compared with what was sealed; to do that, run starling-host verify DB --archive "+archive)
	expect(run(exitOK, "verify", dsn, "--archive", "archives", "--key", "log.vkey"), "valid", "archives    3 of the removed runs as sealed in 2 files, 1 in none")
	expect(run(exitOK, "verify", dsn, "--archive", archive, "-o", "json"), `"verdict":"valid"`, `"gone":4,"archived":2,`)
	run(exitOK, "bundle", dsn, unsealed, "--archive", "archives", "-o", "dropped.starling")
	expect(run(exitOK, "verify", "dropped.starling", "--no-replay", "--key", "log.vkey"), "valid", unsealed+"  completed", "signed by")
	expect(run(exitOK, "archive", "--check", archive), "valid: 2 runs, 14 events")
	expect(run(exitOK, "import", "fresh.db", archive), "imported 2 runs")
	expect(run(exitOK, "validate", "fresh.db"), "2 valid, 0 invalid")
	expect(run(exitOK, "import", dsn, archive), "imported 2 runs")
	run(exitOK, "seal", dsn, "--key", "seal.key")
	expect(run(exitOK, "verify", dsn), "valid")
	run(exitOK, "bundle", dsn, unsealed, "-o", "one.starling")
	expect(run(exitOK, "verify", "one.starling", "--no-replay"), "valid")
}
