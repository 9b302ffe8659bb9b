package registry

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"debug/elf"
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
	"time"

	"github.com/starling-host/starling/host/internal/jail"
	"github.com/starling-host/starling/host/internal/program"
	"github.com/starling-host/starling/internal/display"
	"github.com/starling-host/starling/internal/keyfile"
	"github.com/starling-host/starling/internal/lazy"
	"github.com/starling-host/starling/internal/lists"
)

// buildFlags are the arguments of "go build" that decide bytes. The module
// holds no path, no version control state, no profile and no debug information
// but the names of its functions, which a profile of its fuel shows. So the same
// sources give the same module on every machine.
var buildFlags = []string{
	"-buildmode=c-shared", "-trimpath", "-buildvcs=false", "-pgo=off", "-ldflags=-w -buildid=",
}

// buildEnv overrides settings of the user's shell or "go env -w". It keeps the Go
// command from executing programs that the folder chooses: another toolchain, or
// git with the folder's configuration.
var buildEnv = []string{
	"GOOS=wasip1", "GOARCH=wasm", "CGO_ENABLED=0", "GO111MODULE=on", "GOWORK=off", "GOTOOLCHAIN=local", "GOFLAGS=-trimpath -buildvcs=false",
}

// maxOutput bounds the kept messages of a toolchain.
const maxOutput = 64 << 10

// A language builds the tools of a folder that has one of its files.
type language struct {
	marks []string // names of files, and patterns of names
	build func(ctx context.Context, ref, dir, mark string) ([]byte, error)
}

// languages returns all languages. The manifest of an extension comes last: its source may lie
// beside it.
func languages() []language {
	return slices.Concat([]language{{[]string{"*.go"}, buildGo}, {scripts, buildScript}, {[]string{pythonTool}, packFolder}},
		lists.Map(natives, func(l nativeLanguage) language { return language{l.marks, l.build} }), []language{{[]string{manifestName}, linkExtension}})
}

// marked returns the names of the files of a folder that match the first mark which any does.
func (l language) marked(dir string) []string {
	for _, mark := range l.marks {
		if names, err := fs.Glob(os.DirFS(dir), mark); err == nil && len(names) > 0 {
			return names
		}
	}
	return nil
}

// build returns the module of the tool in the folder dir, which the user calls ref.
func build(ctx context.Context, ref, dir string) ([]byte, error) {
	var chosen language
	var mark string
	for _, l := range languages() {
		switch names := l.marked(dir); {
		case names == nil:
		case mark == "":
			chosen, mark = l, names[0]
		case names[0] != manifestName:
			return nil, &Error{Ref: ref, Reason: fmt.Sprintf("the folder has tools in two languages: %s and %s", mark, names[0]), Hint: "keep each tool in a folder of its own"}
		}
	}
	if mark != "" {
		return chosen.build(ctx, ref, dir, mark)
	}
	marks := slices.Concat(lists.Map(languages(), func(l language) []string { return l.marks })...)
	return nil, &Error{Ref: ref, Reason: "the folder has no tool: it needs one of " + strings.Join(marks, ", "), Hint: nearby(ref, dir, hintReference)}
}

// isTool reports whether a folder has a tool, and not just a library in Go.
func isTool(dir string) bool {
	return slices.ContainsFunc(languages(), func(l language) bool {
		return slices.ContainsFunc(l.marked(dir), func(name string) bool {
			if filepath.Ext(name) != ".go" {
				return true
			}
			text, err := keyfile.ReadFile(filepath.Join(dir, name), maxSources)
			return err == nil && !strings.HasSuffix(name, "_test.go") && packageMain().Match(text)
		})
	})
}

