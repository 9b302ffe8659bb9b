package cachefile

import (
	"os"
	"path/filepath"
	"testing"
)

func TestCacheFileIntegrity(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "file")
	if _, ok := Read(path, 100); ok {
		t.Error("a file that is not there is read")
	}
	for _, content := range []string{"", "content", "other content"} {
		if err := Write(path, "new-", []byte(content)); err != nil {
			t.Fatal(err)
		}
		if got, ok := Read(path, int64(len(content))); !ok || string(got) != content {
			t.Errorf("got %q, %v, want %q", got, ok, content)
		}
	}
	if _, ok := Read(path, 12); ok {
		t.Error("more is read than was asked for")
	}
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for n := range whole {
		altered := append([]byte{}, whole...)
		altered[n] ^= 1
		for _, file := range [][]byte{whole[:n], altered} {
			if err := os.WriteFile(path, file, 0o600); err != nil {
				t.Fatal(err)
			}
			if got, ok := Read(path, 100); ok {
				t.Errorf("%q is read of a damaged file", got)
			}
		}
	}
	if _, ok := Read(dir, 1<<20); ok {
		t.Error("a folder is read")
	}
}

func TestAFileThatCannotBeWrittenLeavesNothing(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "in the way")
	if err := os.MkdirAll(filepath.Join(path, "a"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := Write(path, "new-", []byte("content")); err == nil {
		t.Error("a file took the place of a folder")
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 1 {
		t.Errorf("left %v, %v", left, err)
	}
}
