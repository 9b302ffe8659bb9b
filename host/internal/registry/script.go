package registry

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/starling-host/starling/abi"
	"github.com/starling-host/starling/host/internal/component"
	"github.com/starling-host/starling/host/internal/interp"
	"github.com/starling-host/starling/host/internal/program"
	"github.com/starling-host/starling/internal/lazy"
)

// scripts are the files that make a folder a tool in TypeScript or JavaScript.
var scripts = []string{"tool.ts", "tool.js"}

// isScript matches the extensions of files in TypeScript and JavaScript.
var isScript = lazy.Regexp(`^\.([cm]?[jt]s|[jt]sx)$`)

// isFile matches the functions of WASI on files that the engine imports.
var isFile = lazy.Regexp(`^(path_|fd_(close|filestat|prestat|read))`)

// bundlerKey marks a process that bundles one tool, in the environment.
const bundlerKey = "STARLING_BUNDLE"

// bundled is the one script that a tool in TypeScript or JavaScript and all its imports become.
type bundled struct {
	Script  []byte
	Imports []string // of starling:v1, and fs for those of files
}

// called is set once Main has found that this process does not bundle.
var called atomic.Bool

// Main bundles a tool if this process was started for that, and does not return then. esbuild
// follows the nesting of a source by recursion without a bound, which can end a process. A program
// that does not call Main bundles by itself.
func Main() {
	if os.Getenv(bundlerKey) == "" || len(os.Args) != 3 {
		called.Store(true)
		return
	}
	debug.SetMaxStack(128 << 20) // much deeper than people nest, and reached in a second
	b, err := bundle(os.Args[1], os.Args[2])
	if err == nil {
		err = json.NewEncoder(os.Stdout).Encode(b)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// buildScript returns the module of the tool in the file name of a folder: the engine for
// JavaScript with the tool's script. It is built each time, which takes a tenth of a second: which
// files a build reads is not known before.
func buildScript(ctx context.Context, ref, dir, name string) ([]byte, error) {
	defer Doing(ctx, "building "+ref+" (JavaScript)")()
	b := &bundled{}
	if called.Load() {
		path, err := program.Path()
		if err != nil {
			return nil, fmt.Errorf("registry: %w", err)
		}
		t := toolchain{path: path, ref: ref, env: []string{bundlerKey + "=1"}}
		out, err := t.run(ctx, dir, name)
		if failed, ok := errors.AsType[*Error](err); ok && strings.Contains(failed.Output, "stack overflow") {
			failed.Output = name + ": the tool or one of its imports is nested too deeply\n"
		}
		if err == nil {
			err = json.Unmarshal(out, b)
		}
		if err != nil {
			return nil, err
		}
	} else {
		var err error
		if b, err = bundle(dir, name); err != nil {
			return nil, &Error{Ref: ref, Reason: "the tool does not build", Output: err.Error() + "\n"}
		}
	}
	wasm, err := interp.Pack(interp.JavaScript.Wasm(), interp.File{Name: name, Text: b.Script})
	if large, ok := errors.AsType[*interp.TooLarge](err); ok {
		return nil, &Error{Ref: ref, Reason: fmt.Sprintf("%s with its imports has %d bytes, the limit is %d", name, large.Bytes, large.Most),
			Hint: "import only what the tool uses: a namespace import (import * as x) keeps the unused half of a package out"}
	}
	if err != nil {
		return nil, err
	}
	return component.Prune(wasm, interp.Section, func(module, name string) bool {
		if isFile().MatchString(name) {
			module, name = abi.Version, "fs"
		}
		return module == abi.Version && !slices.Contains(b.Imports, name)
	}), nil
}

// pythonTool is the file that makes a folder a tool in Python.
const pythonTool = "tool.py"

// notModule matches the files in Python that a tool does not import: hidden ones and tests.
var notModule = lazy.Regexp(`^(\..*|test_.*|.*_test\.py|conftest\.py)$`)

// packFolder returns the module of the tool in Python in the folder dir: its tool.py, and the
// modules that this may import, which are the other files NAME.py and the packages of the folder.
func packFolder(_ context.Context, ref, dir, _ string) ([]byte, error) {
	folder, files := &folder{root: dir}, []interp.File{}
	add := func(path string) error {
		text, err := folder.read(path)
		name, _ := filepath.Rel(dir, path) // it is below dir
		files = append(files, interp.File{Name: filepath.ToSlash(name), Text: text})
		return err
	}
	tool := filepath.Join(dir, pythonTool)
	if err := add(tool); err != nil {
		return nil, err
	}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil || path == dir || path == tool:
			return err
		case d.IsDir():
			if _, err := os.Lstat(filepath.Join(path, "__init__.py")); err != nil || strings.HasPrefix(d.Name(), ".") {
				return fs.SkipDir
			}
		case filepath.Ext(path) == ".py" && !notModule().MatchString(d.Name()):
			return add(path)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return packPython(ref, files...)
}

// packPython returns the module of a tool in Python.
func packPython(ref string, files ...interp.File) ([]byte, error) {
	wasm, err := interp.Pack(interp.Python.Wasm(), files...)
	if large, ok := errors.AsType[*interp.TooLarge](err); ok {
		return nil, &Error{Ref: ref, Reason: fmt.Sprintf("the source has %d bytes with its modules, and a tool in Python may have %d", large.Bytes, large.Most),
			Hint: "move data out of the source, to the input or behind an address"}
	}
	return wasm, err
}
