package registry_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/starling-host/starling/host/internal/cachefile"
	"github.com/starling-host/starling/host/internal/registry"
)

// TestMain pins the Go command's own build cache, which would otherwise move
// with the user's cache folder that the tests replace.
func TestMain(m *testing.M) {
	out, err := exec.Command("go", "env", "GOCACHE").Output()
	if err != nil {
		panic(err)
	}
	os.Setenv("GOCACHE", strings.TrimSpace(string(out)))
	os.Exit(m.Run())
}

// emptyCache gives the test a build cache of its own and returns its folder.
func emptyCache(t *testing.T) string {
	t.Helper()
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	dir, err := registry.CacheDir()
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// files maps names below a folder to contents.
type files map[string]string

// write creates the files in a new folder and returns it.
func write(t *testing.T, all files) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range all {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// read returns the files of a folder.
func read(t *testing.T, dir string) files {
	t.Helper()
	all := files{}
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		name, _ := filepath.Rel(dir, path)
		all[name] = string(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// tool is a small Go program with an embedded file and a package of its own.
func tool() files {
	return files{
		"go.mod":           "module example.com/tool\n\ngo 1.24\n",
		"main.go":          "package main\n\nimport (\n\t_ \"embed\"\n\n\t\"example.com/tool/word\"\n)\n\n//go:embed note.txt\nvar note string\n\nfunc main() { println(note, word.Word) }\n",
		"note.txt":         "one",
		"word/word.go":     "package word\n\nconst Word = \"a\"\n",
		"main_test.go":     "package main\n",
		"unused/unused.go": "package unused\n",
	}
}

func open(t *testing.T, ref string) registry.Module {
	t.Helper()
	m, err := registry.Open(t.Context(), ref)
	if err != nil {
		t.Fatalf("Open: %v", err)
	}
	return m
}

func TestOpenRefuses(t *testing.T) {
	emptyCache(t)
	sparse := filepath.Join(t.TempDir(), "large.wasm")
	if err := os.WriteFile(sparse, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(sparse, registry.MaxModuleBytes+1); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ name, ref, reason, output string }{
		{"an empty reference", "", "no such file or folder", ""},
		{"a path that is not there", "no/such.wasm", "no such file or folder", ""},
		{"an empty file", filepath.Join(write(t, files{"x.wasm": ""}), "x.wasm"), "the file is empty", ""},
		{"a file above the limit", sparse, "the limit is 67108864", ""},
		{"a folder without Go files", write(t, files{"README.md": "x"}), "the folder holds no Go files, and no tool.ts or tool.js", ""},
		{"a library", write(t, files{"go.mod": "module m\n\ngo 1.24\n", "m.go": "package m\n"}), "a Go library, not a program", ""},
		{"a program with a type error", write(t, files{"go.mod": "module m\n\ngo 1.24\n", "m.go": "package main\n\nfunc main() { x := 1 }\n"}),
			"the tool does not build", "m.go:3:15: declared and not used: x"},
		{"a program with an import that is not there", write(t, files{"go.mod": "module m\n\ngo 1.24\n", "m.go": "package main\n\nimport _ \"m/none\"\n\nfunc main() {}\n"}),
			"the tool does not build", "m/none"},
		{"Go files outside of a module", write(t, files{"m.go": "package main\n\nfunc main() {}\n"}), "the tool does not build", "go.mod"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := registry.Open(t.Context(), c.ref)
			var e *registry.Error
			if !errors.As(err, &e) {
				t.Fatalf("got %v, want a *registry.Error", err)
			}
			if e.Ref != c.ref || !strings.Contains(e.Reason, c.reason) || !strings.Contains(e.Output, c.output) {
				t.Errorf("got %+v, want reason %q and output %q", e, c.reason, c.output)
			}
			if e.Output == "" && e.Hint == "" {
				t.Error("there is no hint")
			}
		})
	}
}

func TestOpenReadsFile(t *testing.T) {
	path := filepath.Join(write(t, files{"a tool.wasm": "\x00asm"}), "a tool.wasm")
	want := registry.Module{Wasm: []byte("\x00asm"), Name: "a tool", Source: path}
	if d := cmp.Diff(want, open(t, path)); d != "" {
		t.Error(d)
	}
}

func TestOpenWithoutGo(t *testing.T) {
	emptyCache(t)
	t.Setenv("PATH", t.TempDir())
	_, err := registry.Open(t.Context(), write(t, tool()))
	var e *registry.Error
	if !errors.As(err, &e) || !strings.Contains(e.Reason, "no go command") || !strings.Contains(e.Hint, "install Go") {
		t.Errorf("got %v", err)
	}
}

// TestOpenScript builds with a command that only prints how it was called.
func TestOpenScript(t *testing.T) {
	dir := write(t, files{"tool.js": "js", "package.json": "{}", "node_modules/.bin/starling-build": "#!/bin/sh\nexit 7\n"})
	if err := os.Chmod(filepath.Join(dir, "node_modules", ".bin", "starling-build"), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Chdir(dir)
	path := os.Getenv("PATH")
	t.Setenv("PATH", t.TempDir())
	_, err := registry.Open(t.Context(), ".")
	var e *registry.Error
	const missing = "a folder with tool.js is built with starling-build, and there is no such command in PATH"
	if !errors.As(err, &e) || !strings.HasPrefix(e.Reason, missing+"; the one in node_modules/.bin is a program of the folder") || !strings.Contains(e.Hint, "npx starling-build tool.js tool.wasm") {
		t.Errorf("without the command, but in the folder: %+v", err)
	}
	_, err = registry.Open(t.Context(), write(t, files{"tool.js": "js"}))
	if !errors.As(err, &e) || e.Reason != missing || e.Hint == "" {
		t.Errorf("without the command: %+v", err)
	}

	bin := write(t, files{"starling-build": "#!/bin/sh\n[ $(pwd) = / ] || exit 9\ncat \"$1\" > \"$2\"\ngrep -q bad \"$1\" && echo \"error: $1 is bad\" >&2 && exit 1\nexit 0\n"})
	if err := os.Chmod(filepath.Join(bin, "starling-build"), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", bin+string(os.PathListSeparator)+path)
	if m := open(t, "."); string(m.Wasm) != "js" || m.Name != filepath.Base(dir) || m.Source != dir {
		t.Errorf("got %+v", m)
	}
	if m := open(t, write(t, files{"tool.js": "js", "tool.ts": "ts"})); string(m.Wasm) != "ts" {
		t.Errorf("of a folder with both it built %s", m.Wasm)
	}
	bad := write(t, files{"tool.ts": "bad"})
	_, err = registry.Open(t.Context(), bad)
	if !errors.As(err, &e) || e.Reason != "the tool does not build" || e.Output != "error: "+filepath.Join(bad, "tool.ts")+" is bad\n" {
		t.Errorf("of a tool that does not build: %+v", err)
	}
}

func TestBuild(t *testing.T) {
	cache := emptyCache(t)
	dir := write(t, tool())
	first := open(t, dir)
	if !bytes.HasPrefix(first.Wasm, []byte("\x00asm\x01\x00\x00\x00")) {
		t.Fatal("the result is not a module")
	}
	if bytes.Contains(first.Wasm, []byte(dir)) {
		t.Error("the module holds the folder that it was built in")
	}
	if d := cmp.Diff(tool(), read(t, dir)); d != "" {
		t.Errorf("the build changed the folder of the tool: %s", d)
	}
	if info, err := os.Stat(cache); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("cache folder: %v, %v", info, err)
	}

	t.Run("a copy elsewhere gives the same module, by a relative path", func(t *testing.T) {
		t.Chdir(write(t, tool()))
		m := open(t, ".")
		if !bytes.Equal(m.Wasm, first.Wasm) {
			t.Error("the modules differ")
		}
		if n := len(read(t, cache)); n != 1 {
			t.Errorf("the cache has %d entries, want 1", n)
		}
	})
	t.Run("a link to the folder gives the same module", func(t *testing.T) {
		link := filepath.Join(t.TempDir(), "link")
		if err := os.Symlink(dir, link); err != nil {
			t.Fatal(err)
		}
		nested := filepath.Join(t.TempDir(), "nested") // the module's root is above the link's target
		inner := write(t, files{"go.mod": "module m\n\ngo 1.24\n", "cmd/tool/main.go": "package main\n\nfunc main() {}\n"})
		if err := os.Symlink(filepath.Join(inner, "cmd", "tool"), nested); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(open(t, link).Wasm, first.Wasm) {
			t.Error("the modules differ")
		}
		open(t, nested)
	})
	t.Run("flags and a workspace of the user are ignored", func(t *testing.T) {
		t.Setenv("GOFLAGS", "-tags=other -mod=mod -race")
		t.Setenv("GOOS", "plan9")
		t.Setenv("GOWORK", "/nowhere/go.work")
		if !bytes.Equal(open(t, dir).Wasm, first.Wasm) {
			t.Error("the modules differ")
		}
	})
	t.Run("a damaged cache entry is built again", func(t *testing.T) {
		for name := range read(t, cache) {
			damage(t, filepath.Join(cache, name))
		}
		if !bytes.Equal(open(t, dir).Wasm, first.Wasm) {
			t.Error("the modules differ")
		}
	})
	inputs := files{"note.txt": "two", "word/word.go": "package word\n\nconst Word = \"b\"\n"}
	for name, text := range inputs {
		t.Run("a change of "+name+" is seen", func(t *testing.T) {
			changed := tool()
			changed[name] = text
			if bytes.Equal(open(t, write(t, changed)).Wasm, first.Wasm) {
				t.Error("the module is the old one")
			}
		})
	}
	t.Run("a change of a file that takes no part is not", func(t *testing.T) {
		before := len(read(t, cache))
		changed := tool()
		changed["main_test.go"], changed["unused/unused.go"] = "package main // changed\n", "package unused // changed\n"
		open(t, write(t, changed))
		if after := len(read(t, cache)); after != before {
			t.Errorf("the cache grew from %d to %d entries", before, after)
		}
	})
	t.Run("a cache that others may enter is not used", func(t *testing.T) {
		for name := range read(t, cache) {
			if err := cachefile.Write(filepath.Join(cache, name), "new-*", []byte("another module")); err != nil {
				t.Fatal(err)
			}
		}
		if string(open(t, dir).Wasm) != "another module" {
			t.Fatal("the module is not from the cache")
		}
		if err := os.Chmod(cache, 0o777); err != nil {
			t.Fatal(err)
		}
		before := read(t, cache)
		if !bytes.Equal(open(t, dir).Wasm, first.Wasm) {
			t.Error("the modules differ")
		}
		if d := cmp.Diff(before, read(t, cache)); d != "" {
			t.Error(d)
		}
		if err := errors.Join(os.RemoveAll(cache), os.Symlink(t.TempDir(), cache)); err != nil {
			t.Fatal(err)
		}
		open(t, dir)
		if n := len(read(t, cache+string(filepath.Separator))); n != 0 {
			t.Error("a module was put where a link leads")
		}
		if err := os.Remove(cache); err != nil {
			t.Fatal(err)
		}
	})
}

// damage flips the last byte of a file.
func damage(t *testing.T, path string) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	b[len(b)-1] ^= 1
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestBuildWithoutCacheFolder(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", "")
	t.Setenv("HOME", "")
	if _, err := registry.CacheDir(); err == nil {
		t.Fatal("there is a cache folder")
	}
	t.Setenv("GOPATH", t.TempDir())
	open(t, write(t, tool()))
}

func TestConcurrentBuilds(t *testing.T) {
	cache := emptyCache(t)
	dir := write(t, tool())
	var built [3]registry.Module
	var wait sync.WaitGroup
	for i := range built {
		wait.Go(func() { built[i], _ = registry.Open(t.Context(), dir) })
	}
	wait.Wait()
	for _, m := range built {
		if len(m.Wasm) == 0 || !bytes.Equal(m.Wasm, built[0].Wasm) {
			t.Error("the builds differ, or one failed")
		}
	}
	if n := len(read(t, cache)); n != 1 {
		t.Errorf("the cache has %d entries, want 1", n)
	}
}

func TestOpenEndsWithContext(t *testing.T) {
	emptyCache(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := registry.Open(ctx, write(t, tool())); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want context.Canceled", err)
	}
}
