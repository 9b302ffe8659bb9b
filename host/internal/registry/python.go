package registry

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/starling-host/starling/host/internal/interp"
	"github.com/starling-host/starling/internal/lazy"
)

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
