package registry

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"

	"github.com/starling-host/starling/host/internal/interp"
)

// pythonTool is the file that makes a folder a tool in Python.
const pythonTool = "tool.py"

// packFolder returns the module of the tool in Python in the folder dir: its tool.py, and the
// modules that this may import, which are the other files NAME.py and the packages of the folder.
// Hidden files and tests are left out.
func packFolder(ref, dir string) ([]byte, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("registry: %w", err)
	}
	defer root.Close()
	names := []string{pythonTool}
	err = fs.WalkDir(root.FS(), ".", func(name string, d fs.DirEntry, err error) error {
		base := path.Base(name)
		switch {
		case err != nil || name == ".":
			return err
		case d.IsDir():
			if _, err := root.Lstat(path.Join(name, "__init__.py")); err != nil || strings.HasPrefix(base, ".") {
				return fs.SkipDir
			}
		case strings.HasSuffix(base, ".py") && name != pythonTool && !strings.HasPrefix(base, ".") &&
			!strings.HasPrefix(base, "test_") && !strings.HasSuffix(base, "_test.py") && base != "conftest.py":
			names = append(names, name)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("registry: %w", err)
	}
	var files []interp.File
	left := MaxModuleBytes
	for _, name := range names {
		// The root refuses links out of the folder.
		info, err := root.Stat(name)
		if err == nil && !info.Mode().IsRegular() {
			err = errors.New("not a regular file")
		}
		var text []byte
		if err == nil {
			var f *os.File
			if f, err = root.Open(name); err == nil {
				text, err = io.ReadAll(io.LimitReader(f, int64(left)))
				f.Close()
			}
		}
		if err != nil {
			return nil, &Error{Ref: ref, Reason: fmt.Sprintf("%s cannot be packed: %v", name, err), Hint: "make it a file of the folder, readable and without links that lead out of it"}
		}
		left -= len(text)
		files = append(files, interp.File{Name: name, Text: text})
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