// nearby returns a hint at the tools in the folders of a folder, or in the folders above it, and
// otherwise the hint that it is given.
func nearby(ref, dir, otherwise string) string {
	var found []string
	entries, _ := os.ReadDir(dir) // of a file none
	for _, e := range entries {
		if e.IsDir() && !strings.HasPrefix(e.Name(), ".") && !slices.Contains([]string{"sdk", "node_modules", "target"}, e.Name()) && isTool(filepath.Join(dir, e.Name())) {
			found = append(found, filepath.Join(ref, e.Name()))
		}
	}
	for up := ".."; len(found) == 0 && len(up) < 10; up = filepath.Join(up, "..") {
		if isTool(filepath.Join(dir, up)) {
			found = append(found, filepath.Join(ref, up))
		}
	}
	switch len(found) {
	case 0:
		return otherwise
	case 1:
		return "there is a tool in " + found[0] + ": give that folder"
	}
	return "there are tools in " + strings.Join(found[:min(len(found), 5)], ", ") + ": give one of these folders"
}

var packageMain = lazy.Regexp(`(?m)^package main\b`)

// buildGo returns the module of a Go tool, from the cache if possible.
func buildGo(ctx context.Context, ref, dir, _ string) ([]byte, error) {
	t, err := findGo(ref, dir)
	if err != nil {
		return nil, err
	}
	key, k, err := t.key(ctx)
	if err != nil {
		return nil, err
	}
	cache := openCache()
	if wasm, ok := cache.get(key); ok {
		return wasm, nil
	}
	tmp, err := os.MkdirTemp("", "starling-build-")
	if err != nil {
		return nil, fmt.Errorf("registry: %w", err)
	}
	defer os.RemoveAll(tmp)
	defer Doing(ctx, "building "+ref+" (Go)")()
	out := filepath.Join(tmp, "tool.wasm")
	compiler := t
	if err := compiler.confineGo(ctx, k, tmp); err != nil {
		return nil, err
	}
	if _, err := compiler.run(ctx, slices.Concat([]string{"build"}, buildFlags, []string{"-o", out, "."})...); err != nil {
		return nil, err
	}
	wasm, err := t.module(out)
	if err != nil {
		return nil, err
	}
	// A source that changed during the build would be cached under the key of
	// its earlier text, and may have been outside of the folder meanwhile.
	again, _, err := t.key(ctx)
	if err != nil {
		return nil, err
	}
	if again == key {
		cache.put(key, wasm)
	}
	return wasm, nil
}

// toolchain runs a command that builds a tool.
type toolchain struct {
	path     string            // of the command
	language string            // the language it builds
	ref      string            // the folder, as the user calls it
	flags    []string          // before all other arguments
	env      []string          // overrides of the user's environment
	bare     bool              // whether the command has no other environment than [bareEnv]
	cell     *jail.Config      // what the command may open, where the system can confine it, or nil
	places   *strings.Replacer // makes places in messages those of the user's files, or nil
}

// bareEnv are the variables that a command needs to find its parts. A compiler that reads
// others into a module would give a tool's author the secrets of the user.
var bareEnv = []string{"PATH", "TMPDIR", "TEMP", "TMP", "SYSTEMROOT"}

// findGo returns the Go command for the tool in a folder.
func findGo(ref, dir string) (t toolchain, err error) {
	t = toolchain{language: "Go", ref: ref, flags: []string{"-C", dir}, env: buildEnv}
	if t.path, err = exec.LookPath("go"); err != nil {
		err = t.missing("go, and there is none in PATH", "apt-get install golang-go", "dnf install golang", "pacman -S go", "winget install GoLang.Go", "brew install go")
	}
	return t, err
}

// missing returns the error for a compiler that is not here. The commands install it.
func (t toolchain) missing(what string, commands ...string) error {
	e := &Error{Ref: t.ref, Reason: "building a folder in " + t.language + " needs " + what}
	for _, e.Hint = range commands { // the first whose program is here, or the last
		if _, err := exec.LookPath(strings.Fields(e.Hint)[0]); err == nil {
			break
		}
	}
	return e
}

