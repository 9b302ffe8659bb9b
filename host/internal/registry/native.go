package registry

import (
	"cmp"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
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

// ascScript calls the compiler as a library, with files of the copy alone. The command asc
// would also execute the transforms that asconfig.json and its relatives name.
//
//go:embed asc.mjs
var ascScript string

// ascFlags are the options of the compiler that decide bytes.
var ascFlags = []string{"assembly/index.ts", "--outFile", "tool.wasm", "--optimizeLevel", "3", "--shrinkLevel", "1", "--use", "abort=sdk/host/abort", "--use", "seed=sdk/host/seed"}

// findAsc looks for Node, and for the compiler's package beside the command asc.
func (n *native) findAsc(ctx context.Context) (string, error) {
	node, err := exec.LookPath("node")
	if err != nil {
		return "", n.missing("Node, and there is no node in PATH", "apt-get install nodejs npm", "dnf install nodejs", "pacman -S nodejs npm", "brew install node")
	}
	hint := "npm install -g assemblyscript@0.28"
	asc, err := exec.LookPath("asc")
	if err != nil {
		return "", n.missing("asc, and there is none in PATH", hint)
	}
	real, err := filepath.EvalSymlinks(asc)
	if err != nil {
		return "", n.missing("asc", hint)
	}
	n.path = node
	for _, root := range []string{filepath.Join(real, "..", ".."), filepath.Join(asc, "..", "node_modules", "assemblyscript"), filepath.Join(asc, "..", "..", "assemblyscript")} {
		manifest, err := keyfile.ReadFile(filepath.Join(root, "package.json"), maxSources)
		var p struct{ Name, Version string }
		if err == nil && json.Unmarshal(manifest, &p) == nil && p.Name == "assemblyscript" {
			n.parts = []string{root, filepath.Join(root, "..", "binaryen"), filepath.Join(root, "..", "long")}
			n.flags = []string{"--input-type=module", "--eval", ascScript, "--", filepath.Join(root, "dist", "asc.js")}
			return "asc " + p.Version + "\n" + string(manifest), nil
		}
	}
	return "", n.missing("the npm package assemblyscript, and "+asc+" is not from one", hint)
}

// compileAsc compiles assembly/index.ts.
func (n *native) compileAsc(ctx context.Context) error {
	if _, ok := n.files["assembly/index.ts"]; !ok {
		return &Error{Ref: n.ref, Reason: "the folder has no assembly/index.ts", Hint: "starling-host tool new NAME --lang as"}
	}
	for name := range n.files {
		if config, err := keyfile.ReadFile(filepath.Join(n.dir, filepath.FromSlash(name)), maxSources); err == nil && filepath.Base(name) == "asconfig.json" && strings.Contains(string(config), `"transform"`) {
			return &Error{Ref: n.ref, Reason: "asconfig.json names a transform, which is a program of the folder, so it is not executed",
				Hint: "if you trust the folder, build it yourself and run the module, in the folder: npx asc && starling-host run tool.wasm"}
		}
	}
	if err := n.confine(ctx, n.work, nil, append(n.parts, n.dir)...); err != nil {
		return err
	}
	_, err := n.run(ctx, slices.Concat([]string{n.dir, n.out}, ascFlags)...)
	return err
}

// cFlags decide the bytes of a tool in C. Assembly could include any file without listing it,
// and the date is not in the folder. Mistakes that a newer clang refuses are errors for all.
var cFlags = []string{"--target=wasm32-wasi", "-O2", "-fno-gnu-inline-asm", "-Werror=date-time",
	"-Werror=implicit-function-declaration", "-Werror=int-conversion", "-Werror=incompatible-function-pointer-types", "-Werror=return-type"}

// findC looks for clang and returns its version.
func (n *native) findC(ctx context.Context) (version string, err error) {
	if n.path, err = exec.LookPath("clang"); err != nil {
		return "", n.missingC("clang, and there is none in PATH")
	}
	out, err := n.run(ctx, "--version")
	return string(out), err
}

// compileC compiles the files *.c of the folder, but *_test.c, and links them with the C
// library for WASI. They may include the headers of the folder, of clang and of that library.
func (n *native) compileC(ctx context.Context) error {
	list := filepath.Join(n.work, "list.d")
	system, err := n.run(ctx, slices.Concat(cFlags, []string{"-M", "-xc", "-include", "wasi/api.h", "-include", "stddef.h", os.DevNull})...)
	if err != nil {
		return n.withoutC(err)
	}
	folders := []string{n.dir}
	for _, file := range strings.Fields(string(system)) {
		for _, header := range []string{"/wasi/api.h", "/stddef.h"} {
			folder, found := strings.CutSuffix(filepath.ToSlash(file), header)
			if folder, err := filepath.EvalSymlinks(folder); found && err == nil {
				folders = append(folders, folder)
			}
		}
	}
	parts, programs := slices.Clone(folders), []string{}
	for _, print := range []string{"-print-file-name=libc.a", "-print-file-name=crt1-reactor.o", "-print-libgcc-file-name", "-print-prog-name=wasm-ld", "-print-prog-name=wasm-opt"} { // clang runs wasm-opt where it finds it
		out, err := n.run(ctx, append(slices.Clone(cFlags), print)...)
		if err != nil {
			return n.withoutC(err)
		}
		if path := strings.TrimSpace(string(out)); strings.HasPrefix(print, "-print-prog") {
			programs = append(programs, path)
			n.env = []string{"PATH=" + filepath.Dir(path)} // of the linker, and of no package of another program
		} else if filepath.IsAbs(path) {
			parts = append(parts, filepath.Dir(path))
		}
	}
	if err := n.confine(ctx, n.work, programs, parts...); err != nil {
		return err
	}
	sources, err := fs.Glob(os.DirFS(n.dir), "*.c")
	if err != nil {
		return err
	}
	var objects []string
	for _, name := range sources {
		if strings.HasSuffix(name, "_test.c") {
			continue
		}
		source, object := filepath.Join(n.dir, name), filepath.Join(n.work, name+".o")
		objects = append(objects, object)
		if _, err := n.run(ctx, slices.Concat(cFlags, []string{"-g", "-ffile-prefix-map=" + n.dir + "=.", "-MD", "-MF", list, "-c", "-o", object, source})...); err != nil {
			return n.withoutC(err)
		}
		if err := n.checkRead(list, folders...); err != nil {
			return err
		}
	}
	_, err = n.run(ctx, slices.Concat(cFlags, objects, []string{"-mexec-model=reactor", "-o", n.out})...)
	return n.withoutC(err)
}

// withoutC turns a failure for want of a part of the compiler into one that brings the part.
func (n *native) withoutC(err error) error {
	if failed, ok := errors.AsType[*Error](err); ok {
		if said := regexp.MustCompile(`(wasi/api\.h|libclang_rt\S*|crt1\S*|wasm-ld\S*) ?.*(not found|No such file|doesn't exist|cannot open)|unable to create target`).FindString(failed.Output); said != "" {
			return n.missingC("a complete clang for WASI; it reports: " + said)
		}
	}
	return err
}

func (n *native) missingC(what string) error {
	return n.missing(what, "apt-get install clang lld wasi-libc libclang-rt-dev-wasm32", "dnf install clang lld wasi-libc-devel compiler-rt",
		"pacman -S clang lld wasi-libc wasi-compiler-rt", "brew install llvm lld wasi-libc wasi-runtimes")
}

const rustTarget = "wasm32-unknown-unknown"

// findRust looks for a rustc that can build modules, and returns its version. A rustc of PATH
// may be one that runs another rustc, so the one in the folder that it names is taken.
func (n *native) findRust(ctx context.Context) (string, error) {
	what := "rustc, and there is none in PATH"
	for _, dir := range filepath.SplitList(os.Getenv("PATH")) {
		found, err := exec.LookPath(filepath.Join(dir, "rustc"))
		if err != nil || !filepath.IsAbs(found) {
			continue
		}
		n.path = found
		out, err := n.run(ctx, "--print", "sysroot")
		if ctx.Err() != nil {
			return "", err
		}
		what = "the standard library of Rust for " + rustTarget + ", which " + found + " does not have"
		sysroot := strings.TrimSpace(string(out))
		if _, missing := os.Stat(filepath.Join(sysroot, "lib", "rustlib", rustTarget, "lib")); err == nil && missing == nil {
			n.path = filepath.Join(sysroot, "bin", filepath.Base(found))
			version, err := n.run(ctx, "-vV")
			return string(version), err
		}
	}
	return "", n.missing(what, "rustup target add "+rustTarget, "apt-get install rustc libstd-rust-dev-wasm32",
		"dnf install rust rust-std-static-"+rustTarget, "brew install rustup && rustup default stable && rustup target add "+rustTarget)
}

// compileRust compiles the SDK and then the tool. The library that the SDK becomes is
// cached, too, because it takes most of the time.
func (n *native) compileRust(ctx context.Context) error {
	c, err := n.readCargo(ctx)
	if err != nil {
		return err
	}
	list, library := filepath.Join(n.work, "list.d"), filepath.Join(n.work, "libstarling_tool.rlib")
	root := filepath.Dir(filepath.Dir(n.path))
	var linkers []string
	for _, pattern := range []string{"*", "*/*"} {
		found, _ := filepath.Glob(filepath.Join(root, "lib", "rustlib", "*", "bin", pattern))
		linkers = append(linkers, found...)
	}
	for _, name := range []string{"rust-lld", "wasm-ld", "lld"} {
		if found, err := exec.LookPath(name); err == nil {
			linkers = append(linkers, found)
		}
	}
	if err := n.confine(ctx, n.work, linkers, n.dir, filepath.Join(root, "lib", "rustlib", rustTarget)); err != nil {
		return err
	}
	compile := func(folder, out string, args ...string) error {
		_, err := n.run(ctx, slices.Concat([]string{"--target", rustTarget, "-Copt-level=2", "-Ccodegen-units=1", "-Cpanic=abort", "-Cdebuginfo=2",
			"-Funstable-features", "--remap-path-prefix", n.tmp + "=.", "--remap-path-prefix", n.dir + "=.",
			"--out-dir=" + n.work, "--emit=link=" + out + ",dep-info=" + list}, args, []string{filepath.Join(folder, "src", "lib.rs")})...)
		if err != nil {
			return err
		}
		return n.checkRead(list, folder)
	}
	args := []string{"--crate-type=cdylib", "--crate-name=tool", "--edition=" + c.edition}
	if c.sdk != "" {
		args = append(args, "--extern=starling_tool="+library)
		key := n.key(c.sdk, "library", n.version)
		text, cached := n.cache.get(key)
		if cached {
			err = os.WriteFile(library, text, 0o600)
		} else if err = compile(filepath.Join(n.dir, c.sdk), library, "--crate-type=rlib", "--crate-name=starling_tool", "--edition=2021"); err == nil {
			if text, err = keyfile.ReadFile(library, MaxModuleBytes); err == nil {
				n.cache.put(key, text)
			}
		}
		if err != nil {
			return err
		}
	}
	return compile(n.dir, n.out, args...)
}

type crate struct {
	edition string
	sdk     string // the folder of the SDK, or empty
}

// readCargo reads what a build of the SDK and the tool needs of Cargo.toml, and refuses a
// tool that needs more: cargo would execute what other crates bring.
func (n *native) readCargo(ctx context.Context) (crate, error) {
	text, err := keyfile.ReadFile(filepath.Join(n.dir, "Cargo.toml"), maxSources)
	if err != nil {
		return crate{}, fmt.Errorf("registry: %w", err)
	}
	var m struct {
		Package, Lib, Dependencies map[string]any
		Features, Target           any
		Build                      any `toml:"build-dependencies"`
	}
	if err := decodeTOML(ctx, text, &m); err != nil {
		return crate{}, &Error{Ref: n.ref, Reason: "Cargo.toml: " + err.Error()}
	}
	c, needs := crate{edition: "2015"}, ""
	if edition, ok := m.Package["edition"].(string); ok {
		c.edition = edition
	}
	for _, name := range slices.Sorted(maps.Keys(m.Dependencies)) {
		if name != "starling-tool" {
			needs = "the crate " + name
		} else if from, _ := m.Dependencies[name].(map[string]any); from["path"] == nil {
			needs = "the crate starling-tool from elsewhere than a path in the folder"
		} else {
			c.sdk = path.Clean(fmt.Sprint(from["path"]))
		}
	}
	for section, value := range map[string]any{"build-dependencies": m.Build, "features": m.Features, "target": m.Target} {
		if value != nil {
			needs = "the section " + section + " of Cargo.toml"
		}
	}
	if m.Package["build"] != nil || m.Lib["proc-macro"] != nil || m.Lib["proc_macro"] != nil {
		needs = "a program that runs during the build"
	}
	if _, build := n.files["build.rs"]; build {
		needs = "build.rs"
	}
	if c.sdk != "" && !filepath.IsLocal(c.sdk) {
		return c, outside(c.sdk)
	}
	if needs != "" {
		return c, &Error{Ref: n.ref, Reason: "the tool needs " + needs + ", and cargo would execute programs to build that; the host builds only the tool and the crate starling-tool",
			Hint: "if you trust the folder, build it yourself and run the module, in the folder: cargo build --release --target " + rustTarget + " && starling-host run target/" + rustTarget + "/release/*.wasm"}
	}
	return c, nil
}
