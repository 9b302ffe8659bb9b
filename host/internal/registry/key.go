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
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/host/internal/cachefile"
	"github.com/starling-host/starling/internal/keyfile"
	"github.com/starling-host/starling/internal/lazy"
)

// environment names the settings of the Go command that decide bytes and that
// the caller may choose.
var environment = []string{"GOVERSION", "GOEXPERIMENT", "GOWASM", "GOFIPS140"}

// listedPackage is the part of the output of "go list -json" that decides
// which files a build reads. The standard library is covered by the version of
// Go.
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
	Replace *listedModule
}

// downloaded reports whether the module is in the module cache, whose content
// go.sum vouches for. A module replaced by a folder has no version.
func (m *listedModule) downloaded() bool {
	if m != nil && m.Replace != nil {
		m = m.Replace
	}
	return m != nil && m.Version != ""
}

// sdk reports whether the module is the SDK for tools in Go, wherever that lies: a tool may
// replace it by a folder that holds it.
func (m *listedModule) sdk() bool {
	if m == nil || m.Path != "github.com/starling-host/starling/guest-sdk/go" {
		return false
	}
	text, err := keyfile.ReadFile(m.GoMod, maxSources)
	return err == nil && regexp.MustCompile(`(?m)^module github\.com/starling-host/starling/guest-sdk/go$`).Match(text)
}

const listFields = "-json=Dir,ImportPath,Name,Standard,Module,GoFiles,SFiles,HFiles,SysoFiles,EmbedFiles"

// key returns the digest of everything that decides the bytes of the build. It
// is taken over a text of one line per fact; a file is named by its package and
// base name, never by the folder that it lies in, and stands with the digest of
// its content.
//
// It refuses a tool that reaches for files which are neither in the folder's Go
// module nor in a module that was downloaded.
func (t toolchain) key(ctx context.Context) (key canon.Hash, k keyText, err error) {
	env, err := t.run(ctx, slices.Concat([]string{"env"}, environment, []string{"GOMOD", "GOMODCACHE", "GOROOT", "GOCACHE", "GOENV"})...)
	if err != nil {
		return key, k, err
	}
	list, err := t.run(ctx, "list", "-deps", listFields, ".")
	if err != nil {
		return key, k, err
	}
	var packages []listedPackage
	for d := json.NewDecoder(bytes.NewReader(list)); ; {
		var p listedPackage
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return key, k, fmt.Errorf("registry: output of go list: %w", err)
		}
		if !p.Standard {
			packages = append(packages, p)
		}
	}
	if len(packages) == 0 || packages[len(packages)-1].Name != "main" {
		return key, k, &Error{Ref: t.ref, Reason: "the folder holds a Go library, not a program",
			Hint: nearby(t.ref, t.flags[1], "a tool is a package main")}
	}
	settings := strings.Split(strings.TrimSuffix(string(env), "\n"), "\n")
	n := len(environment)
	if len(settings) != n+5 {
		return key, k, fmt.Errorf("registry: output of go env: %q", env)
	}
	k = keyText{ref: t.ref, root: filepath.Dir(settings[n]), modcache: settings[n+1], goroot: settings[n+2], gocache: settings[n+3], goenv: settings[n+4],
		modules: map[string]bool{}, bases: map[string]bool{}}
	k.line("env", settings[:n]...)
	k.line("flags", append(slices.Clone(buildFlags), buildEnv...)...)
	for _, p := range packages {
		if err := k.addPackage(p); err != nil {
			return key, k, err
		}
	}
	return canon.Sum(k.text.Bytes()), k, nil
}

// keyText gathers the text that the key is the digest of.
type keyText struct {
	ref      string // the folder, as the user calls it
	root     string // the folder of its go.mod
	modcache string
	text     bytes.Buffer
	modules  map[string]bool // the go.mod files that are in it
	bases    map[string]bool // the folders that its files are in

	goroot, gocache, goenv string
}

// line adds one line. Its parts are quoted, so that no two lists of parts give
// the same text.
func (k *keyText) line(kind string, parts ...string) {
	fmt.Fprintf(&k.text, "%s %q\n", kind, parts)
}

