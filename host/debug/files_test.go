package debug_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/starling-host/starling/host/debug"
)

// TestFilesOfStrangers: the longest end of a name that is there counts, and the time for a name does
// not grow with the square of its parts.
func TestFilesOfStrangers(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"src/a.c", "a.c"} {
		if err := os.MkdirAll(filepath.Join(dir, filepath.Dir(name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(name), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for name, want := range map[string]string{
		"a.c": "a.c", "/build/src/a.c": "src/a.c", "b/a.c": "a.c", "../../src/a.c": "src/a.c", "": "", "/": "", "b.c": "", "src": "",
		strings.Repeat("x/", 100) + "a.c":       "a.c",
		strings.Repeat("x/", 1_000_000) + "a.c": "a.c",
	} {
		_, lines := debug.NewFiles(dir).Lines(name)
		if got := strings.Join(lines, "\n"); got != want {
			t.Errorf("%.40q: got %q, want %q", name, got, want)
		}
	}
}
