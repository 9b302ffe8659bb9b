package sqlitelog

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/eventlog/logtest"
	"modernc.org/sqlite"
)

// TestBackupOfALogThatIsWritten copies while eight runs at once are written. The
// copy has all that was durable before, and no torn run.
func TestBackupOfALogThatIsWritten(t *testing.T) {
	t.Parallel()
	l := open(t)
	storeAll(t, l, logtest.Finished("before", 10))
	var writers sync.WaitGroup
	stop := make(chan struct{})
	for g := range 8 {
		writers.Go(func() {
			for n := range 1000 {
				storeAll(t, l, logtest.Finished(fmt.Sprintf("run-%d-%d", g, n), 10))
				select {
				case <-stop:
					return
				default:
				}
			}
		})
	}
	dir := t.TempDir()
	for i := range 3 {
		dst := filepath.Join(dir, fmt.Sprintf("copy %d?mode=memory.db", i))
		report, err := Backup(t.Context(), l.path, dst)
		if err != nil || report.Runs == 0 || report.Bytes == 0 {
			t.Errorf("%+v, %v", report, err)
		}
		if info, err := os.Stat(dst); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%v, %v", info, err)
		}
		copied := openAt(t, dst, Options{})
		if runs, events := readAllOpen(t, copied); len(runs) != report.Runs || events["before"] == nil {
			t.Errorf("%d runs, the report says %d", len(runs), report.Runs)
		}
		storeAll(t, copied, logtest.Finished("after", 1)) // it is a log like any other
	}
	close(stop)
	writers.Wait()
	left, _ := filepath.Glob(filepath.Join(dir, "*.part"))
	if len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestBackupNeverOverwrites(t *testing.T) {
	t.Parallel()
	l := open(t)
	storeAll(t, l, logtest.Finished("run-1", 1))
	dst := filepath.Join(t.TempDir(), "copy.db")
	if err := os.WriteFile(dst, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, to := range []string{dst, l.path} {
		before, _ := os.ReadFile(to)
		if _, err := Backup(t.Context(), l.path, to); !errors.Is(err, fs.ErrExist) {
			t.Errorf("Backup: %v", err)
		}
		if err := ForkSQLite(t.Context(), l.path, to, "run-1", 2); !errors.Is(err, fs.ErrExist) {
			t.Errorf("ForkSQLite: %v", err)
		}
		if after, _ := os.ReadFile(to); !bytes.Equal(before, after) {
			t.Errorf("%s was changed", to)
		}
	}
	missing := filepath.Join(t.TempDir(), "missing.db")
	if _, err := Backup(t.Context(), missing, missing+".copy"); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	for _, path := range []string{missing, missing + ".copy"} {
		if _, err := os.Stat(path); err == nil {
			t.Errorf("%s was created", path)
		}
	}
}

// TestBackupThatIsCutShort ends with its context and leaves nothing.
func TestBackupThatIsCutShort(t *testing.T) {
	t.Parallel()
	l := open(t)
	storeAll(t, l, logtest.Finished("run-1", 1))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	dir := t.TempDir()
	if _, err := Backup(ctx, l.path, filepath.Join(dir, "copy.db")); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if left, _ := os.ReadDir(dir); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestBackupSaysThatARunIsNotValid(t *testing.T) {
	t.Parallel()
	l := open(t)
	storeAll(t, l, logtest.Finished("run-1", 1))
	newVandal(t, l).exec("UPDATE eventlog_events SET ts = ts + 1 WHERE seq = 2")
	dst := filepath.Join(t.TempDir(), "copy.db")
	if _, err := Backup(t.Context(), l.path, dst); !errors.Is(err, eventlog.ErrLogCorrupt) {
		t.Error(err)
	}
	if _, err := os.Stat(dst); err != nil {
		t.Error("the copy is gone")
	}
}

// TestBackupsAreStrict copies logs with runs that only the strict rules refuse.
func TestBackupsAreStrict(t *testing.T) {
	t.Parallel()
	for name, events := range logtest.Lenient("run-1") {
		if !events[1].Kind.Valid() {
			continue // no log takes it
		}
		l := open(t)
		storeAll(t, l, events)
		if _, err := Backup(t.Context(), l.path, filepath.Join(t.TempDir(), "copy.db")); !errors.Is(err, eventlog.ErrLogCorrupt) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestFork forks a run in a log where another one stays, at every number.
func TestFork(t *testing.T) {
	t.Parallel()
	l := open(t)
	evs, other := agentRun("acme/run"), logtest.Finished("other", 2)
	storeAll(t, l, evs)
	storeAll(t, l, other)
	n := uint64(len(evs))
	if err := l.Transact(t.Context(), func(tx eventlog.Tx) error { _, err := tx.Fence("acme/run"); return err }); err != nil {
		t.Fatal(err)
	}
	for before := range n + 3 {
		want := min(before-1, n) // of 0 all, by the wrap
		dst := filepath.Join(t.TempDir(), "fork.db")
		if err := ForkSQLite(t.Context(), l.path, dst, "acme/run", before); err != nil {
			t.Fatal(err)
		}
		f := openAt(t, dst, Options{})
		got, err := f.Read(t.Context(), "acme/run")
		if want == 0 {
			if !errors.Is(err, eventlog.ErrRunNotFound) {
				t.Errorf("before %d: %v", before, err)
			}
			storeAll(t, f, evs)
			continue
		}
		if diff := cmp.Diff(evs[:want], got); err != nil || diff != "" {
			t.Errorf("before %d: %v\n%s", before, err, diff)
		}
		readAllOpen(t, f) // strictly, with the row of each run
		if diff := cmp.Diff(other, readEvents(t, f, "other"), cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("before %d: the other run: %s", before, diff)
		}
		storeAll(t, f, evs[want:]) // no epoch: the run was never fenced
	}
	if got := readEvents(t, l, "acme/run"); uint64(len(got)) != n {
		t.Errorf("the original has %d events", len(got))
	}
	dst := filepath.Join(t.TempDir(), "fork.db")
	if err := ForkSQLite(t.Context(), l.path, dst, "nobody", 2); !errors.Is(err, eventlog.ErrRunNotFound) {
		t.Error(err)
	}
	if _, err := os.Stat(dst); err == nil {
		t.Error("a fork of nothing was made")
	}
}

func TestForkOfAFileOfTheSeedRuntime(t *testing.T) {
	t.Parallel()
	path := starlingFile(t)
	runs, events := readAll(t, openAt(t, path, Options{ReadOnly: true}))
	id := runs[0].RunID
	dst := filepath.Join(t.TempDir(), "fork.db")
	if err := ForkSQLite(t.Context(), path, dst, id, 3); err != nil {
		t.Fatal(err)
	}
	f := openAt(t, dst, Options{ReadOnly: true})
	if diff := cmp.Diff(events[id][:2], readEvents(t, f, id)); diff != "" {
		t.Error(diff)
	}
	if all, err := f.ListRuns(t.Context()); err != nil || len(all) != len(runs) {
		t.Errorf("%d runs, %v", len(all), err)
	}
}

func readEvents(t testing.TB, l *Log, runID string) []event.Event {
	t.Helper()
	evs, err := l.Read(t.Context(), runID)
	if err != nil {
		t.Error(err)
	}
	return evs
}

// TestCompact removes most of a log, and gives the room back while another run is
// being written.
func TestCompact(t *testing.T) {
	t.Parallel()
	l := open(t)
	for i := range 50 {
		c := logtest.Chain{RunID: fmt.Sprint("run-", i), Clock: int64(i)}
		evs := []event.Event{c.Start("g")}
		for range 40 {
			evs = append(evs, c.Effect(10_000))
		}
		storeAll(t, l, append(evs, c.Complete()))
	}
	before := fileSize(t, l)
	report, err := l.PruneRuns(t.Context(), eventlog.PruneOptions{Limit: 45})
	if err != nil || report.Runs != 45 {
		t.Fatal(report, err)
	}
	var writer sync.WaitGroup
	writer.Go(func() { storeAll(t, l, logtest.Finished("meanwhile", 100)) })
	freed, err := Compact(t.Context(), l)
	if err != nil || freed < before/2 {
		t.Errorf("%d of %d bytes are free, %v", freed, before, err)
	}
	writer.Wait()
	if again, err := Compact(t.Context(), l); err != nil || again != 0 {
		t.Errorf("once more: %d bytes, %v", again, err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	after := fileSize(t, l)
	if after > before/4 {
		t.Errorf("%d bytes, of which %d are left", before, after)
	}
	t.Logf("%d bytes before, %d after, %d given back", before, after, freed)
	readAll(t, openAt(t, l.path, Options{ReadOnly: true}))
}

// fileSize returns the size of the database with all of the WAL in it.
func fileSize(t testing.TB, l *Log) int64 {
	t.Helper()
	v, err := connect(t.Context(), l.path, "mode=rw")
	if err != nil {
		t.Fatal(err)
	}
	defer v.Close()
	for w := (wal{kept: true}); w.kept; { // while the checkpointer is at work
		if w, err = walOf(v, "PRAGMA wal_checkpoint(TRUNCATE)"); err != nil {
			t.Fatal(err)
		}
	}
	info, err := os.Stat(l.path)
	if err != nil {
		t.Fatal(err)
	}
	return info.Size()
}

// TestABackupBesideAForeignWALIsNotMixedWithIt copies a backup over the file of a log whose
// process died, so that its WAL stays. Without the check, SQLite takes pages of both.
func TestABackupBesideAForeignWALIsNotMixedWithIt(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path, backup, died := filepath.Join(dir, "log.db"), filepath.Join(dir, "backup.db"), filepath.Join(dir, "died.db")
	l := openAt(t, path, Options{})
	storeAll(t, l, logtest.Finished("before", 100))
	if _, err := Backup(t.Context(), path, backup); err != nil {
		t.Fatal(err)
	}
	for i := range 20 {
		storeAll(t, l, logtest.Finished(fmt.Sprintf("run-%d", i), 100))
	}
	for from, to := range map[string]string{backup: died, path + "-wal": died + "-wal"} { // as kill -9 and cp leave them
		content, err := os.ReadFile(from)
		if err == nil {
			err = os.WriteFile(to, content, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, o := range []Options{{}, {ReadOnly: true}} {
		if l, err := Open(t.Context(), died, o); !errors.Is(err, ErrForeignWAL) {
			l.Close()
			t.Errorf("%+v: %v", o, err)
		}
	}
	if sqlite.OFDLockingEnabled() { // without, a process does not see its own locks
		if _, _, err := Restore(t.Context(), backup, path); err == nil || !strings.Contains(err.Error(), "has "+path+" open") {
			t.Errorf("over a log that is open: %v", err)
		}
	}
	storeAll(t, l, logtest.Finished("after", 1))
	report, replaced, err := Restore(t.Context(), backup, died)
	if err != nil || report.Runs != 1 || replaced != died+".replaced" {
		t.Errorf("%+v, %s, %v", report, replaced, err)
	}
	again := openAt(t, died, Options{})
	storeAll(t, again, logtest.Finished("next", 1))
	if runs, err := again.ListRuns(t.Context()); err != nil || len(runs) != 2 {
		t.Errorf("%d runs, %v", len(runs), err)
	}
}
