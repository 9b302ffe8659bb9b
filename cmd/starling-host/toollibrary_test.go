package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/starling-host/starling/internal/terminal"
)

// TestToolLibrary runs the cases of every tool of tools-wasm that has some, and of one that is made
// of an OpenAPI document. One has a copy of another one's module.
func TestToolLibrary(t *testing.T) {
	skipShort(t)
	library := filepath.Join("..", "..", "tools-wasm")
	original, err := os.ReadFile(filepath.Join(library, "markdown", "html_markdown.py"))
	if err != nil {
		t.Fatal(err)
	}
	const generated = "# Code generated: a copy of tools-wasm/markdown/html_markdown.py. DO NOT EDIT.\n"
	if made, err := os.ReadFile(filepath.Join(library, "web-text", "html_markdown.py")); err != nil || string(made) != generated+string(original) {
		t.Errorf("tools-wasm/web-text/html_markdown.py is not a copy below the line %q (%v)", generated, err)
	}
	shop := openAPITool(t)
	folders, err := filepath.Glob(filepath.Join(library, "*", "cases"))
	if err != nil || len(folders) == 0 {
		t.Fatalf("%d folders with cases: %v", len(folders), err)
	}
	for _, folder := range append(folders, filepath.Join(shop, "cases")) {
		tool := filepath.Dir(folder)
		t.Run(filepath.Base(tool), func(t *testing.T) {
			var out, failed bytes.Buffer
			a := &app{stdin: strings.NewReader(""), stdout: terminal.New(&out), stderr: terminal.New(&failed)}
			if code := a.execute(t.Context(), []string{"tool", "test", tool}); code != exitOK {
				t.Errorf("exit code %d\n%s%s", code, &out, &failed)
			}
			cases, refused := strings.Count(out.String(), "pass "), 0
			files, err := filepath.Glob(filepath.Join(folder, "*.txtar"))
			if err != nil {
				t.Fatal(err)
			}
			for _, file := range files {
				if content, err := os.ReadFile(file); err != nil {
					t.Fatal(err)
				} else if bytes.Contains(content, []byte("\n-- error.txt --\n")) {
					refused++
				}
			}
			if cases < 3 || refused == 0 {
				t.Errorf("%d cases pass and %d expect an error, want at least 3 and 1", cases, refused)
			}
		})
	}
}

// openAPITool makes a tool of an OpenAPI document that has parameters in every style, and returns
// its folder with the cases for them.
func openAPITool(t *testing.T) string {
	t.Helper()
	from, dir := filepath.Join("internal", "openapi", "testdata", "shop"), filepath.Join(t.TempDir(), "shop")
	var out, failed bytes.Buffer
	if code := Main([]string{"tool", "new", dir, "--from", filepath.Join(from, "openapi.yaml")}, strings.NewReader(""), &out, &failed); code != exitOK {
		t.Fatalf("exit code %d\n%s%s", code, &out, &failed)
	}
	if err := os.Remove(filepath.Join(dir, "cases", "list-books.txtar")); err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(filepath.Join(dir, "cases"), os.DirFS(filepath.Join(from, "cases"))); err != nil {
		t.Fatal(err)
	}
	return dir
}
