package guestsdk_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/starling-host/starling"
	"github.com/starling-host/starling/host/sandbox"
	"github.com/starling-host/starling/internal/treetest"
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

// TestCHeader runs the header's own tests and those of the template, and compiles a tool as
// C++ and without a C library.
func TestCHeader(t *testing.T) {
	treetest.Native[1].Needs(t)
	dir := t.TempDir()
	template := treetest.Native[1].Folder(t, "template")
	program := filepath.Join(dir, "program")
	freestanding := filepath.Join(dir, "tool.c")
	treetest.Write(t, freestanding, "#include \""+filepath.Join(template, "sdk", "starling.h")+"\"\n"+
		"static const st_field input[] = {{\"n\", \"integer\"}, {0}};\n"+
		"static st_json *twice(const st_json *in) { return st_set(st_object(), \"n\", st_int(2 * st_integer(in, \"n\"))); }\n"+
		"STARLING_TOOLS({\"twice\", \"Doubles.\", twice, input})\n")
	strict := []string{"-Wall", "-Wextra", "-Werror", "-Wno-missing-field-initializers", "-o", program}
	for name, args := range map[string][]string{
		"the header's tests":   {"-fsanitize=undefined", "-fsanitize-trap=undefined", "guest-sdk/c/testdata/header_test.c"},
		"the template's tests": {filepath.Join(template, "tool_test.c")},
		"C++":                  {"--target=wasm32-wasi", "-mexec-model=reactor", "-xc++", "-std=c++20", freestanding},
		"without a C library":  {"--target=wasm32-unknown-unknown", "-O2", "-nostdlib", "-Wl,--no-entry", freestanding},
	} {
		if out, err := exec.CommandContext(t.Context(), "clang", append(strict, args...)...).CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", name, err, out)
		} else if strings.HasSuffix(name, "tests") {
			if out, err := exec.CommandContext(t.Context(), program).CombinedOutput(); err != nil {
				t.Errorf("%s: %v\n%s", name, err, out)
			}
		} else if wasm, err := os.ReadFile(program); err != nil || callOnce(t, wasm, "twice", `{"n":21.0}`) != `{"output":{"n":42}}` {
			t.Errorf("%s: %v, the tool does not double", name, err)
		}
	}
}

func callOnce(t *testing.T, wasm []byte, tool, input string) string {
	t.Helper()
	engine, err := sandbox.New(t.Context(), sandbox.Config{CacheDir: starling.CodeCacheFolder()})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = engine.Close(context.Background()) }()
	m, err := engine.Load(t.Context(), wasm, sandbox.DefaultLimits())
	if err != nil {
		t.Fatal(err)
	}
	got, err := m.Call(t.Context(), sandbox.Call{Tool: tool, Input: []byte(`{"tool":"` + tool + `","input":` + input + `,"context":{}}`)}, &world{})
	if err != nil {
		t.Error(err)
	}
	return string(got.Output)
}
