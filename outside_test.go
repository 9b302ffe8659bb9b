package starling_test

import (
	stdzip "archive/zip"
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"golang.org/x/mod/module"
	"golang.org/x/mod/zip"

	"github.com/starling-host/starling"
	"github.com/starling-host/starling/internal/treetest"
)

// TestGoToolsBuildOutside builds a typed tool in a folder that has nothing of this module,
// with the SDK as a proxy gives it, with the SDK of a clone, and with the copy of it that the
// program carries, beside the tool and without a network.
func TestGoToolsBuildOutside(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIPPED: builds a tool with an empty module cache")
	}
	const tool = `package main

import (
	starling "github.com/starling-host/starling/guest-sdk/go"
	"github.com/starling-host/starling/guest-sdk/go/typed"
)

type input struct {
	Name string ` + "`json:\"name\" jsonschema:\"description=Whom to greet\"`" + `
}

func init() {
	starling.Register(typed.Tool("greet", "Greets.", func(_ *starling.Call, in input) (string, error) {
		return "Hello, " + in.Name, nil
	}))
}

func main() {}
`
	greets := func(t *testing.T, dir string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, "main.go"), []byte(tool), 0o600); err != nil {
			t.Fatal(err)
		}
		db, err := starling.Open(t.Context(), filepath.Join(t.TempDir(), "starling.db"), starling.Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		greet, err := db.Load(t.Context(), dir, starling.ToolOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if run, err := greet.Call(t.Context(), `{"name":"Ada"}`); err != nil || run.Output() != `"Hello, Ada"` {
			t.Errorf("got %v, %v", run, err)
		}
	}
	t.Run("with a clone", func(t *testing.T) { greets(t, treetest.Outside(t)) })
	t.Run("with a release", func(t *testing.T) {
		dir := t.TempDir()
		release(t)
		write := func(name, text string) {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		write("go.mod", "module example.com/greet\n\ngo 1.26\n")
		write("main.go", tool)
		get := exec.CommandContext(t.Context(), "go", "get", sdkPath+"@v0.0.1")
		get.Dir = dir
		if out, err := get.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		greets(t, dir)
	})
	t.Run("with the SDK beside it", func(t *testing.T) {
		dir := t.TempDir()
		archive, err := stdzip.OpenReader("guest-sdk/go.zip")
		if err != nil {
			t.Fatal(err)
		}
		defer archive.Close()
		mod := "module example.com/greet\n\ngo 1.24.0\n\nrequire " + sdkPath + " v0.0.0\n\nreplace " + sdkPath + " => ./sdk\n"
		if err := errors.Join(os.CopyFS(dir, archive), os.WriteFile(filepath.Join(dir, "go.mod"), []byte(mod), 0o600)); err != nil {
			t.Fatal(err)
		}
		t.Setenv("GOPROXY", "off")
		t.Setenv("GOMODCACHE", filepath.Join(t.TempDir(), "mod"))
		t.Setenv("GOFLAGS", "-mod=mod -modcacherw")
		greets(t, dir)
	})
}

const sdkPath = modulePath + "/guest-sdk/go"

// release has the Go command find the SDK of this tree as version v0.0.1 of its module, at a
// proxy of the test's, which has no other module.
func release(t *testing.T) {
	t.Helper()
	proxy := filepath.Join(t.TempDir(), "proxy")
	versions := filepath.Join(proxy, filepath.FromSlash(sdkPath), "@v")
	if err := os.MkdirAll(versions, 0o700); err != nil {
		t.Fatal(err)
	}
	var packed bytes.Buffer
	if err := zip.CreateFromDir(&packed, module.Version{Path: sdkPath, Version: "v0.0.1"}, "guest-sdk/go"); err != nil {
		t.Fatal(err)
	}
	mod, err := os.ReadFile("guest-sdk/go/go.mod")
	if err != nil {
		t.Fatal(err)
	}
	for name, data := range map[string][]byte{"v0.0.1.zip": packed.Bytes(), "v0.0.1.mod": mod, "v0.0.1.info": []byte(`{"Version":"v0.0.1"}`)} {
		if err := os.WriteFile(filepath.Join(versions, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("GOPROXY", "file://"+proxy)
	t.Setenv("GOMODCACHE", filepath.Join(t.TempDir(), "mod"))
	t.Setenv("GOFLAGS", "-modcacherw")
	t.Setenv("GONOSUMDB", "*")
}
