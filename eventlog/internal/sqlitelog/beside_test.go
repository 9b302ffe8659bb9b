package sqlitelog

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/starling-host/starling/eventlog/logtest"
)

// A log may lie in a folder that another user has packed. Neither the files opened beside
// the log, nor a log that is created, follow a link to a file elsewhere.
func TestNoLinkBesideALogIsFollowed(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" {
		t.Skip("SKIPPED: links take a privilege to make")
	}
	for _, link := range []string{"", ".lock", ".turn", ".spare", ".spare.part", "-wal", "-shm", "-journal", ".copy", ".copy.part", ".copy-journal"} {
		for name, content := range map[string]*string{"missing": nil, "empty": new(""), "full": new("of somebody else")} {
			t.Run(strings.Join([]string{name, link}, " "), func(t *testing.T) {
				dir, elsewhere := t.TempDir(), filepath.Join(t.TempDir(), "victim")
				path := filepath.Join(dir, "log.db")
				if content != nil {
					if err := os.WriteFile(elsewhere, []byte(*content), 0o600); err != nil {
						t.Fatal(err)
					}
				}
				if link != "" {
					l := openAt(t, path, Options{})
					storeAll(t, l, logtest.Finished("r", 1))
					if err := l.Close(); err != nil {
						t.Fatal(err)
					}
					_ = os.Remove(path + link)
				}
				if err := os.Symlink(elsewhere, path+link); err != nil {
					t.Fatal(err)
				}
				// Each may fail or not.
				if l, err := Open(t.Context(), path, Options{}); err == nil {
					for _, ev := range logtest.Finished("s", 1) {
						_ = l.Append(t.Context(), "s", ev)
					}
					_ = l.Sync(t.Context(), "s")
					_ = l.Close()
				}
				_ = SetAside(path)
				_, _ = Backup(t.Context(), path, path+".copy")
				_ = ForkSQLite(t.Context(), path, path+".copy", "r", 2)
				_, _ = GiveUp(path)

				got, err := os.ReadFile(elsewhere)
				if content == nil && err == nil || content != nil && (err != nil || string(got) != *content) {
					t.Errorf("the file behind the link has become %d bytes, %v", len(got), err)
				}
			})
		}
	}
}

// TestReadingLeavesNothingBehind reads a log in every way that only reads.
func TestReadingLeavesNothingBehind(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "log.db")
	l := openAt(t, path, Options{})
	storeAll(t, l, logtest.Finished("r", 1))
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	before, _ := os.ReadFile(path)
	first := openAt(t, path, Options{ReadOnly: true})
	second := openAt(t, path, Options{ReadOnly: true})
	for _, l := range []*Log{first, second} {
		if _, err := l.Read(t.Context(), "r"); err != nil {
			t.Error(err)
		}
	}
	if err := first.Close(); err != nil {
		t.Error(err)
	}
	if runs, err := second.ListRuns(t.Context()); err != nil || len(runs) != 1 {
		t.Errorf("when the other reader has gone: %v, %v", runs, err)
	}
	if err := second.Close(); err != nil {
		t.Error(err)
	}
	if left, _ := filepath.Glob(path + "-*"); len(left) > 0 {
		t.Errorf("reading left %q", left)
	}
	if after, _ := os.ReadFile(path); string(after) != string(before) {
		t.Error("reading changed the file")
	}

	// The writer's open files stay, and so does what it has not yet moved into the database.
	writer := openAt(t, path, Options{})
	storeAll(t, writer, logtest.Finished("s", 1))
	reader := openAt(t, path, Options{ReadOnly: true})
	if err := reader.Close(); err != nil {
		t.Error(err)
	}
	storeAll(t, writer, logtest.Finished("u", 1))
	if runs, err := writer.ListRuns(t.Context()); err != nil || len(runs) != 3 {
		t.Errorf("the writer has %d runs, %v", len(runs), err)
	}
}
