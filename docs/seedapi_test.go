package docs_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/starling-host/starling/internal/treetest"
)

// TestSeedAPICompilesOutside builds a program for each row of the Starling runtime's Go API
// in a module outside of this one, which sees what a user's module sees.
func TestSeedAPICompilesOutside(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIPPED: takes seconds")
	}
	archive, err := txtar.ParseFile("docs/seed-api.txtar")
	if err != nil {
		t.Fatal(err)
	}
	dir := treetest.Outside(t)
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
