package disk

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// TestRoom asks about a folder, a file, and a path that does not exist yet: all are on one
// disk.
func TestRoom(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	want, err := Of(dir)
	if errors.Is(err, errors.ErrUnsupported) {
		t.Skip("SKIPPED: the system does not say how much room a disk has")
	}
	if err != nil || want.Free <= 0 || want.Total < want.Free {
		t.Fatalf("%+v, %v", want, err)
	}
	for _, path := range []string{file, filepath.Join(dir, "not", "there", "yet")} {
		if got, err := Of(path); err != nil || got.Total != want.Total {
			t.Errorf("%s: %+v, %v, want %+v", path, got, err, want)
		}
	}
}
