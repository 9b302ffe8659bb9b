//go:build unix

package registry_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/starling-host/starling/host/internal/registry"
)

// TestFolderIsAllThatAModuleHolds builds folders in Go that reach for what lies around them,
// each by another way. Either the build refuses or the module has nothing of it, and nothing
// that a folder brings is executed. A content that begins with "->" is a link.
func TestFolderIsAllThatAModuleHolds(t *testing.T) {
	const canary = "Canary0fTheHost"
	const mod = "module m\n\ngo 1.24\n"
	const runs = "#!/bin/sh\necho > EXECUTED\n"
	prints := func(imports, expression string) string {
		return "package main\n\nimport (\n" + imports + "\n)\n\nfunc main() { println(" + expression + ") }\n"
	}
	plain := prints("", `"plain"`)
	embeds := func(pattern string) files {
		return files{"go.mod": mod, "main.go": "package main\n\nimport \"embed\"\n\n//go:embed " + pattern + "\nvar all embed.FS\n\nfunc main() { d, _ := all.ReadDir(\".\"); println(len(d)) }\n"}
	}
	and := func(all, more files) files {
		for name, text := range more {
			all[name] = text
		}
		return all
	}
	assembler := func(text string) files {
		return files{"go.mod": mod, "main.go": "package main\n\nfunc text() string\n\nfunc main() { println(text()) }\n", "a.s": "#include \"textflag.h\"\n" + text + "\n"}
	}
	around := files{
		"outside/go.mod": "module example.com/outside\n\ngo 1.24\n", "outside/secret.txt": canary,
		"outside/code.go":           "package outside\n\nconst Text = \"" + canary + "\"\n",
		"outside/lib/code.go":       "package outside\n\nconst Text = \"" + canary + "\"\n",
		"outside/main/code.go":      "package main\n\nfunc init() { println(\"" + canary + "\") }\n",
		"outside/lib2/code.go":      "package lib\n\nconst Text = \"" + canary + "\"\n",
		"clone/go.mod":              "module github.com/starling-host/starling\n\ngo 1.24\n",
		"clone/lib/code.go":         "package lib\n\nconst Text = \"" + canary + "\"\n",
		"clone/guest-sdk/go/go.mod": "module github.com/starling-host/starling/guest-sdk/go\n\ngo 1.24\n", "clone/guest-sdk/go/sdk.go": "package sdk\n\nconst Text = \"sdk\"\n",
		"outside/include.h": "#define SECRET \"" + canary + "\"\n",
		"tool/.git/HEAD":    "ref: refs/heads/main\n", "tool/.git/objects/x": "", "tool/.git/refs/x": "",
		"tool/.git/config": "[core]\n\trepositoryformatversion = 0\n\tfsmonitor = \"echo > EXECUTED;\"\n\thooksPath = OUTSIDE\n",
	}
	const data = "DATA ·secret<>+0(SB)/8, $"
	machine := realDir(t)
	executed := filepath.Join(machine, "EXECUTED")
	writeHostile(t, machine, files{
		"bin/go1.99.9": runs,
		"gopath/pkg/mod/example.com/private@v1.0.0/go.mod":  "module example.com/private\n\ngo 1.24\n",
		"gopath/pkg/mod/example.com/private@v1.0.0/code.go": "package private\n\nconst Text = \"" + canary + "\"\n",
	}, strings.NewReplacer("EXECUTED", executed))
	emptyCache(t)
	for name, value := range map[string]string{
		"PATH": ".:./bin:" + filepath.Join(machine, "bin") + ":" + os.Getenv("PATH"), "GOPATH": filepath.Join(machine, "gopath"),
		"GO111MODULE": "off", "GOTOOLCHAIN": "auto", "GOPROXY": "off", "GOFLAGS": "-mod=mod",
	} {
		t.Setenv(name, value)
	}
	t.Cleanup(func() {
		if _, err := os.Stat(executed); err == nil {
			t.Error("a build has executed something of a folder")
		}
	})
	for name, c := range map[string]struct {
		files files
		want  string // part of the reason or of Go's output; empty where there is a module
	}{
		"replace by a path from the root": {files{"go.mod": mod + "require example.com/outside v0.0.0\nreplace example.com/outside => OUTSIDE\n", "main.go": prints(`"example.com/outside"`, "outside.Text")}, "outside/go.mod, which is outside of the Go module in FOLDER"},
		"replace by a path with ..":       {files{"go.mod": mod + "require example.com/outside v0.0.0\nreplace example.com/outside => ../outside\n", "main.go": prints(`"example.com/outside"`, "outside.Text")}, "outside of the Go module"},
		"replace by a link":               {files{"go.mod": mod + "require example.com/outside v0.0.0\nreplace example.com/outside => ./lib\n", "main.go": prints(`"example.com/outside"`, "outside.Text"), "lib": "->OUTSIDE"}, "outside of the Go module"},
		"replace by the module cache":     {files{"go.mod": mod + "require example.com/private v1.0.0\nreplace example.com/private => GOPATH/pkg/mod/example.com/private@v1.0.0\n", "main.go": prints(`"example.com/private"`, "private.Text")}, "outside of the Go module"},
		"replace of the SDK": {files{"go.mod": mod + "require github.com/starling-host/starling/guest-sdk/go v0.0.0\nreplace github.com/starling-host/starling/guest-sdk/go => ../outside\n",
			"main.go": prints("lib \"github.com/starling-host/starling/guest-sdk/go/lib2\"", "lib.Text")}, "outside of the Go module"},
		"the SDK by another name": {files{"go.mod": mod + "require example.com/outside v0.0.0\nreplace example.com/outside => ../clone/guest-sdk/go\n",
			"main.go": prints("sdk \"example.com/outside\"", "sdk.Text")}, "outside of the Go module"},
		"what is beside the SDK": {files{"go.mod": mod + "require github.com/starling-host/starling v0.0.0\nreplace github.com/starling-host/starling => ../clone\n",
			"main.go": prints("lib \"github.com/starling-host/starling/lib\"", "lib.Text")}, "outside of the Go module"},
		"the SDK": {files{"go.mod": mod + "require github.com/starling-host/starling/guest-sdk/go v0.0.0\nreplace github.com/starling-host/starling/guest-sdk/go => ../clone/guest-sdk/go\n",
			"main.go": prints("sdk \"github.com/starling-host/starling/guest-sdk/go\"", "sdk.Text")}, ""},
		"a private module, without go.sum": {files{"go.mod": mod + "require example.com/private v1.0.0\n", "main.go": prints(`"example.com/private"`, "private.Text")}, "go.sum"},
		"GOPATH":                           {files{"main.go": prints(`"old"`, "old.Text")}, "cannot find main module"},
		"a workspace":                      {files{"go.mod": mod, "go.work": "go 1.24\n\nuse (\n\t.\n\t../outside\n)\n", "main.go": prints(`"example.com/outside"`, "outside.Text")}, "example.com/outside"},
		"a workspace above":                {files{"go.mod": mod, "../go.work": "go 1.24\n\nuse (\n\t./tool\n\t./outside\n)\n", "main.go": prints(`"example.com/outside"`, "outside.Text")}, "example.com/outside"},
		"vendored": {files{"go.mod": mod + "require example.com/outside v0.0.0\nreplace example.com/outside => ../outside\n", "main.go": prints(`"example.com/outside"`, "outside.Text"),
			"vendor/example.com/outside/code.go": "package outside\n\nconst Text = \"a copy\"\n",
			"vendor/modules.txt":                 "# example.com/outside v0.0.0 => ../outside\n## explicit; go 1.24\nexample.com/outside\n# example.com/outside => ../outside\n"}, ""},
		"vendor is a link": {files{"go.mod": mod + "require example.com/outside v0.0.0\n", "main.go": prints(`"example.com/outside"`, "outside.Text"), "vendor/example.com/outside": "->OUTSIDE",
			"vendor/modules.txt": "# example.com/outside v0.0.0\n## explicit; go 1.24\nexample.com/outside\n"}, "outside of the Go module"},
		"vendor is a link to the module cache": {files{"go.mod": mod + "require example.com/private v1.0.0\n", "main.go": prints(`"example.com/private"`, "private.Text"),
			"vendor/example.com/private": "->GOPATH/pkg/mod/example.com/private@v1.0.0",
			"vendor/modules.txt":         "# example.com/private v1.0.0\n## explicit; go 1.24\nexample.com/private\n"}, "outside of the Go module"},
		"a source is a link":              {files{"go.mod": mod, "main.go": plain, "code.go": "->OUTSIDE/main/code.go"}, "code.go, which is outside of the Go module"},
		"a package is a link":             {files{"go.mod": mod, "main.go": prints(`"m/lib"`, "outside.Text"), "lib": "->../outside/lib"}, "lib/code.go, which is outside of the Go module"},
		"embed of a link":                 {and(embeds("a.txt"), files{"a.txt": "->OUTSIDE/secret.txt"}), "a.txt"},
		"embed of a folder with a link":   {and(embeds("lib"), files{"lib/a.txt": "->OUTSIDE/secret.txt", "lib/b.txt": "b"}), ""},
		"embed of a linked folder":        {and(embeds("lib/secret.txt"), files{"lib": "->OUTSIDE"}), "lib"},
		"embed of a path with ..":         {embeds("../outside/secret.txt"), "invalid pattern"},
		"embed of a path from the root":   {embeds("OUTSIDE/secret.txt"), "invalid pattern"},
		"#include":                        {assembler("#include \"OUTSIDE/include.h\"\n" + data + "SECRET"), "include any file of this machine by a.s"},
		"#include behind a comment":       {assembler("#/* */include \"../outside/include.h\""), "include any file"},
		"#include in a macro":             {assembler("#define X \\\n#include \"../outside/include.h\"\nX"), "include any file"},
		"#include in a header":            {and(assembler("#include \"a.h\""), files{"a.h": "#include \"../outside/include.h\"\n"}), "include any file"},
		"#include of a link by Go's name": {and(assembler("TEXT ·text(SB), NOSPLIT, $0\n\tRET"), files{"textflag.h": "->OUTSIDE/include.h"}), "include.h, which is outside of the Go module"},
		"an object is a link":             {files{"go.mod": mod, "main.go": plain, "a_wasm.syso": "->OUTSIDE/secret.txt"}, "outside of the Go module"},
		"cgo":                             {files{"go.mod": mod, "main.go": "package main\n\n// #include \"OUTSIDE/include.h\"\nimport \"C\"\n\nfunc main() { println(C.SECRET) }\n"}, "build constraints exclude all Go files"},
		"a linker flag":                   {files{"go.mod": mod, "main.go": "package main\n\n//go:cgo_ldflag \"OUTSIDE/secret.txt\"\n\nfunc main() {}\n"}, "only allowed in cgo-generated code"},
		"go.mod is a link":                {files{"go.mod": "->OUTSIDE/go.mod", "main.go": plain}, "go.mod, which is outside of the Go module"},
		"go.sum is a link":                {files{"go.mod": mod, "main.go": plain, "go.sum": "->OUTSIDE/secret.txt"}, "outside of the Go module"},
		"a profile is a link":             {files{"go.mod": mod, "main.go": plain, "default.pgo": "->OUTSIDE/secret.txt"}, ""},
		"a line of another file":          {files{"go.mod": mod, "main.go": plain + "\n//line OUTSIDE/secret.txt:1\nfunc f() { panic(1) }\n"}, ""},
		"a newer Go":                      {files{"go.mod": "module m\n\ngo 1.99.9\n", "main.go": plain}, "go.mod requires go >= 1.99.9"},
		"another toolchain":               {files{"go.mod": mod + "toolchain go1.99.9\n", "main.go": plain}, ""},
		"programs of the folder": {files{"go.mod": mod + "tool m\n", "main.go": "//go:generate sh -c \"echo > EXECUTED\"\n\n" + plain, "go.env": "GOFLAGS=-toolexec=./run.sh\n", "run.sh": runs,
			".tool-versions": "golang path:.\n", "bin/go": runs, "go": runs, "git": runs, "Makefile": "all:\n\techo > EXECUTED\n"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			base := realDir(t)
			r := strings.NewReplacer("OUTSIDE", filepath.Join(base, "outside"), "FOLDER", filepath.Join(base, "tool"), "GOPATH", filepath.Join(machine, "gopath"), "EXECUTED", executed)
			writeHostile(t, base, around, r)
			writeHostile(t, filepath.Join(base, "tool"), c.files, r)
			m, err := registry.Open(t.Context(), filepath.Join(base, "tool"))
			var e *registry.Error
			if errors.As(err, &e) {
				if said := e.Reason + "\n" + e.Output; c.want == "" || !strings.Contains(said, r.Replace(c.want)) {
					t.Errorf("the build is refused for\n%s\nwant %q", said, c.want)
				}
				if e.Output == "" && e.Hint == "" {
					t.Error("there is no hint")
				}
			} else if err != nil || c.want != "" {
				t.Errorf("got %d bytes, %v, want %q", len(m.Wasm), err, c.want)
			}
			if bytes.Contains(m.Wasm, []byte(canary)) {
				t.Error("the module has a file of the host")
			}
		})
	}
}

func realDir(t *testing.T) string {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

func writeHostile(t *testing.T, dir string, all files, r *strings.Replacer) {
	t.Helper()
	for name, text := range all {
		path, text := filepath.Join(dir, name), r.Replace(text)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		var err error
		if target, link := strings.CutPrefix(text, "->"); link {
			err = os.Symlink(target, path)
		} else {
			err = os.WriteFile(path, []byte(text), 0o755)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}
