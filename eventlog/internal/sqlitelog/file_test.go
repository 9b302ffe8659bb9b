package sqlitelog

import (
	"database/sql/driver"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/starling-host/starling/eventlog"
	"github.com/starling-host/starling/eventlog/event"
	"github.com/starling-host/starling/eventlog/logtest"
)

func TestFilesAreTheOwnersAlone(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" {
		t.Skip("SKIPPED: Windows keeps no such modes")
	}
	l := open(t)
	storeAll(t, l, logtest.Finished("run-1", 1))
	for _, suffix := range []string{"", "-wal", "-shm", ".lock", ".turn"} {
		info, err := os.Stat(l.path + suffix)
		if err != nil {
			t.Error(err)
			continue
		}
		if info.Mode().Perm() != 0o600 {
			t.Errorf("%q has mode %v", suffix, info.Mode())
		}
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(l.path + "-wal"); !os.IsNotExist(err) {
		t.Errorf("after Close, the WAL is still there: %v", err)
	}
}

// An empty file becomes a log that only its owner reads; an existing log keeps its mode.
func TestAnEmptyFileBecomesTheOwnersAlone(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" {
		t.Skip("SKIPPED: Windows keeps no such modes")
	}
	path := filepath.Join(t.TempDir(), "log.db")
	if err := os.WriteFile(path, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, want := range []os.FileMode{0o600, 0o640} {
		l, err := Open(t.Context(), path, Options{})
		if err != nil {
			t.Fatal(err)
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != want {
			t.Errorf("mode %v, %v, want %v", info.Mode(), err, want)
		}
		if err := os.Chmod(path, 0o640); err != nil {
			t.Fatal(err)
		}
	}
}

func TestPragmas(t *testing.T) {
	t.Parallel()
	l := open(t)
	storeAll(t, l, logtest.Finished("run-1", 1))
	r, err := l.readers.open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	check := func(c *conn, pragma string, want any) {
		var got any
		err := c.query(t.Context(), "PRAGMA "+pragma, nil, func(row []driver.Value) error {
			got = row[0]
			return nil
		})
		if err != nil || got != want {
			t.Errorf("%s is %v, want %v (%v)", pragma, got, want, err)
		}
	}
	check(r, "page_size", int64(16384))
	check(r, "journal_mode", "wal")
	check(r, "auto_vacuum", int64(2))
	check(r, "application_id", int64(applicationID))
	check(r, "user_version", int64(layoutVersion))
	check(r, "query_only", int64(1))
	check(r, "trusted_schema", int64(0))
	check(r, "cell_size_check", int64(1))
	check(r, "mmap_size", int64(0))
	// In a transaction the writer lends its connection.
	if err := l.inTransaction(t.Context(), func(*tx) error {
		check(l.writer.conn, "synchronous", int64(2))
		check(l.writer.conn, "trusted_schema", int64(0))
		check(l.writer.conn, "wal_autocheckpoint", int64(0))
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if err := r.exec(t.Context(), "DELETE FROM run"); err == nil {
		t.Error("a reader could write")
	}
}

// A reader of an archive may be unable to create the files that SQLite uses to
// coordinate readers and writers.
func TestFileInADirectoryThatCannotBeWritten(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" {
		t.Skip("SKIPPED: a directory has no mode that forbids writing here")
	}
	l := open(t)
	storeAll(t, l, logtest.Finished("run-1", 1))
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	data, _ := os.ReadFile(l.path)
	if err := os.WriteFile(dir+"/log.db", data, 0o444); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o555); err != nil {
		t.Fatal(err)
	}
	defer os.Chmod(dir, 0o700)
	asNobody(t, dir)
	if f, err := os.Create(dir + "/other"); err == nil {
		f.Close()
		t.Fatal("the directory can be written")
	}
	ro := openAt(t, dir+"/log.db", Options{ReadOnly: true})
	if _, err := eventlog.CheckRun(t.Context(), ro, "run-1", eventlog.CheckOptions{Strict: true}); err != nil {
		t.Error(err)
	}
}

// Without its WAL a log is not whole, so it is not read at all where the WAL cannot be.
func TestAWALInADirectoryThatCannotBeWritten(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" {
		t.Skip("SKIPPED: a directory has no mode that forbids writing here")
	}
	l := open(t)
	storeAll(t, l, logtest.Finished("run-1", 1))
	dir := t.TempDir()
	for _, suffix := range []string{"", "-wal"} {
		data, err := os.ReadFile(l.path + suffix)
		if err := errors.Join(err, os.WriteFile(dir+"/log.db"+suffix, data, 0o444)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(dir, 0o555); err != nil {
		t.Fatal(err)
	}
	defer os.Chmod(dir, 0o700)
	asNobody(t, dir)
	if _, err := Open(t.Context(), dir+"/log.db", Options{ReadOnly: true}); !errors.Is(err, ErrWALNotReadable) {
		t.Errorf("it was opened: %v", err)
	}
}

// A database whose tables were dropped has pages of the size that they had. It is
// refused each time, and not a log with other pages the second time.
func TestADatabaseWithoutTables(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "log.db")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := connect(t.Context(), path, "mode=rw")
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(c.execAll(t.Context(), []string{"CREATE TABLE t (a)", "DROP TABLE t"}), c.Close()); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if l, err := Open(t.Context(), path, Options{}); err == nil {
			l.Close()
			t.Error("it became a log")
		}
	}
}

