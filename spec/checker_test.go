package spec_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"unicode"

	"github.com/starling-host/starling/internal/treetest"
)

// TestIndependentChecker runs the tests of spec/checker, which include all vectors.
func TestIndependentChecker(t *testing.T) {
	treetest.Needs(t, "node")
	// Node reads these files, and go test must know that the result depends on them.
	for _, pattern := range []string{"checker/*", "vectors/*"} {
		files, err := filepath.Glob(pattern)
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: %v, %v", pattern, files, err)
		}
		for _, file := range files {
			if _, err := os.ReadFile(file); err != nil {
				t.Fatal(err)
			}
		}
	}
	if out, err := exec.CommandContext(t.Context(), "node", "--test", "checker/check.test.mjs").CombinedOutput(); err != nil {
		t.Errorf("node --test checker/check.test.mjs: %v\n%s", err, out)
	}
}

// TestUnicodeOfExports checks that this Go escapes the characters that event.md, section 11,
// names. A bundle has the exported lines, so a newer table would refuse older bundles.
func TestUnicodeOfExports(t *testing.T) {
	if unicode.Version != "15.0.0" {
		t.Errorf("Go has Unicode %s; exports escape what Unicode 15.0 does not call printable", unicode.Version)
	}
}
