package store_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/eventlog/logtest"
	"github.com/starling-host/starling/eventlog/seal"
	"github.com/starling-host/starling/eventlog/store"
	"github.com/starling-host/starling/internal/pgtest"
	"github.com/starling-host/starling/internal/zstd"
)

// must returns v, or ends the test.
func must[T any](t testing.TB) func(v T, err error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// runAt is the id of a run that began at a time.
func runAt(namespace string, at time.Time, n int) string {
	return fmt.Sprintf("%s%s%016d", namespace, event.IDPrefix(at), n)
}

var (
	january  = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	february = time.Date(2026, 2, 1, 0, 0, 0, 0, time.UTC)
)

const secret = "the secret of a tenant"

// months returns a server in partitions, with runs of December 2025, one of them encrypted and one that began in the
// last millisecond, of January and of February.
func months(t testing.TB) (*store.Server, string) {
	t.Helper()
	dsn := pgtest.Database(t)
	l := must[*store.Server](t)(store.OpenServer(t.Context(), dsn, store.ServerOptions{AutoMigrate: true}))
	t.Cleanup(func() { l.Close() })
	if _, err := l.MakePartitions(t.Context(), time.Date(2025, 11, 3, 0, 0, 0, 0, time.UTC), 4, false); err != nil {
		t.Fatal(err)
	}
	for i, at := range []time.Time{january.AddDate(0, 0, -9), january.Add(-time.Millisecond), january, february} {
		record(t, l, logtest.Finished(runAt("", at, i), 4)...)
	}
	key := must[store.DataKey](t)(store.NewDataKey([]byte(strings.Repeat("k", store.DataKeySize))))
	acme := must[eventlog.EventLog](t)(store.Encrypted(l, key, "acme"))
	c := logtest.Chain{RunID: runAt("acme/", january.AddDate(0, 0, -5), 7), Clock: 1e18}
	record(t, acme, c.Start(secret), c.Effect(10), c.Complete())
	return l, dsn
}

func record(t testing.TB, l eventlog.EventLog, evs ...event.Event) {
	t.Helper()
	for _, e := range evs {
		if err := l.Append(t.Context(), e.RunID, e); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.Sync(t.Context(), evs[0].RunID); err != nil {
		t.Fatal(err)
	}
}

// verified is what a verification says, also of archives, after the removals were sealed.
func verified(t testing.TB, db eventlog.Database, key *seal.Key, archives ...seal.Archive) seal.Report {
	t.Helper()
	must[seal.Result](t)(seal.Seal(t.Context(), db, key))
	return must[seal.Report](t)(seal.Verify(t.Context(), db, nil, seal.Evidence{Archives: archives}, func(ctx context.Context, ids []string, found func(string, eventlog.Report, error) error) error {
		for _, id := range ids {
			r, err := eventlog.CheckRun(ctx, db, id, eventlog.CheckOptions{Strict: true})
			if err := found(id, r, err); err != nil {
				return err
			}
		}
		return nil
	}))
}

func partitionsOf(t testing.TB, l *store.Server) (names string) {
	t.Helper()
	for _, p := range must[[]store.Partition](t)(l.Partitions(t.Context())) {
		names += strings.TrimPrefix(p.Name, "eventlog_events_") + " "
	}
	return names
}

// TestAMonthIsArchivedAndDropped drops all months until December 2025 of a sealed database. The archive has what
// it had, encrypted as it was, every removal is explained, and the runs come back.
func TestAMonthIsArchivedAndDropped(t *testing.T) {
	t.Parallel()
	l, _ := months(t)
	key := must[*seal.Key](t)(seal.CreateKey(filepath.Join(t.TempDir(), "seal.key"), "example.com/runs"))
	must[seal.Result](t)(seal.Seal(t.Context(), l, key))
	folder := t.TempDir()
	r := store.Retirement{Before: january, Why: "a test", ArchiveTo: folder, DryRun: true}
	if due, err := store.DropPartitions(t.Context(), l, r); err != nil || len(due) != 2 || due[1].Runs != 3 {
		t.Fatalf("a dry run: %+v, %v", due, err)
	}
	r.DryRun = false
	dropped, err := store.DropPartitions(t.Context(), l, r)
	if err != nil || len(dropped) != 2 || dropped[1].Runs != 3 || dropped[1].Events != 8+8+3 {
		t.Fatalf("%+v, %v", dropped, err)
	}
	if left := partitionsOf(t, l); left != "2026_01 2026_02 2026_03 " {
		t.Error(left)
	}
	report := verified(t, l, key)
	if report.Verdict() != "valid" || report.Gone != 3 || report.Present != 2 || len(report.Removals) != 3 || report.Removals[0].Why != "a test" || report.Removals[0].By == "" {
		t.Errorf("%s: %+v", report.Verdict(), report)
	}

	file := dropped[1].Archive
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Fatal(info, err)
	}
	packed := must[[]byte](t)(os.ReadFile(file))
	if text := must[[]byte](t)(zstd.Decompress(packed, 1<<20)); strings.Contains(string(text), secret) || !strings.Contains(string(text), runAt("", january.Add(-time.Millisecond), 1)) {
		t.Error("the archive has the text of a tenant, or not the last run of the month")
	}
	if report := verified(t, l, key, must[seal.Archive](t)(store.ReadArchive(t.Context(), file))); report.Verdict() != "valid" || report.Archived != 3 {
		t.Errorf("with its archive: %+v", report)
	}
	archived := func() *os.File { return must[*os.File](t)(os.Open(file)) }
	fresh := must[*store.File](t)(store.OpenFile(t.Context(), filepath.Join(t.TempDir(), "fresh.db"), store.FileOptions{}))
	defer fresh.Close()
	if got, err := store.ImportArchive(t.Context(), fresh, archived()); err != nil || got.Runs != 3 || got.Encrypted != 1 {
		t.Errorf("%+v, %v", got, err)
	}
	if report := verified(t, fresh, key); report.Verdict() != "valid" || report.Present != 3 {
		t.Errorf("in a fresh database: %+v", report)
	}
	if _, err := store.ImportArchive(t.Context(), l, archived()); err != nil {
		t.Fatal(err)
	}
	if report := verified(t, l, key); report.Verdict() != "valid" || report.Present != 5 {
		t.Errorf("imported again: %+v", report)
	}
}

// TestArchivesAreComparedWithWhatWasSealed gives archives to verifications of a database that sealed the runs "kept",
// "gone" and "lost", and of which the last two were removed.
func TestArchivesAreComparedWithWhatWasSealed(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	open := func(name string, runs ...string) *store.File {
		l := must[*store.File](t)(store.OpenFile(t.Context(), filepath.Join(dir, name), store.FileOptions{}))
		t.Cleanup(func() { l.Close() })
		for _, id := range runs {
			record(t, l, logtest.Finished(id, 4)...)
		}
		return l
	}
	archiveOf := func(l store.Database, runs ...string) seal.Archive {
		t.Helper()
		path := filepath.Join(dir, fmt.Sprint(len(must[[]os.DirEntry](t)(os.ReadDir(dir))), ".ndjson.zst"))
		must[store.ArchiveReport](t)(store.WriteArchiveFile(t.Context(), path, l, eventlog.PruneOptions{RunIDs: runs}))
		return must[seal.Archive](t)(store.ReadArchive(t.Context(), path))
	}
	db := open("sealed.db", "kept", "gone", "lost")
	key := must[*seal.Key](t)(seal.NewKey("example.com/runs"))
	must[seal.Result](t)(seal.Seal(t.Context(), db, key))
	gone, all := archiveOf(db, "gone", "kept"), archiveOf(db)
	must[eventlog.PruneReport](t)(db.PruneRuns(t.Context(), eventlog.PruneOptions{RunIDs: []string{"gone", "lost"}}))

	other := open("other.db", "stranger")
	record(t, other, logtest.Finished("gone", 5)...)
	record(t, other, logtest.Finished("kept", 5)...)
	for name, tc := range map[string]struct {
		archives []seal.Archive
		archived int64
		problems []string // the beginning of each
	}{
		"none":                {nil, 0, nil},
		"one that has one":    {[]seal.Archive{gone}, 1, nil},
		"both, which overlap": {[]seal.Archive{gone, all}, 2, nil},
		"one of an altered run, beside its archive":          {[]seal.Archive{gone, archiveOf(other, "gone")}, 1, []string{"run gone: "}},
		"one of another database, and altered runs":          {[]seal.Archive{archiveOf(other)}, 0, []string{"run gone: ", "run kept: ", "run stranger: "}},
		"one of a run that is there, and differs from there": {[]seal.Archive{archiveOf(other, "kept")}, 0, []string{"run kept: "}},
	} {
		r := verified(t, db, key, tc.archives...)
		if r.Archived != tc.archived || r.Gone != 2 || len(r.Problems) != len(tc.problems) || (r.Verdict() == "valid") != (tc.problems == nil) {
			t.Errorf("%s: %s: %+v", name, r.Verdict(), r)
			continue
		}
		for i, want := range tc.problems {
			if got := r.Problems[i].String(); !strings.HasPrefix(got, want+tc.archives[len(tc.archives)-1].Name+" has it") {
				t.Errorf("%s: %s", name, got)
			}
		}
	}

	// What comes back and is removed again has two leaves, of one run.
	f := must[*os.File](t)(os.Open(gone.Name))
	defer f.Close()
	must[store.ArchiveReport](t)(store.ImportArchive(t.Context(), db, f))
	if r := verified(t, db, key, gone); r.Verdict() != "valid" || r.Gone != 2 || r.Archived != 1 {
		t.Errorf("a run that is back: %+v", r)
	}
	must[eventlog.PruneReport](t)(db.PruneRuns(t.Context(), eventlog.PruneOptions{RunIDs: []string{"gone"}}))
	if r := verified(t, db, key, gone); r.Verdict() != "valid" || r.Gone != 3 || r.Archived != 2 {
		t.Errorf("a run that was removed again: %+v", r)
	}

	packed := must[[]byte](t)(os.ReadFile(gone.Name))
	cut := filepath.Join(dir, "cut.ndjson.zst")
	if err := os.WriteFile(cut, packed[:len(packed)/2], 0o600); err != nil {
		t.Fatal(err)
	}
	if a, err := store.ReadArchive(t.Context(), cut); !errors.Is(err, eventlog.ErrLogCorrupt) || len(a.Last) > 0 {
		t.Errorf("half an archive: %v, %v", a, err)
	}
}

// TestAMonthWithAnOpenRunStays drops the months around it, and names the run.
func TestAMonthWithAnOpenRunStays(t *testing.T) {
	t.Parallel()
	l, _ := months(t)
	open := runAt("", january.AddDate(0, 0, -2), 5)
	record(t, l, logtest.Finished(open, 4)[:3]...)
	folder := t.TempDir()
	dropped, err := store.DropPartitions(t.Context(), l, store.Retirement{Before: february, ArchiveTo: folder})
	if err == nil || !strings.Contains(err.Error(), "eventlog_events_2025_12 stays") || !strings.Contains(err.Error(), open) {
		t.Errorf("%v", err)
	}
	if len(dropped) != 2 || partitionsOf(t, l) != "2025_12 2026_02 2026_03 " {
		t.Errorf("%+v, left %s", dropped, partitionsOf(t, l))
	}
	if files := must[[]os.DirEntry](t)(os.ReadDir(folder)); len(files) != 1 {
		t.Errorf("an archive of a month that stays, or has no runs: %v", files)
	}
}

// TestAMonthWithoutItsArchiveStays breaks the archive of a month between its writing and the drop.
func TestAMonthWithoutItsArchiveStays(t *testing.T) {
	t.Parallel()
	l, _ := months(t)
	december := store.Retirement{Before: january, ArchiveTo: t.TempDir()}
	file := filepath.Join(december.ArchiveTo, "eventlog_events_2025_12.ndjson.zst")
	write := func() []byte {
		t.Helper()
		os.Remove(file)
		if _, err := store.WriteArchiveFile(t.Context(), file, l, eventlog.PruneOptions{ToULID: event.IDPrefix(january)}); err != nil {
			t.Fatal(err)
		}
		return must[[]byte](t)(os.ReadFile(file))
	}
	refused := func(what, want string) {
		t.Helper()
		if _, err := store.DropPartitions(t.Context(), l, december); err == nil || !strings.Contains(err.Error(), "eventlog_events_2025_12 stays") || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", what, err)
		}
		if !strings.Contains(partitionsOf(t, l), "2025_12") {
			t.Fatal(what + ": it was dropped")
		}
	}
	good := write()
	for i, bad := range [][]byte{good[:len(good)-3], slices.Concat(good[:len(good)/2], []byte{good[len(good)/2] ^ 1}, good[len(good)/2+1:]), nil, []byte("\x28\xb5\x2f\xfd")} {
		if err := os.WriteFile(file, bad, 0o600); err != nil {
			t.Fatal(err)
		}
		refused(fmt.Sprint("broken in way ", i), "archive: line")
	}
	write()
	later := runAt("", january.AddDate(0, 0, -1), 6)
	record(t, l, logtest.Finished(later, 4)...)
	refused("an archive that lacks a run", later)
	december.ArchiveTo = filepath.Join(december.ArchiveTo, "absent")
	refused("without the folder", "absent")
}

