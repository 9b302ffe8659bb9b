package wasm_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/starling-host/starling/internal/wasm"
	"github.com/starling-host/starling/internal/work"
)

// TestRoundTrip reads and writes every available module: the modules that
// go.mod's modules ship, including the official test suite, and Go programs.
func TestRoundTrip(t *testing.T) {
	files := append(shipped(t), programs(t)...)
	features := map[string]int{}
	decoded := 0
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		m, err := wasm.Decode(work.Trusted(context.Background()), b)
		var f *wasm.FormatError
		switch {
		case err == nil:
			decoded++
			roundTrip(t, file, b, m)
		case !errors.As(err, &f):
			t.Errorf("%s: %T %v", file, err, err)
		case f.Feature != "":
			features[f.Feature]++
		}
	}
	t.Logf("%d modules, %d decode; of extensions: %v", len(files), decoded, features)
	if decoded < 1000 {
		t.Errorf("only %d modules decode", decoded)
	}
}

// roundTrip checks that an unedited module is written unchanged, and that new
// bodies for all sections make the same module.
func roundTrip(t *testing.T, file string, b []byte, m *wasm.Module) {
	t.Helper()
	if !bytes.Equal(m.Encode(), b) {
		t.Errorf("%s: encoding changed the module", file)
	}
	before := bodies(m)
	for _, s := range slices.Clone(m.Sections) {
		if s.ID != wasm.SectionCustom {
			m.SetBody(s.ID, bytes.Clone(s.Body))
		}
	}
	again, err := wasm.Decode(work.Trusted(context.Background()), m.Encode())
	if err != nil {
		t.Errorf("%s: encoded anew: %v", file, err)
		return
	}
	if diff := cmp.Diff(before, bodies(again)); diff != "" {
		t.Errorf("%s: encoded anew (-before +after):\n%s", file, diff)
	}
}

// bodies lists the sections of a module, with digests of their content.
func bodies(m *wasm.Module) []string {
	var all []string
	for _, s := range m.Sections {
		all = append(all, fmt.Sprintf("%d %q %d bytes %x", s.ID, s.Name, len(s.Body), sha256.Sum256(s.Body)))
	}
	return all
}

// shipped finds the modules in the source of the dependencies that are in use.
func shipped(t *testing.T) []string {
	list := exec.Command("go", "list", "-deps", "-test", "-f", "{{with .Module}}{{.Path}}@{{.Version}} {{.Dir}}{{end}}", "./...")
	list.Dir = filepath.Join("..", "..")
	out, err := list.Output()
	if err != nil {
		t.Skipf("SKIPPED: no go tool to find modules with: %v", err)
	}
	var files []string
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	slices.Sort(lines)
	for _, line := range slices.Compact(lines) {
		module, dir, _ := strings.Cut(line, " ")
		if strings.HasSuffix(module, "@") || dir == "" {
			continue // a module of this tree
		}
		err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err == nil && !d.IsDir() && strings.HasSuffix(path, ".wasm") {
				files = append(files, path)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return files
}

// programs builds Go guests.
func programs(t *testing.T) []string {
	var files []string
	for name, source := range map[string]string{"json": "../../host/internal/rewrite/testdata/goguest", "dice": "../../tools-wasm/dice"} {
		file := filepath.Join(t.TempDir(), name+".wasm")
		cmd := exec.Command("go", "-C", source, "build", "-buildmode=c-shared", "-o", file, ".")
		cmd.Env = append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm")
		if text, err := cmd.CombinedOutput(); err != nil {
			t.Skipf("SKIPPED: no Go toolchain that builds for wasip1: %v\n%s", err, text)
		}
		files = append(files, file)
	}
	return files
}
