package starling_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"
)

// TestSeedAPICompilesOutside builds a program for each row of the Starling runtime's Go API
// in a module outside of this one, which sees what a user's module sees.
func TestSeedAPICompilesOutside(t *testing.T) {
	archive, err := txtar.ParseFile("docs/seed-api.txtar")
	if err != nil {
		t.Fatal(err)
	}
	dir := outside(t)
	for _, f := range archive.Files {
		path := filepath.Join(dir, f.Name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, f.Data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, args := range [][]string{{"vet", "./..."}, {"test", "./s1"}} {
		cmd := exec.CommandContext(t.Context(), "go", args...)
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("go %s: %v\n%s", args, err, out)
		}
	}
}

// outside returns a folder with a module that requires this one and nothing else.
func outside(t *testing.T) string {
	t.Helper()
	root, err := filepath.Abs(".")
	if err != nil {
		t.Fatal(err)
	}
	mod, err := os.ReadFile("go.mod")
	if err != nil {
		t.Fatal(err)
	}
	sum, err := os.ReadFile("go.sum")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	mod = bytes.Replace(mod, []byte("module "+modulePath+"\n"), []byte("module example.com/outside\n\nrequire "+modulePath+" v0.0.0\n\nreplace "+modulePath+" => "+root+"\n"), 1)
	for name, data := range map[string][]byte{"go.mod": mod, "go.sum": sum} {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}
