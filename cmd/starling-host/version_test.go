package main

import (
	"bytes"
	"compress/gzip"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// TestLicensesOfEverything requires the licence of each module that the program is built of, on each system, and of
// each file that is embedded.
func TestLicensesOfEverything(t *testing.T) {
	t.Parallel()
	r, err := gzip.NewReader(bytes.NewReader(licensesText))
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	for _, system := range []string{"linux", "darwin", "windows", "freebsd"} {
		list := exec.CommandContext(t.Context(), "go", "list", "-deps", "-f", "{{with .Module}}{{if not .Main}}{{.Path}}|{{.Version}}{{end}}{{end}}", ".")
		list.Env = append(os.Environ(), "GOOS="+system, "CGO_ENABLED=0")
		modules, err := list.Output()
		if err != nil {
			t.Fatal(err)
		}
		for module := range strings.FieldsSeq(string(modules)) {
			path, version, _ := strings.Cut(module, "|")
			found := false
			for line := range strings.Lines(string(text)) {
				found = found || strings.HasPrefix(line, path) && strings.Contains(line, " "+version+" (")
			}
			if !found {
				t.Errorf("%s: no licence of %s %s: go generate ./cmd/starling-host", system, path, version)
			}
		}
	}
	for _, folder := range []string{"../../host/internal/interp", "internal/verifier"} {
		files, err := os.ReadDir(folder)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			if license, _ := os.ReadFile(folder + "/" + f.Name()); strings.HasPrefix(f.Name(), "LICENSE") && !bytes.Contains(text, license) {
				t.Errorf("%s/%s is not in it: go generate ./cmd/starling-host", folder, f.Name())
			}
		}
	}
}