// Compiler is what builds folders in a language on this machine. Without one Err is an [*Error].
type Compiler struct {
	Language, Version, Path string
	Err                     error
}

// Compilers looks for the compilers of all languages that need one.
func Compilers(ctx context.Context) (all []Compiler) {
	add := func(t toolchain, version string, err error) {
		version, _, _ = strings.Cut(strings.TrimSpace(version), "\n")
		all = append(all, Compiler{t.language, version, t.path, err})
	}
	t, err := findGo("", ".")
	var version []byte
	if err == nil {
		version, err = t.run(ctx, "env", "GOVERSION")
	}
	add(t, string(version), err)
	for _, l := range natives {
		n, err := l.prepare("")
		if err != nil {
			add(toolchain{language: l.name}, "", err)
			continue
		}
		if n.version, err = l.find(n, ctx); err == nil && l.probe != "" {
			if err = cmp.Or(os.WriteFile(filepath.Join(n.dir, l.probe), nil, 0o600)); err == nil {
				err = l.compile(n, ctx)
			}
		}
		add(n.toolchain, n.version, err)
		os.RemoveAll(n.tmp)
	}
	return all
}

type progressKey struct{}

// WithProgress returns a context in which [Doing] calls began.
func WithProgress(ctx context.Context, began func(what string) (ended func())) context.Context {
	return context.WithValue(ctx, progressKey{}, began)
}

// Doing reports to the function given to [WithProgress] that a step begins that can take
// seconds, such as "building ./tool (Go)". The caller must call the returned function at the
// end.
func Doing(ctx context.Context, what string) (ended func()) {
	if began, ok := ctx.Value(progressKey{}).(func(string) func()); ok && began != nil {
		return began(what)
	}
	return func() {}
}

// module reads the module that the command has written.
func (t toolchain) module(out string) ([]byte, error) {
	info, err := os.Stat(out)
	if err != nil {
		return nil, fmt.Errorf("registry: %s wrote no module: %w", filepath.Base(t.path), err)
	}
	if info.Size() > MaxModuleBytes {
		return nil, tooLarge(t.ref, info.Size())
	}
	return keyfile.ReadFile(out, MaxModuleBytes)
}

// run runs the command and returns what it wrote to standard output. When
// ctx ends, the command is interrupted, which makes it remove its own temporary
// files, and killed when it does not end soon after.
//
// The command is started in the root of the file system. In the folder of the tool,
// a relative path of the environment, or a version manager that stands in for the
// command, would find programs of the tool's author.
func (t toolchain) run(ctx context.Context, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, t.path, slices.Concat(t.flags, args)...)
	cmd.Dir = filepath.VolumeName(t.path) + string(filepath.Separator)
	cmd.Env = cmd.Environ() // it has PWD for Dir
	if t.bare {
		cmd.Env = slices.DeleteFunc(cmd.Env, func(variable string) bool {
			name, _, _ := strings.Cut(variable, "=")
			return !slices.Contains(bareEnv, strings.ToUpper(name))
		})
	}
	cmd.Env = append(cmd.Env, t.env...)
	if t.cell != nil {
		self, err := program.Path()
		if err == nil {
			err = jail.Confine(cmd, self, *t.cell)
		}
		if err != nil {
			return nil, fmt.Errorf("registry: %s cannot be confined: %w", t.path, err)
		}
	}
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 5 * time.Second
	var stdout bytes.Buffer
	var stderr limitedBuffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	if err == nil {
		return stdout.Bytes(), nil
	}
	if ctx.Err() != nil {
		return nil, fmt.Errorf("registry: build of %s: %w", t.ref, ctx.Err())
	}
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		e := &Error{Ref: t.ref, Reason: "the tool does not build", Output: stderr.String()}
		if t.places != nil {
			e.Output = t.places.Replace(e.Output)
		}
		if t.cell != nil && regexp.MustCompile(`(?i)permission denied|os error 13|EACCES`).MatchString(e.Output) {
			e.Reason, e.Hint = "the tool takes a file which is outside of its folder", "copy it into the folder"
		}
		for _, c := range buildHints {
			if c.language == t.language && c.said().MatchString(e.Output) {
				e.Hint = strings.ReplaceAll(c.hint, "FOLDER", display.ShellWord(t.ref))
				break
			}
		}
		return nil, e
	}
	return nil, fmt.Errorf("registry: %s %s: %w", filepath.Base(t.path), args[0], err)
}

