package registry

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"

	"github.com/starling-host/starling/host/internal/component"
	"github.com/starling-host/starling/host/internal/interp"
	"github.com/starling-host/starling/host/internal/rewrite"
	"github.com/starling-host/starling/internal/keyfile"
	"github.com/starling-host/starling/internal/work"
)

// MaxModuleBytes is the size of the largest module that is read or kept: 64
// MiB, several times the largest that a language's compiler was seen to write.
const MaxModuleBytes = 64 << 20

// Module is a module that was found.
type Module struct {
	Wasm   []byte // the module's bytes: as on disk, or of the core module that a component became
	Name   string // the file's name without ".wasm" or ".py", or the folder's: the name of a WASI command
	Source string // the absolute path that it was read or built from; empty for run_js and run_py
}

// Error is the reason why a reference leads to no module.
type Error struct {
	Ref    string // the reference, as given
	Reason string // the fault of the reference
	Hint   string // the remedy, or empty
	Output string // the toolchain's messages, or empty: the tool was found but does not build
}

// Error returns the reference and the reason, and on further lines the toolchain's messages.
// It leaves out the hint.
func (e *Error) Error() string {
	return strings.TrimRight(fmt.Sprintf("registry: %s: %s\n%s", e.Ref, e.Reason, e.Output), "\n")
}

// Advice implements [hint.Hinted].
func (e *Error) Advice() string { return e.Hint }

const hintReference = "give a .wasm file, a file in Python, TypeScript or JavaScript, or a folder with a tool in Go, TypeScript, JavaScript, Python, Rust, C or AssemblyScript; to see a tool at work: starling-host demo"

// sources are files that a tool may be written in, which cannot be executed themselves.
var sources = map[string]struct{ language, hint string }{
	".go":   {"Go", "pass its folder"},
	".c":    {"C", "name it tool.c and pass its folder, or compile a program: clang --target=wasm32-wasi -O2 -o tool.wasm FILE"},
	".cpp":  {"C++", "compile it: clang++ --target=wasm32-wasip1 -O2 -o tool.wasm FILE"},
	".rs":   {"Rust", "pass its folder, with a Cargo.toml: starling-host tool new NAME --lang rust"},
	".zig":  {"Zig", "compile it: zig build-exe -target wasm32-wasi -O ReleaseSmall FILE"},
	".rb":   {"Ruby", "a tool is WebAssembly; write it in a language that compiles to that"},
	".wat":  {"the text format of WebAssembly", "assemble it: wat2wasm -o tool.wasm FILE, or wasm-tools parse FILE -o tool.wasm"},
	".wit":  {"the interface of a component", "give the component that implements it; build one: cargo build --target wasm32-wasip2 (with the crate wit-bindgen), cargo component build, wit-bindgen c, or npx @bytecodealliance/jco componentize (componentize-js)"},
	".zip":  {"an archive", "unpack it, and give the .wasm file in it, or the folder of its source: unzip FILE"},
	".yaml": {"YAML", "the file of an agent is run with a goal: starling-host agent run FILE GOAL"},
}

// Open returns the module that ref names: the path of a .wasm file, of a file in Python, TypeScript
// or JavaScript, which is packed with its interpreter, or of a folder with a Go program, which is
// built for wasip1 as a reactor, or with a tool.py, tool.ts or tool.js. The path of a tool.py means
// its folder. A relative path begins at the working directory. If the file run_js or run_py does
// not exist, that name is the tool built into the program.
//
// A folder may be a module of its own or a package of a larger one. A Go workspace
// is not looked at, so that the tool's own go.mod alone decides. The network is
// used only when the Go command needs modules that are missing from its cache.
//
// Of a component Open returns the core module that its parts are joined to.
//
// Errors are of type [*Error], except for the end of ctx, for failures of the file
// system, and for a component that is refused: a [*rewrite.Refusal].
func Open(ctx context.Context, ref string) (Module, error) {
	info, err := os.Stat(ref)
	switch {
	case interp.Tools[ref] != nil && errors.Is(err, fs.ErrNotExist):
		return Module{Wasm: interp.Tools[ref].Wasm(), Name: ref}, nil
	case ref == "" || errors.Is(err, fs.ErrNotExist):
		return Module{}, &Error{Ref: ref, Reason: "no such file or folder", Hint: hintReference}
	case err != nil:
		return Module{}, fmt.Errorf("registry: %w", err)
	}
	source, err := filepath.Abs(ref)
	if err != nil {
		return Module{}, fmt.Errorf("registry: %w", err)
	}
	dir, file := source, ""
	if !info.IsDir() {
		dir, file = filepath.Split(source)
	}
	// A link to a folder is followed: the Go command would look for go.mod above the link.
	if dir, err = filepath.EvalSymlinks(dir); err != nil {
		return Module{}, fmt.Errorf("registry: %w", err)
	}
	m := Module{Name: strings.TrimSuffix(strings.TrimSuffix(filepath.Base(source), ".wasm"), ".py"), Source: source}
	switch {
	case info.IsDir():
		m.Wasm, err = build(ctx, ref, dir)
	case file == "index.ts" && filepath.Base(dir) == "assembly" && isTool(filepath.Dir(dir)):
		err = &Error{Ref: ref, Reason: "the file is a part of a tool in AssemblyScript", Hint: nearby(ref, source, hintReference)}
	case isScript().MatchString(filepath.Ext(file)):
		m.Name = strings.TrimSuffix(m.Name, filepath.Ext(file))
		if err = checkFile(ref, info); err == nil {
			m.Wasm, err = buildScript(ctx, ref, dir, file)
		}
	case file == pythonTool:
		m.Wasm, err = packFolder(ctx, ref, dir, file)
	default:
		m.Wasm, err = readModule(ref, source, info)
	}
	if refused, ok := errors.AsType[*refusal](err); ok {
		err = &Error{Ref: ref, Reason: refused.reason, Hint: refused.hint}
	}
	if failed, ok := errors.AsType[*Error](err); ok {
		folder := ref
		if !info.IsDir() {
			folder = filepath.Dir(ref)
		}
		failed.Output = placedIn(folder, failed.Output)
	}
	if err == nil && component.Needed(m.Wasm) { // joined here: it was found by the user of this process
		m.Wasm, err = component.Link(work.For(ctx, len(m.Wasm)), m.Wasm)
	}
	if err == nil && !info.IsDir() && file != pythonTool {
		m, err = m.besides()
	}
	if err != nil {
		return Module{}, err
	}
	return m, nil
}

