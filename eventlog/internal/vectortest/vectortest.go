// Package vectortest keeps the vectors of package spec and the code that
// defines them together.
//
// A test lists the cases, computes each line and calls [Check]: the file must
// have exactly these lines. Run with -update to write it, which is right for
// new cases and wrong for changed ones; spec/vectors/README.md has the rule.
package vectortest

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/starling-host/starling/spec"
)

var update = flag.Bool("update", false, "write the vectors of spec/vectors")

// Check fails the test unless the named vector file has the lines want, and
// returns its lines.
func Check[T any](t *testing.T, name string, want []T) []T {
	t.Helper()
	text := encode(t, want)
	if *update {
		if err := os.WriteFile(filepath.Join(root(t), "spec", "vectors", name), text, 0o644); err != nil {
			t.Fatal(err)
		}
		return want
	}
	have, err := spec.Vectors(name)
	if err != nil {
		t.Fatal(err)
	}
	compare(t, name, bytes.SplitAfter(have, []byte("\n")), bytes.SplitAfter(text, []byte("\n")))
	lines, err := spec.Lines[T](name)
	if err != nil {
		t.Fatal(err)
	}
	return lines
}

func encode[T any](t *testing.T, lines []T) []byte {
	t.Helper()
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	for _, line := range lines {
		if err := enc.Encode(line); err != nil {
			t.Fatal(err)
		}
	}
	return b.Bytes()
}

func compare(t *testing.T, name string, have, want [][]byte) {
	t.Helper()
	for i := range max(len(have), len(want)) {
		switch {
		case i >= len(have):
			t.Fatalf("spec/vectors/%s has %d lines, this code makes %d", name, len(have)-1, len(want)-1)
		case i >= len(want):
			t.Fatalf("spec/vectors/%s has %d lines, this code makes %d", name, len(have)-1, len(want)-1)
		case !bytes.Equal(have[i], want[i]):
			t.Fatalf("spec/vectors/%s line %d\nfile: %s\ncode: %s", name, i+1, have[i], want[i])
		}
	}
}

// root returns the repository's folder, above that of the test.
func root(t *testing.T) string {
	t.Helper()
	dir := "."
	for range 8 {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
		dir = filepath.Join(dir, "..")
	}
	t.Fatal("there is no go.mod above the test")
	return ""
}