// relativePlace matches the place in a message of the Go command or the bundler, which
// begins at the tool's folder.
var relativePlace = lazy.Regexp(`(?m)^([ \t]*)(?:\./)?([^/\s:][^\n:]*\.(?:go|[cm]?[jt]sx?):\d+)`)

// placedIn returns messages with the places in a folder as the user calls it.
func placedIn(folder, output string) string {
	return relativePlace().ReplaceAllStringFunc(output, func(found string) string {
		part := relativePlace().FindStringSubmatch(found)
		return part[1] + filepath.Join(folder, part[2])
	})
}

// buildHints are hints for what compilers say. The first that fits counts.
var buildHints = []struct {
	language string
	said     func() *regexp.Regexp
	hint     string
}{
	{"Go", lazy.Regexp(`GOTOOLCHAIN=local|invalid go version`), "install that Go from https://go.dev/dl: a folder does not choose the toolchain that is executed"},
	{"Go", lazy.Regexp(`go\.mod file not found`), "make the folder a module, there: go mod init example.com/tool && go get github.com/starling-host/starling/guest-sdk/go"},
	{"Go", lazy.Regexp(`replacement directory \./sdk does not exist`), restoreSDK + "go" + copySDK},
	{"Rust", lazy.Regexp(`couldn't read \S*/sdk/src/lib\.rs`), restoreSDK + "rust" + copySDK},
	{"C", lazy.Regexp(`'sdk/starling\.h' file not found`), restoreSDK + "c" + copySDK},
	{"AssemblyScript", lazy.Regexp(`File 'sdk(\.ts|/\S*)' not found`), restoreSDK + "as" + copySDK},
	{"AssemblyScript", lazy.Regexp(`'sdk/host/abort' not found`), `the tool does not use the SDK: write import { tool } from "../sdk" and export * from "../sdk/exports"`},
	{"Rust", lazy.Regexp(`couldn't read \S*src/lib\.rs`), "a tool in Rust is a library: its source is src/lib.rs"},
	{"Rust", lazy.Regexp(`undeclared crate or module|unlinked crate`), "the host builds the tool with the crate starling-tool alone; FOLDER/README.md describes how to use other crates"},
	{"Go", lazy.Regexp(`missing go\.sum entry`), "go -C FOLDER mod tidy"},
	{"Go", lazy.Regexp(`Get "http|GOPROXY=off|GOPROXY list is not the empty string`), "the tool needs a module that is not on this machine: with a network, go -C FOLDER mod vendor keeps it in the folder"},
}

const (
	restoreSDK = "the folder lacks sdk, a part of the tool; restore it: starling-host tool new /tmp/fresh --lang "
	copySDK    = " && cp -r /tmp/fresh/sdk FOLDER"
)

// limitedBuffer keeps the first maxOutput bytes and drops the rest.
type limitedBuffer struct{ bytes.Buffer }

func (b *limitedBuffer) Write(p []byte) (int, error) {
	b.Buffer.Write(p[:min(len(p), maxOutput-b.Len())])
	return len(p), nil
}

