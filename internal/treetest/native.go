package treetest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// NativeSDK is an SDK of which a tool has a copy in its folder sdk.
type NativeSDK struct {
	Name  string   // of its folder in guest-sdk
	sdk   []string // patterns of the files that a tool copies
	needs string   // see [Needs]
}

// Native are these SDKs.
var Native = []NativeSDK{
	{"rust", []string{"Cargo.toml", "src/*"}, "rust"},
	{"c", []string{"starling.h"}, "c"},
	{"as", []string{"assembly/*"}, "node"},
}

// Needs skips the test where the compiler is missing.
func (l NativeSDK) Needs(t *testing.T) {
	t.Helper()
	Needs(t, l.needs)
	if l.Name == "as" {
		NeedsNPM(t, "guest-sdk/as")
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