// TestDroppingIsKilled kills a process that archives and drops December after longer and longer times, until it
// gets to the end. At each moment the partition has all of its runs, or the archive has them.
func TestDroppingIsKilled(t *testing.T) {
	if dsn := os.Getenv("STARLING_TEST_DROP"); dsn != "" {
		l := must[*store.Server](t)(store.OpenServer(t.Context(), dsn, store.ServerOptions{}))
		if _, err := store.DropPartitions(t.Context(), l, store.Retirement{Before: january, ArchiveTo: os.Getenv("STARLING_TEST_FOLDER")}); err != nil {
			t.Fatal(err)
		}
		l.Close()
		return
	}
	t.Parallel()
	l, dsn := months(t)
	for i := range 300 {
		record(t, l, logtest.Finished(runAt("many/", january.AddDate(0, 0, -3), i), 20)...)
	}
	folder := t.TempDir()
	file := filepath.Join(folder, "eventlog_events_2025_12.ndjson.zst")
	killed := 0
	for after := time.Duration(0); strings.Contains(partitionsOf(t, l), "2025_12"); after += 15 * time.Millisecond {
		child := exec.Command(os.Args[0], "-test.run=^TestDroppingIsKilled$")
		child.Env = append(os.Environ(), "STARLING_TEST_DROP="+dsn, "STARLING_TEST_FOLDER="+folder)
		if err := child.Start(); err != nil {
			t.Fatal(err)
		}
		timer := time.AfterFunc(after, func() { child.Process.Kill() })
		if child.Wait() != nil {
			killed++
		}
		timer.Stop()
		for _, p := range must[[]store.Partition](t)(l.Partitions(t.Context())) {
			if extent, err := l.Extent(t.Context(), p); p.Name == "eventlog_events_2025_12" && (err != nil || extent.Runs != 303) {
				t.Fatalf("killed after %v: %+v, %v", after, extent, err)
			}
		}
		if f, err := os.Open(file); err == nil {
			if report, err := store.CheckArchive(t.Context(), f); err != nil || report.Runs != 303 {
				t.Fatalf("killed after %v: %+v, %v", after, report, err)
			}
			f.Close()
		} else if !strings.Contains(partitionsOf(t, l), "2025_12") {
			t.Fatalf("killed after %v: dropped without an archive: %v", after, err)
		}
	}
	if killed < 3 {
		t.Errorf("only %d processes were killed", killed)
	}
	if _, err := l.ListRuns(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestAMonthWithoutRunsHasNoArchive: another host may have dropped it a moment ago, and has its archive.
func TestAMonthWithoutRunsHasNoArchive(t *testing.T) {
	t.Parallel()
	l, _ := months(t)
	if _, err := l.PruneRuns(t.Context(), eventlog.PruneOptions{Before: february, IncludeOpen: true}); err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	dropped, err := store.DropPartitions(t.Context(), l, store.Retirement{Before: february, ArchiveTo: folder})
	if left := partitionsOf(t, l); err != nil || len(dropped) != 3 || left != "2026_02 2026_03 " {
		t.Errorf("%+v, %v, left %s", dropped, err, left)
	}
	if files := must[[]os.DirEntry](t)(os.ReadDir(folder)); len(files) > 0 {
		t.Errorf("%v", files)
	}
}

// TestHostsDropAtTheSameTime has three hosts drop the same months, two of them into one folder. Each archive that is left
// has all runs of its month.
func TestHostsDropAtTheSameTime(t *testing.T) {
	t.Parallel()
	for range 5 {
		l, dsn := months(t)
		shared := t.TempDir()
		folders := []string{shared, shared, t.TempDir()}
		ends := make(chan error, len(folders))
		for _, folder := range folders {
			host := must[*store.Server](t)(store.OpenServer(t.Context(), dsn, store.ServerOptions{}))
			defer host.Close()
			go func() {
				_, err := store.DropPartitions(t.Context(), host, store.Retirement{Before: february, ArchiveTo: folder})
				ends <- err
			}()
		}
		for range folders {
			if err := <-ends; err != nil {
				t.Error(err)
			}
		}
		if left := partitionsOf(t, l); left != "2026_02 2026_03 " {
			t.Error(left)
		}
		of := map[string]int{}
		for _, folder := range folders[1:] {
			for name, runs := range map[string]int{"2025_12": 3, "2026_01": 1} {
				f, err := os.Open(filepath.Join(folder, "eventlog_events_"+name+".ndjson.zst"))
				if errors.Is(err, fs.ErrNotExist) {
					continue
				}
				of[name]++
				if report, err := store.CheckArchive(t.Context(), f); err != nil || report.Runs != runs {
					t.Errorf("%s: %+v, %v", name, report, err)
				}
				f.Close()
			}
		}
		if of["2025_12"] == 0 || of["2026_01"] == 0 {
			t.Errorf("archives: %v", of)
		}
	}
}

// TestOldRunsAreArchivedAndPruned prunes a file by age. What the archive does not have stays.
func TestOldRunsAreArchivedAndPruned(t *testing.T) {
	t.Parallel()
	l := must[*store.File](t)(store.OpenFile(t.Context(), filepath.Join(t.TempDir(), "log.db"), store.FileOptions{}))
	defer l.Close()
	for i := range 3 {
		record(t, l, logtest.Finished(fmt.Sprint("run-", i), 2)...)
	}
	record(t, l, logtest.Finished("open", 2)[:2]...)
	r := store.Retirement{Before: time.Now(), Why: "a test", ArchiveTo: filepath.Join(t.TempDir(), "absent")}
	if report, err := store.PruneOld(t.Context(), l, r); err == nil || report.Runs != 0 {
		t.Errorf("without the folder: %+v, %v", report, err)
	}
	r.ArchiveTo = t.TempDir()
	if report, err := store.PruneOld(t.Context(), l, r); err != nil || report.Runs != 3 || report.Events != 18 {
		t.Errorf("%+v, %v", report, err)
	}
	if report, err := store.PruneOld(t.Context(), l, r); err != nil || report.Runs != 0 {
		t.Errorf("again: %+v, %v", report, err)
	}
	files := must[[]string](t)(filepath.Glob(filepath.Join(r.ArchiveTo, "*")))
	if len(files) != 1 || !strings.HasSuffix(files[0], ".ndjson.zst") {
		t.Fatal(files)
	}
	f := must[*os.File](t)(os.Open(files[0]))
	defer f.Close()
	if report, err := store.ImportArchive(t.Context(), l, f); err != nil || report.Runs != 3 || report.Known != 0 {
		t.Errorf("%+v, %v", report, err)
	}
}
