package wasm_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// TestGenerated checks that opcodes.go is what generate.go writes.
func TestGenerated(t *testing.T) {
	dir := t.TempDir()
	if out, err := exec.Command("go", "run", "generate.go", dir).CombinedOutput(); err != nil {
		t.Skipf("SKIPPED: no go command to run the generator with: %v\n%s", err, out)
	}
	want, err := os.ReadFile(filepath.Join(dir, "opcodes.go"))
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile("opcodes.go")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Error("opcodes.go is not what generate.go writes; run: go generate ./internal/wasm")
	}
}
