package treetest

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// NativeSDK is an SDK of which a tool has a copy in its folder sdk.
type NativeSDK struct {
	Name     string   // of its folder in guest-sdk
	sdk      []string // patterns of the files that a tool copies
	packages string   // what a test needs
	commands []string // commands and files that stand for it
}

// Native are these SDKs.
var Native = []NativeSDK{
	{"rust", []string{"Cargo.toml", "src/*"}, "Debian: rustc libstd-rust-dev-wasm32 cargo", []string{"rustc", "/usr/lib/rustlib/wasm32-unknown-unknown"}},
	{"c", []string{"starling.h"}, "Debian: clang lld wasi-libc libclang-rt-dev-wasm32", []string{"clang", "wasm-ld", "/usr/include/wasm32-wasi"}},
	{"as", []string{"assembly/*"}, "Debian: nodejs npm; npm ci --prefix guest-sdk/as", []string{"node", "guest-sdk/as/node_modules/.bin/asc"}},
}

// Needs skips the test where the compiler is missing.
func (l NativeSDK) Needs(t *testing.T) {
	t.Helper()
	for _, command := range l.commands {
		_, err := exec.LookPath(command)
		if strings.Contains(command, "/") {
			_, err = os.Stat(command)
		}
		if err != nil {
			t.Skipf("SKIPPED: a compiler is missing (%s): %v", l.packages, err)
		}
	}
}

// Folder returns a copy of a folder of the SDK that has a tool, with the SDK in it.
func (l NativeSDK) Folder(t *testing.T, tool string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), filepath.Base(tool))
	root := filepath.Join("guest-sdk", l.Name)
	if bin, err := filepath.Abs(filepath.Join(root, "node_modules", ".bin")); err == nil && l.Name == "as" {
		t.Setenv("PATH", bin+string(filepath.ListSeparator)+os.Getenv("PATH"))
	}
	if err := os.CopyFS(dir, os.DirFS(filepath.Join(root, tool))); err != nil {
		t.Fatal(err)
	}
	for _, pattern := range l.sdk {
		files, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: %v, %v", pattern, files, err)
		}
		for _, file := range files {
			Write(t, filepath.Join(dir, "sdk", strings.TrimPrefix(strings.TrimPrefix(file, root), "/assembly")), Read(t, file))
		}
	}
	return dir
}