// Locks owned by another user would keep the owner of a file from writing to it.
func TestNothingIsPutBesideWhatCannotBeWritten(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" {
		t.Skip("SKIPPED: Windows keeps no such modes")
	}
	l := open(t)
	storeAll(t, l, logtest.Finished("run-1", 1))
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	data, _ := os.ReadFile(l.path)
	for name, put := range map[string]func(path string) error{
		"a file of somebody else": func(path string) error { return os.WriteFile(path, data, 0o444) },
		"a folder":                func(path string) error { return os.Mkdir(path, 0o777) },
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if err := errors.Join(put(dir+"/log.db"), os.Chmod(dir, 0o777)); err != nil {
				t.Fatal(err)
			}
			asNobody(t, dir)
			if _, err := Open(t.Context(), dir+"/log.db", Options{}); err == nil {
				t.Error("it was opened")
			}
			if left, err := os.ReadDir(dir); err != nil || len(left) != 1 {
				t.Errorf("beside it: %v, %v", left, err)
			}
		})
	}
}

// No run may begin on a log whose file was removed or replaced: what is appended
// goes to a file that no process finds.
func TestAFileThatIsNoLongerThere(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" {
		t.Skip("SKIPPED: Windows lets nobody take a file that is open")
	}
	l := open(t)
	if err := eventlog.Preflight(t.Context(), l); err != nil {
		t.Fatal(err)
	}
	aside := l.path + ".aside"
	if err := os.Rename(l.path, aside); err != nil {
		t.Fatal(err)
	}
	if err := eventlog.Preflight(t.Context(), l); !os.IsNotExist(errors.Unwrap(err)) {
		t.Errorf("without the file: %v", err)
	}
	if err := os.WriteFile(l.path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := eventlog.Preflight(t.Context(), l); err == nil || !strings.Contains(err.Error(), "another file is there") {
		t.Errorf("with another file: %v", err)
	}
	if err := os.Rename(aside, l.path); err != nil {
		t.Fatal(err)
	}
	if err := eventlog.Preflight(t.Context(), l); err != nil {
		t.Errorf("with the file back: %v", err)
	}
}

// Nothing is acknowledged that is stored in a removed or replaced file.
func TestNothingIsAcknowledgedInAFileThatIsNoLongerThere(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" {
		t.Skip("SKIPPED: Windows lets nobody take a file that is open")
	}
	for name, take := range map[string]func(path string) error{
		"removed":  os.Remove,
		"moved":    func(path string) error { return os.Rename(path, path+".aside") },
		"replaced": func(path string) error { return errors.Join(os.Remove(path), os.WriteFile(path, nil, 0o600)) },
	} {
		t.Run(name, func(t *testing.T) {
			l := open(t)
			storeAll(t, l, logtest.Finished("before", 1))
			if err := take(l.path); err != nil {
				t.Fatal(err)
			}
			for range 2 { // the log has stopped
				err := l.Transact(t.Context(), func(tx eventlog.Tx) error { return nil })
				if !errors.Is(err, eventlog.ErrLogStopped) {
					t.Errorf("acknowledged: %v", err)
				}
			}
		})
	}
}

// TestALogThatStoppedStartsAgainWithItsFile takes the file of a log away and puts it back. The
// run that lost an event is unchanged, and only another process may continue it.
func TestALogThatStoppedStartsAgainWithItsFile(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" {
		t.Skip("SKIPPED: Windows lets nobody take a file that is open")
	}
	l, c := open(t), logtest.Chain{RunID: "run"}
	storeAll(t, l, []event.Event{c.Start("g")})
	for range 2 {
		if err := os.Rename(l.path, l.path+".aside"); err != nil {
			t.Fatal(err)
		}
		err := l.Transact(t.Context(), func(eventlog.Tx) error { return nil })
		if !errors.Is(err, eventlog.ErrLogStopped) {
			t.Fatalf("without the file: %v", err)
		}
		if err := os.Rename(l.path+".aside", l.path); err != nil {
			t.Fatal(err)
		}
		untilItGoesOn(t, l)
		storeAll(t, l, logtest.Finished(event.NewID(), 3))
	}
	storeAll(t, l, []event.Event{c.Complete()})
	runs, err := l.ListRuns(t.Context())
	if err != nil || len(runs) != 3 {
		t.Errorf("%d runs, %v", len(runs), err)
	}
	for _, r := range runs {
		if _, err := eventlog.CheckRun(t.Context(), l, r.RunID, eventlog.CheckOptions{Strict: true}); err != nil {
			t.Error(err)
		}
	}
	l.runs.Stop(damaged(fmt.Errorf("checkpoint: %w: I/O error", errSync)), nil)
	err = l.Transact(t.Context(), func(eventlog.Tx) error { return nil })
	if !errors.Is(err, eventlog.ErrLogLost) {
		t.Errorf("after a failed sync: %v", err)
	}
}

// untilItGoesOn waits for a log that looks now and then whether it can be written to.
func untilItGoesOn(t *testing.T, l *Log) {
	t.Helper()
	for end := time.Now().Add(time.Minute); l.Transact(t.Context(), func(eventlog.Tx) error { return nil }) != nil; time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the log does not start again")
		}
	}
}

func TestALinkInThePlaceOfALockIsNotFollowed(t *testing.T) {
	t.Parallel()
	for _, lock := range []string{".lock", ".turn"} {
		dir, elsewhere := t.TempDir(), filepath.Join(t.TempDir(), "made")
		path := filepath.Join(dir, "log.db")
		if err := os.Symlink(elsewhere, path+lock); err != nil {
			t.Skip(err)
		}
		if l, err := Open(t.Context(), path, Options{}); err == nil {
			l.Close()
			t.Errorf("%s: opened", lock)
		}
		if _, err := os.Lstat(elsewhere); err == nil {
			t.Errorf("%s: a file was made where the link leads", lock)
		}
	}
}