// confine makes the kernel confine the command, from here on: it may execute itself and the
// programs, read what it and they are linked with and the parts, and write the folder work, where
// its temporary files are. It has no network. Parts and programs that are missing are left out.
func (t *toolchain) confine(ctx context.Context, work string, programs []string, parts ...string) error {
	if !jail.Confines() {
		return nil
	}
	cell := &jail.Config{Write: []string{work, os.DevNull}, Read: []string{"/dev/urandom"}}
	for _, part := range parts {
		if real, err := filepath.EvalSymlinks(part); err == nil && filepath.IsAbs(part) {
			cell.Read = append(cell.Read, real)
		}
	}
	for _, path := range append([]string{t.path}, programs...) {
		real, err := filepath.EvalSymlinks(path)
		info, missing := os.Stat(path)
		if err != nil || missing != nil || !info.Mode().IsRegular() || !filepath.IsAbs(path) {
			continue
		}
		linked, err := linkedWith(ctx, real)
		if errors.As(err, new(*elf.FormatError)) && path == t.path {
			return &Error{Ref: t.ref, Reason: path + " is not a compiler but a script that starts one, and a build is confined to the compiler", Hint: "put the folder of the compiler itself first in PATH"}
		} else if err != nil {
			return fmt.Errorf("registry: %s: %w", path, err)
		}
		cell.Load = append(append(cell.Load, real), linked...)
	}
	slices.Sort(cell.Load)
	cell.Load = slices.Compact(cell.Load)
	t.cell = cell
	t.env = append(slices.Clone(t.env), "TMPDIR="+work, "OPENSSL_CONF="+os.DevNull)
	return nil
}

// confineGo confines the Go command, which has listed and fetched what the tool needs by now. It reads
// the folders that the key is of, and keeps the packages that it compiles in its own cache.
func (t *toolchain) confineGo(ctx context.Context, k keyText, work string) error {
	if command := filepath.Join(k.goroot, "bin", "go"); jail.Confines() {
		if _, err := os.Stat(command); err == nil { // the one of PATH may be a script that starts it
			t.path = command
		}
	}
	work, err := filepath.EvalSymlinks(work)
	if err == nil {
		err = os.MkdirAll(k.gocache, 0o700)
	}
	if err != nil {
		return fmt.Errorf("registry: %w", err)
	}
	if err := t.confine(ctx, work, nil, append(slices.Collect(maps.Keys(k.bases)), k.modcache, k.goenv)...); err != nil || t.cell == nil {
		return err
	}
	t.cell.Write = append(t.cell.Write, k.gocache)
	for _, pattern := range []string{"", "*"} { // some distributions link to the folders in it
		names, _ := filepath.Glob(filepath.Join(k.goroot, pattern))
		for _, name := range names {
			if real, err := filepath.EvalSymlinks(name); err == nil {
				t.cell.Load = append(t.cell.Load, real)
			}
		}
	}
	t.env = append(t.env, "GOTMPDIR="+work, "GOPROXY=off")
	return nil
}

// library matches a file in the list of a dynamic linker: "NAME => FILE (ADDRESS)", or without NAME.
var library = lazy.Regexp(`(?:^|=> |\t)(/.*) \(0x[0-9a-f]+\)$`)

// linkedWith returns the dynamic linker of a program and the libraries that it loads.
func linkedWith(ctx context.Context, program string) (files []string, err error) {
	f, err := elf.Open(program)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	for _, p := range f.Progs {
		if p.Type != elf.PT_INTERP {
			continue
		}
		name := make([]byte, min(p.Filesz, 4096))
		if _, err := p.ReadAt(name, 0); err != nil {
			return nil, err
		}
		linker := string(bytes.TrimRight(name, "\x00"))
		list, err := exec.CommandContext(ctx, linker, "--list", program).Output()
		if err != nil {
			return nil, fmt.Errorf("its libraries: %w", err)
		}
		files = append(files, linker)
		for lines := bufio.NewScanner(bytes.NewReader(list)); lines.Scan(); {
			if found := library().FindStringSubmatch(lines.Text()); found != nil {
				files = append(files, found[1])
			}
		}
	}
	return files, nil
}
