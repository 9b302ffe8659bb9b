package registry

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/host/internal/jail"
	"github.com/starling-host/starling/host/internal/source"
	"github.com/starling-host/starling/internal/keyfile"
	"github.com/starling-host/starling/internal/lazy"
	"github.com/starling-host/starling/internal/work"
)

// A native tool is compiled from a copy of its folder, by a compiler and not by the build
// system of its language, which would execute what the folder asks for: build scripts,
// macros that are programs, transforms, wrappers of the compiler.
//
// The compiler itself reads any file that the source names. So the kernel confines it to the copy,
// to its own parts and to a folder for what it writes ([toolchain.confine]). On a system that cannot,
// the compiler lists what it has read, and the module is refused if a file lies outside of the copy.
type native struct {
	toolchain
	version string            // of the compiler
	dir     string            // the copy
	tmp     string            // the folder of dir and work
	work    string            // the folder of what the compiler writes
	out     string            // the module
	parts   []string          // packages that make up the compiler
	files   map[string]string // digests of the files in dir, by name with slashes
	cache   cache
}

// natives are the languages of native tools.
var natives = []nativeLanguage{
	{"Rust", []string{"Cargo.toml"}, (*native).findRust, (*native).compileRust, ""},
	{"C", []string{"tool.c"}, (*native).findC, (*native).compileC, "tool.c"},
	{"AssemblyScript", []string{"asconfig.json", "assembly/index.ts"}, (*native).findAsc, (*native).compileAsc, ""},
}

type nativeLanguage struct {
	name    string
	marks   []string // the files that make a folder a tool
	find    func(*native, context.Context) (version string, err error)
	compile func(*native, context.Context) error
	probe   string // an empty file that shows whether parts of the compiler are missing, or nothing
}

// build returns the module of a native tool, from the cache if possible.
func (l nativeLanguage) build(ctx context.Context, ref, dir, _ string) ([]byte, error) {
	n, err := l.prepare(ref)
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(n.tmp)
	if err := n.copy(dir); err != nil {
		return nil, err
	}
	if n.version, err = l.find(n, ctx); err != nil {
		return nil, err
	}
	key := n.key(".", l.name, n.version)
	module, cached := n.cache.get(key)
	if !cached {
		defer Doing(ctx, "building "+ref+" ("+l.name+")")()
		n.bare = true
		if err := l.compile(n, ctx); err != nil {
			return nil, err
		}
		if module, err = n.module(n.out); err == nil {
			module, err = source.Trim(work.For(ctx, len(module)), module, n.own)
		}
		if err != nil {
			return nil, err
		}
		n.cache.put(key, module)
	}
	return module, nil
}

// own reports whether a file that the compiler names is one of the copy. rustc adds to it a part of
// the crate, behind an @.
func (n *native) own(file string) bool {
	file, _, _ = strings.Cut(file, "/@/")
	_, ok := n.files[path.Clean(file)]
	return ok
}

// prepare makes the folder for a copy. The caller must remove tmp.
func (l nativeLanguage) prepare(ref string) (*native, error) {
	tmp, err := os.MkdirTemp("", "starling-build-")
	if err == nil {
		tmp, err = filepath.EvalSymlinks(tmp)
	}
	if err != nil {
		return nil, fmt.Errorf("registry: %w", err)
	}
	work := filepath.Join(tmp, "out")
	n := &native{tmp: tmp, dir: filepath.Join(tmp, "tool"), work: work, out: filepath.Join(work, "tool.wasm"), files: map[string]string{}, cache: openCache()}
	if err := cmp.Or(os.Mkdir(n.dir, 0o700), os.Mkdir(n.work, 0o700)); err != nil {
		return nil, fmt.Errorf("registry: %w", err)
	}
	folder := filepath.Clean(ref) + string(filepath.Separator)
	n.toolchain = toolchain{language: l.name, ref: ref, places: strings.NewReplacer(
		n.dir+string(filepath.Separator), folder, n.tmp+string(filepath.Separator), folder, "--> ./", "--> "+folder, "::: ./", "::: "+folder, "└─ in ", "└─ in "+folder)}
	return n, nil
}

// notSource are files that no source needs: hidden ones, what build systems write or download,
// cases, databases and modules.
var notSource = lazy.Regexp(`^(\..*|target|node_modules|cases|.*\.wasm|.*\.db([-.]\w+)?)$`)

// copy copies the files of the folder dir. It follows a link only to a file in the folder.
func (n *native) copy(dir string) error {
	from := &folder{root: dir}
	return filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return fmt.Errorf("registry: %w", err)
		}
		name, _ := filepath.Rel(dir, path) // it is below dir
		to := filepath.Join(n.dir, name)
		switch skip := name != "." && notSource().MatchString(d.Name()); {
		case skip && d.IsDir():
			return filepath.SkipDir
		case skip:
			return nil
		case d.IsDir():
			return cmp.Or(checkName(name), os.MkdirAll(to, 0o700))
		}
		content, err := from.read(path)
		if errors.Is(err, keyfile.ErrIrregular) || errors.Is(err, syscall.EISDIR) {
			return nil // a source does not need it
		} else if err != nil {
			return err
		}
		n.files[filepath.ToSlash(name)] = canon.Sum(content).String()
		return os.WriteFile(to, content, 0o600)
	})
}

// key returns the digest of the files below a folder of the copy and of parts.
func (n *native) key(folder string, parts ...string) canon.Hash {
	k := keyText{}
	k.line("native", append(parts, "3")...) // the last counts changes of the flags
	for _, name := range slices.Sorted(maps.Keys(n.files)) {
		if within(folder, name) {
			k.line("file", name, n.files[name])
		}
	}
	return canon.Sum(k.text.Bytes())
}

// checkRead refuses the tool if the compiler read a file outside of the folders, on a system that
// does not confine it. It reads the list of these files, which the compiler wrote as rules of make.
// A line that is not such a rule is refused: it could hide a file.
func (n *native) checkRead(list string, folders ...string) error {
	if jail.Confines() {
		return nil
	}
	text, err := keyfile.ReadFile(list, maxSources)
	if err != nil {
		return fmt.Errorf("registry: %w", err)
	}
	for line := range strings.Lines(strings.NewReplacer("\r\n", "\n", "\\\n", " ", `\ `, "\x00", `\#`, "#", "$$", "$").Replace(string(text))) {
		if line = strings.TrimSpace(line); line == "" || strings.HasPrefix(line, "# env-dep:") {
			continue
		}
		_, sources, ok := strings.Cut(line+" ", ": ")
		if !ok || strings.Contains(sources, `\`) && filepath.Separator == '/' {
			return &refusal{fmt.Sprintf("the compiler's list of what it read has the line %.200q, which may hide a file", line), "rename the files whose names have # or \\"}
		}
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
				return outside(real)
			}
		}
	}
	return nil
}
