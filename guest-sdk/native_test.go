package guestsdk_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// TestRustCrate runs the crate's own tests, those of the template, and a tool with serde.
func TestRustCrate(t *testing.T) {
	if os.Getenv("STARLING_NIGHTLY") == "" {
		t.Skip("NIGHTLY: compiles serde")
	}
	const crates = "/usr/share/cargo/registry"
	for _, needed := range []string{"/usr/bin/cargo", crates + "/serde_json-*", crates + "/serde_derive-*"} {
		if found, _ := filepath.Glob(needed); len(found) == 0 {
			t.Skipf("SKIPPED: %s is missing (Debian: cargo rustc librust-serde-json-dev librust-serde-derive-dev)", needed)
		}
	}
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS("guest-sdk/rust")); err != nil {
		t.Fatal(err)
	}
	template := filepath.Join(dir, "template", "sdk")
	for _, name := range []string{"Cargo.toml", "src"} {
		if err := os.MkdirAll(template, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(filepath.Join(dir, name), filepath.Join(template, name)); err != nil {
			t.Fatal(err)
		}
	}
	for _, folder := range []string{".", "template", "testdata/serde"} {
		cmd := exec.CommandContext(t.Context(), "/usr/bin/cargo", "test", "--offline", "--quiet", "--target-dir", filepath.Join(dir, "target"),
			"--config", `source.crates-io.replace-with="debian"`, "--config", `source.debian.directory="`+crates+`"`)
		cmd.Dir = filepath.Join(dir, folder)
		cmd.Env = append(os.Environ(), "RUSTC=/usr/bin/rustc", "RUSTDOC=/usr/bin/rustdoc")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("cargo test in %s: %v\n%s", folder, err, out)
		}
	}
}
