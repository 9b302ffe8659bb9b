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
	registry.Main()
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
		{"a folder without Go files", write(t, files{"README.md": "x"}), "the folder has no tool: it needs one of *.go, tool.ts, tool.js, tool.py, Cargo.toml, tool.c, asconfig.json, assembly/index.ts", ""},
		{"a folder with two tools", write(t, files{"tool.py": "x", "tool.c": "x"}), "the folder has tools in two languages: tool.py and tool.c", ""},
		{"a library", write(t, files{"go.mod": "module m\n\ngo 1.24\n", "m.go": "package m\n"}), "a Go library, not a program", ""},
		{"a program with a type error", write(t, files{"go.mod": "module m\n\ngo 1.24\n", "m.go": "package main\n\nfunc main() { x := 1 }\n"}),
			"the tool does not build", "/m.go:3:15: declared and not used: x"},
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

// TestOpenHints checks the hints for references that are almost right.
func TestOpenHints(t *testing.T) {
	emptyCache(t)
	given := "there is a tool in FOLDER: give that folder"
	for name, c := range map[string]struct {
		files     files
		ref, want string
	}{
		"the sdk is no tool":       {files{"src/lib.rs": "", "sdk/Cargo.toml": ""}, "", "give a .wasm file"},
		"a policy":                 {files{"tool.c": "", "policy.yaml": "version: 1"}, "policy.yaml", given},
		"a page":                   {files{"tool.c": "", "README.md": "# tool"}, "README.md", given},
		"a source":                 {files{"tool.c": "int x;"}, "tool.c", given},
		"a source below":           {files{"Cargo.toml": "", "src/lib.rs": "fn f() {}"}, "src/lib.rs", given},
		"a source that others run": {files{"asconfig.json": "", "assembly/index.ts": "let x = 1"}, "assembly/index.ts", given},
		"a folder without its sdk": {files{"go.mod": "module m\n\ngo 1.24\n\nrequire github.com/starling-host/starling/guest-sdk/go v0.0.0\n\nreplace github.com/starling-host/starling/guest-sdk/go => ./sdk\n",
			"main.go": "package main\n\nimport _ \"github.com/starling-host/starling/guest-sdk/go\"\n\nfunc main() {}\n"}, "",
			"the folder lacks sdk, a part of the tool; restore it: starling-host tool new /tmp/fresh --lang go && cp -r /tmp/fresh/sdk FOLDER"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := write(t, c.files)
			_, err := registry.Open(t.Context(), filepath.Join(dir, c.ref))
			e, ok := errors.AsType[*registry.Error](err)
			if want := strings.ReplaceAll(c.want, "FOLDER", dir); !ok || !strings.HasPrefix(e.Hint, want) {
				t.Errorf("got %+v, want the hint %q", err, want)
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
	if !errors.As(err, &e) || !strings.Contains(e.Reason, "needs go, and there is none in PATH") || e.Hint != "brew install go" {
		t.Errorf("got %v", err)
	}
}

// TestOpenScript builds tools in TypeScript and JavaScript, without any program of PATH or of the
// folder. guest-sdk/js tests what they can do.
func TestOpenScript(t *testing.T) {
	t.Setenv("PATH", "")
	const js, ts = `export default { name: "js", execute() {} }`, `export default { name: "ts" as string, execute() {} }`
	dir := write(t, files{"tool.js": js, "greet.mts": ts, "bad.ts": "\n const x = ;\n"})
	t.Chdir(dir)
	first := open(t, ".")
	if first.Name != filepath.Base(dir) || first.Source != dir || !bytes.Contains(first.Wasm, []byte(`name: "js"`)) {
		t.Errorf("got %s, %s", first.Name, first.Source)
	}
	if again := open(t, write(t, files{"tool.js": js})); !bytes.Equal(again.Wasm, first.Wasm) {
		t.Error("the module says where it was built")
	}
	if m := open(t, write(t, files{"tool.js": js, "tool.ts": ts})); !bytes.Contains(m.Wasm, []byte(`name: "ts"`)) {
		t.Error("of a folder with both it built tool.js")
	}
	if m := open(t, "greet.mts"); m.Name != "greet" || m.Source != filepath.Join(dir, "greet.mts") || !bytes.Contains(m.Wasm, []byte(`name: "ts"`)) {
		t.Errorf("of a file it built %s, %s", m.Name, m.Source)
	}
	if _, err := registry.Open(t.Context(), write(t, files{"a/tool.ts": "\n const x = ;\n"})+"/a"); err == nil || !strings.Contains(err.Error(), "/a/tool.ts:2:12: Unexpected") {
		t.Errorf("the place is not in the folder: %v", err)
	}
	for ref, want := range map[string]string{
		"bad.ts":  "bad.ts:2:12: Unexpected \";\"\n    const x = ;\n",
		"deep.js": "deep.js: the tool or one of its imports is nested too deeply\n",
	} {
		if ref == "deep.js" {
			if err := os.WriteFile(ref, []byte("x = "+strings.Repeat("a=>", 200_000)+"1"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		_, err := registry.Open(t.Context(), ref)
		if e := (*registry.Error)(nil); !errors.As(err, &e) || e.Reason != "the tool does not build" || e.Output != want {
			t.Errorf("%s: %v, want %q", ref, err, want)
		}
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
