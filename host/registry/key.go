package registry

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/starling-host/starling/eventlog/chain"
)

// environment names the settings of the Go command that decide bytes and that
// the caller may choose.
var environment = []string{"GOVERSION", "GOEXPERIMENT", "GOWASM", "GOFIPS140"}

// listedPackage is the part of the output of "go list -json" that decides what
// a build reads. The standard library is covered by the version of Go.
type listedPackage struct {
	Dir        string
	ImportPath string
	Name       string
	Standard   bool
	Module     *listedModule
	GoFiles    []string
	SFiles     []string
	HFiles     []string
	SysoFiles  []string
	EmbedFiles []string
}

type listedModule struct {
	Path    string
	Version string
	GoMod   string
}

const listFields = "-json=Dir,ImportPath,Name,Standard,Module,GoFiles,SFiles,HFiles,SysoFiles,EmbedFiles"

// key returns the digest of everything that decides the bytes of the build. It
// is taken over a text of one line per fact; a file is named by its package and
// base name, never by the folder that it lies in, and stands with the digest of
// its content.
func (t toolchain) key(ctx context.Context) (chain.Hash, error) {
	env, err := t.run(ctx, slices.Concat([]string{"env"}, environment)...)
	if err != nil {
		return chain.Hash{}, err
	}
	list, err := t.run(ctx, "list", "-deps", listFields, ".")
	if err != nil {
		return chain.Hash{}, err
	}
	packages, err := decodePackages(list)
	if err != nil {
		return chain.Hash{}, fmt.Errorf("registry: output of go list: %w", err)
	}
	if len(packages) == 0 || packages[len(packages)-1].Name != "main" {
		return chain.Hash{}, &Error{Ref: t.ref, Reason: "the folder holds a Go library, not a program",
			Hint: "a tool is a package main"}
	}
	k := keyText{modules: map[string]bool{}}
	k.line("env", string(env))
	k.line("flags", append(slices.Clone(buildFlags), buildEnv...)...)
	for _, p := range packages {
		if err := k.addPackage(p); err != nil {
			return chain.Hash{}, fmt.Errorf("registry: %w", err)
		}
	}
	return chain.Sum(k.text.Bytes()), nil
}

func decodePackages(list []byte) ([]listedPackage, error) {
	var packages []listedPackage
	for d := json.NewDecoder(bytes.NewReader(list)); ; {
		var p listedPackage
		switch err := d.Decode(&p); {
		case errors.Is(err, io.EOF):
			return packages, nil
		case err != nil:
			return nil, err
		}
		if !p.Standard {
			packages = append(packages, p)
		}
	}
}

// keyText gathers the text that the key is the digest of.
type keyText struct {
	text    bytes.Buffer
	modules map[string]bool // the go.mod files that are in it
}

// line adds one line. Its parts are quoted, so that no two lists of parts give
// the same text.
func (k *keyText) line(kind string, parts ...string) {
	fmt.Fprintf(&k.text, "%s %q\n", kind, parts)
}

func (k *keyText) addPackage(p listedPackage) error {
	k.line("package", p.ImportPath)
	if m := p.Module; m != nil && !k.modules[m.GoMod] {
		k.modules[m.GoMod] = true
		if err := k.addModule(m); err != nil {
			return err
		}
	}
	for _, name := range slices.Concat(p.GoFiles, p.SFiles, p.HFiles, p.SysoFiles, p.EmbedFiles) {
		if err := k.addFile(name, filepath.Join(p.Dir, name)); err != nil {
			return err
		}
	}
	return nil
}

// addModule adds a module's go.mod, which sets the language version and the
// defaults of GODEBUG, and go.sum.
func (k *keyText) addModule(m *listedModule) error {
	k.line("module", m.Path, m.Version)
	if m.GoMod == "" {
		return nil
	}
	if err := k.addFile("go.mod", m.GoMod); err != nil {
		return err
	}
	err := k.addFile("go.sum", strings.TrimSuffix(m.GoMod, ".mod")+".sum")
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

func (k *keyText) addFile(name, path string) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	k.line("file", name, chain.Sum(b).String())
	return nil
}
