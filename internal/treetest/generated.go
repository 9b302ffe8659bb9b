package treetest

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// Generated checks that a file of the package that is tested is what its generate.go writes.
func Generated(t *testing.T, file string) {
	t.Helper()
	dir := t.TempDir()
	if out, err := exec.Command("go", "run", "generate.go", dir).CombinedOutput(); err != nil {
		t.Skipf("SKIPPED: no go command to run the generator with: %v\n%s", err, out)
	}
	want, err := os.ReadFile(filepath.Join(dir, file))
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s is not what generate.go writes; run go generate in its folder", file)
	}
}