// readModule reads the file that ref names. info is looked at first because to
// open a pipe or a device can block or have effects, and again once the file is
// open because it may have been replaced in between.
func readModule(ref, path string, info fs.FileInfo) ([]byte, error) {
	if err := checkFile(ref, info); err != nil {
		return nil, err
	}
	f, err := keyfile.Open(ref)
	if err != nil {
		return nil, fmt.Errorf("registry: %w", err)
	}
	defer f.Close()
	b := bytes.NewBuffer(make([]byte, 0, info.Size()+bytes.MinRead))
	if _, err := b.ReadFrom(io.LimitReader(f, MaxModuleBytes+1)); err != nil {
		return nil, fmt.Errorf("registry: %w", err)
	}
	if b.Len() > MaxModuleBytes {
		return nil, tooLarge(ref, int64(b.Len()))
	}
	switch source, ok := sources[filepath.Ext(ref)]; {
	case bytes.HasPrefix(b.Bytes(), []byte("\x00asm")):
	case filepath.Ext(ref) == ".py":
		return packPython(ref, interp.File{Name: filepath.Base(ref), Text: b.Bytes()})
	case ok:
		return nil, &Error{Ref: ref, Reason: "the file is " + source.language + " and not a WebAssembly module", Hint: nearby(ref, path, strings.ReplaceAll(source.hint, "FILE", ref))}
	case isTool(filepath.Dir(path)):
		return nil, &Error{Ref: ref, Reason: "the file is not a WebAssembly module", Hint: nearby(ref, path, hintReference)}
	}
	return b.Bytes(), nil
}

func checkFile(ref string, info fs.FileInfo) error {
	switch {
	case !info.Mode().IsRegular():
		return &Error{Ref: ref, Reason: "not a regular file", Hint: hintReference}
	case info.Size() == 0:
		return &Error{Ref: ref, Reason: "the file is empty", Hint: hintReference}
	case info.Size() > MaxModuleBytes:
		return tooLarge(ref, info.Size())
	}
	return nil
}

func tooLarge(ref string, size int64) error {
	return &Error{Ref: ref, Reason: fmt.Sprintf("the module has %d bytes or more, the limit is %d", size, MaxModuleBytes),
		Hint: rewrite.Strip}
}

// folder reads the files of a tool's folder, and no others. Links are followed first.
type folder struct {
	root string // all links followed

	mu   sync.Mutex
	size int64 // of what was read
}

// maxSources bounds the sources of a build together, in bytes.
const maxSources = 64 << 20

// refusal is the reason why a build does not read a file.
type refusal struct{ reason, hint string }

func (r *refusal) Error() string { return r.reason }

func outside(real string) error {
	return &refusal{"the tool takes " + real + ", which is outside of its folder", "copy it into the folder"}
}

// checkName refuses names that a list of files or a message could show as something else.
func checkName(name string) error {
	if !utf8.ValidString(name) || strings.ContainsFunc(name, unicode.IsControl) {
		return &refusal{fmt.Sprintf("the name of the file %q has a control character", name), "rename it"}
	}
	return nil
}

// read returns the content of a file. The error is a [*refusal] if a build must not read it.
func (f *folder) read(path string) ([]byte, error) {
	wrong := func(err error) error {
		if at, ok := errors.AsType[*os.PathError](err); ok {
			err = at.Err
		}
		return fmt.Errorf("%s cannot be read: %w", path, err)
	}
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return nil, wrong(err)
	}
	if !within(f.root, real) {
		return nil, outside(real)
	}
	if err := checkName(strings.TrimPrefix(path, f.root+string(filepath.Separator))); err != nil {
		return nil, err
	}
	file, err := keyfile.Open(real)
	if err != nil {
		return nil, wrong(err)
	}
	defer file.Close()
	content, err := io.ReadAll(io.LimitReader(file, maxSources+1))
	if err != nil {
		return nil, wrong(err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.size += int64(len(content)) + 1<<10; f.size > maxSources { // which bounds empty files, too
		return nil, &refusal{fmt.Sprintf("the files of the tool have more than %d MiB", maxSources>>20), "give the folder of the tool alone, and keep data out of it"}
	}
	return content, nil
}

// within reports whether a path is folder or inside it.
func within(folder, path string) bool {
	rel, err := filepath.Rel(folder, path)
	return err == nil && filepath.IsLocal(rel)
}