// addPackage adds the files of a package, and of its module the go.mod, which sets
// the language version and the defaults of GODEBUG, and go.sum.
func (k *keyText) addPackage(p listedPackage) error {
	k.line("package", p.ImportPath)
	if m := p.Module; m != nil && !k.modules[m.GoMod] {
		k.modules[m.GoMod] = true
		k.line("module", m.Path, m.Version)
		if m.GoMod != "" {
			if _, err := k.addFile(p, "go.mod", m.GoMod); err != nil {
				return err
			}
			if _, err := k.addFile(p, "go.sum", strings.TrimSuffix(m.GoMod, ".mod")+".sum"); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
		}
	}
	for _, name := range slices.Concat(p.GoFiles, p.SysoFiles, p.EmbedFiles) {
		if _, err := k.addFile(p, name, filepath.Join(p.Dir, name)); err != nil {
			return err
		}
	}
	for _, name := range slices.Concat(p.SFiles, p.HFiles) {
		content, err := k.addFile(p, name, filepath.Join(p.Dir, name))
		if err != nil {
			return err
		}
		if len(p.SFiles) > 0 && bytes.Contains(knownIncludes().ReplaceAll(content, nil), []byte("include")) {
			return &Error{Ref: k.ref, Reason: fmt.Sprintf("package %s: the assembler could include any file of this machine by %s", p.ImportPath, name),
				Hint: "write it without the word include, other than for textflag.h, funcdata.h and go_asm.h"}
		}
	}
	return nil
}

// knownIncludes are the files that the assembler has from Go itself. It prefers a
// file of the same name in the package, which is then among HFiles.
var knownIncludes = lazy.Regexp(`(?m)^#include "(textflag|funcdata|go_asm)\.h"$`)

// addFile adds a file of a package and returns its content. With all links
// followed, the file has to lie in the folder's Go module, in the module cache if
// the package is from a downloaded module, or in a copy of the SDK.
func (k *keyText) addFile(p listedPackage, name, path string) ([]byte, error) {
	if err := checkName(name); err != nil {
		return nil, err
	}
	base := k.root
	switch {
	case within(k.root, path):
	case p.Module.downloaded():
		base = k.modcache
	case p.Module.sdk():
		base = filepath.Dir(p.Module.GoMod)
	}
	base, err := filepath.EvalSymlinks(base)
	if err != nil {
		return nil, fmt.Errorf("registry: %w", err)
	}
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return nil, fmt.Errorf("registry: %w", err)
	}
	if !within(base, real) {
		return nil, &Error{Ref: k.ref, Reason: fmt.Sprintf("package %s takes %s, which is outside of the Go module in %s", p.ImportPath, real, k.root),
			Hint: "copy it into the module; for what go.mod replaces by another folder: go mod vendor"}
	}
	k.bases[base] = true
	content, err := keyfile.ReadFile(real, maxSources)
	if err != nil {
		return nil, fmt.Errorf("registry: %w", err)
	}
	k.line("file", name, canon.Sum(content).String())
	return content, nil
}

// maxEntries bounds the build cache. The entries that were used longest ago go
// first.
const maxEntries = 64

const entrySuffix = ".build"

// CacheDir returns the folder of the build cache, whether or not it exists:
// "starling-host/build" in the user's cache folder. It returns an error if the
// user has none, for example because HOME is not set; tools are then built anew
// each time.
func CacheDir() (string, error) {
	base, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	return filepath.Join(base, "starling-host", "build"), nil
}

// cache is the folder of built modules, each in a cachefile; empty for no cache.
// All failures mean a build instead of a hit and are not reported: a cache decides
// how fast a module is found, never which one. So it is not used where another user
// could put modules.
type cache string

func openCache() cache {
	dir, err := CacheDir()
	if err != nil || cachefile.Folder(dir) != nil {
		return ""
	}
	return cache(dir)
}

func (c cache) path(key canon.Hash) string {
	return filepath.Join(string(c), key.String()+entrySuffix)
}

// get returns the module stored under key, if it exists and is whole.
func (c cache) get(key canon.Hash) ([]byte, bool) {
	if c == "" {
		return nil, false
	}
	wasm, ok := cachefile.Read(c.path(key), MaxModuleBytes)
	if ok {
		now := time.Now()
		_ = os.Chtimes(c.path(key), now, now) // put removes by this age
	}
	return wasm, ok
}

// put stores a module, and removes the entries beyond maxEntries, least recently used first. A
// process that dies in here leaves a temporary file, which is removed like an entry in time, and
// never half an entry.
func (c cache) put(key canon.Hash, wasm []byte) {
	if c == "" || cachefile.Write(c.path(key), "new-*"+entrySuffix, wasm) != nil {
		return
	}
	folder := os.DirFS(string(c))
	names, _ := fs.Glob(folder, "*"+entrySuffix) // the pattern is right
	used := map[string]time.Time{}
	for _, name := range names {
		if info, err := fs.Stat(folder, name); err == nil {
			used[name] = info.ModTime()
		}
	}
	slices.SortStableFunc(names, func(a, b string) int { return used[b].Compare(used[a]) })
	for _, name := range names[min(len(names), maxEntries):] {
		os.Remove(filepath.Join(string(c), name))
	}
}
