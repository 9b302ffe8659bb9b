package registry

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/starling-host/starling/eventlog/canon"
)

// A native tool is compiled from a copy of its folder, by a compiler and not by the build
// system of its language, which would execute what the folder asks for: build scripts,
// macros that are programs, transforms, wrappers of the compiler.
//
// The compiler itself reads any file that the source names. So it lists what it has read,
// and the module is refused if a file lies outside of the copy.
type native struct {
	toolchain
	version string            // of the compiler
	dir     string            // the copy
	tmp     string            // the folder of dir, and of what the compiler writes
	out     string            // the module
	files   map[string]string // digests of the files in dir, by name with slashes
	cache   cache
}

// natives are the languages, by the files that make a folder a tool.
var natives = []struct {
	language string
	marks    []string
	find     func(*native, context.Context) (version string, err error)
	compile  func(*native, context.Context) error
}{
	{"Rust", []string{"Cargo.toml"}, (*native).findRust, (*native).compileRust},
	{"C", []string{"tool.c"}, (*native).findC, (*native).compileC},
	{"AssemblyScript", []string{"asconfig.json", "assembly/index.ts"}, (*native).findAsc, (*native).compileAsc},
}

// maxFolder bounds the sources of a native tool, in bytes.
const maxFolder = 64 << 20

// buildNative returns the module of a native tool, from the cache if possible. It returns
// nil if the folder is not one.
func buildNative(ctx context.Context, ref, dir string) ([]byte, error) {
	for _, l := range natives {
		if !slices.ContainsFunc(l.marks, func(mark string) bool { _, err := os.Stat(filepath.Join(dir, mark)); return err == nil }) {
			continue
		}
		tmp, err := os.MkdirTemp("", "starling-build-")
		if err != nil {
			return nil, fmt.Errorf("registry: %w", err)
		}
		defer os.RemoveAll(tmp)
		if tmp, err = filepath.EvalSymlinks(tmp); err != nil {
			return nil, fmt.Errorf("registry: %w", err)
		}
		n := &native{tmp: tmp, dir: filepath.Join(tmp, "tool"), out: filepath.Join(tmp, "tool.wasm"), files: map[string]string{}, cache: openCache()}
		folder := filepath.Clean(ref) + string(filepath.Separator)
		n.toolchain = toolchain{language: l.language, ref: ref, places: strings.NewReplacer(
			n.dir+string(filepath.Separator), folder, "--> ./", "--> "+folder, "::: ./", "::: "+folder, "└─ in ", "└─ in "+folder)}
		if err := n.copy(dir); err != nil {
			return nil, err
		}
		if n.version, err = l.find(n, ctx); err != nil {
			return nil, err
		}
		key := n.key(".", l.language, n.version)
		if wasm, ok := n.cache.get(key); ok {
			return wasm, nil
		}
		n.bare = true
		defer Doing(ctx, "building "+ref+" ("+l.language+")")()
		if err := l.compile(n, ctx); err != nil {
			return nil, err
		}
		wasm, err := n.module(n.out)
		if err == nil {
			n.cache.put(key, wasm)
		}
		return wasm, err
	}
	return nil, nil
}

// notSource are files that no source needs: hidden ones, what build systems write or download,
// cases, databases and modules.
var notSource = regexp.MustCompile(`^(\..*|target|node_modules|cases|.*\.wasm|.*\.db([-.]\w+)?)$`)

// copy copies the files of the folder dir. It follows a link only to a file in the folder.
func (n *native) copy(dir string) error {
	var size int64
	err := filepath.WalkDir(dir, func(file string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(dir, file)
		if err != nil {
			return err
		}
		if name != "." && notSource.MatchString(d.Name()) {
			if d.IsDir() {
				return filepath.SkipDir
			}
			return nil
		}
		if d.IsDir() {
			return os.MkdirAll(filepath.Join(n.dir, name), 0o700)
		}
		real, err := filepath.EvalSymlinks(file)
		if err != nil {
			return err
		}
		if !within(dir, real) {
			return n.outside(real)
		}
		info, err := os.Stat(real)
		if err != nil || !info.Mode().IsRegular() {
			return err
		}
		if size += info.Size() + 1<<10; size > maxFolder {
			return &Error{Ref: n.ref, Reason: fmt.Sprintf("the folder has more than %d MiB of files", maxFolder>>20), Hint: "give the folder of the tool alone"}
		}
		content, err := os.ReadFile(real)
		if err != nil {
			return err
		}
		n.files[filepath.ToSlash(name)] = canon.Sum(content).String()
		return os.WriteFile(filepath.Join(n.dir, name), content, 0o600)
	})
	if err != nil && !errors.As(err, new(*Error)) {
		err = fmt.Errorf("registry: %w", err)
	}
	return err
}

// key returns the digest of the files below a folder of the copy and of parts.
func (n *native) key(folder string, parts ...string) canon.Hash {
	k := keyText{}
	k.line("native", append(parts, "1")...) // the last counts changes of the flags
	for _, name := range slices.Sorted(maps.Keys(n.files)) {
		if within(folder, name) {
			k.line("file", name, n.files[name])
		}
	}
	return canon.Sum(k.text.Bytes())
}

func (n *native) outside(file string) error {
	return &Error{Ref: n.ref, Reason: "the tool takes " + file + ", which is outside of its folder", Hint: "copy it into the folder"}
}

// checkRead refuses the tool if the compiler read a file outside of the folders. It reads the
// list of these files, which the compiler wrote as rules of make.
func (n *native) checkRead(list string, folders ...string) error {
	text, err := os.ReadFile(list)
	if err != nil {
		return fmt.Errorf("registry: %w", err)
	}
	for line := range strings.Lines(strings.NewReplacer("\r\n", "\n", "\\\n", " ", `\ `, "\x00", `\#`, "#", "$$", "$").Replace(string(text))) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		_, sources, _ := strings.Cut(line, ": ")
		for _, file := range strings.Fields(sources) {
			file = strings.ReplaceAll(file, "\x00", " ")
			if !filepath.IsAbs(file) { // the compiler maps the copy to "."
				file = filepath.Join(n.dir, file)
			}
			real, err := filepath.EvalSymlinks(file)
			if err != nil {
				return fmt.Errorf("registry: %w", err)
			}
			if !slices.ContainsFunc(folders, func(folder string) bool { return within(folder, real) }) {
				return n.outside(real)
			}
		}
	}
	return nil
}

// missing returns the error for a compiler that is not here.
func (n *native) missing(what string, commands ...string) error {
	return &Error{Ref: n.ref, Reason: "building a folder in " + n.language + " needs " + what, Hint: installer(commands...)}
}

// installer returns the first command whose program is here, or the last one.
func installer(commands ...string) (command string) {
	for _, command = range commands {
		if _, err := exec.LookPath(strings.Fields(command)[0]); err == nil {
			break
		}
	}
	return command
}
