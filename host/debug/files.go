package debug

import (
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"
)

// Files reads the source files that a module names, below one folder: a module may name any file
// of the machine.
type Files struct {
	folder string
	known  map[string]file
}

type file struct {
	path  string
	lines []string
}

// NewFiles returns the source files below a folder.
func NewFiles(folder string) *Files {
	if absolute, err := filepath.Abs(folder); err == nil {
		folder = absolute
	}
	return &Files{folder: folder, known: map[string]file{}}
}

// Folder returns the absolute path of the folder.
func (f *Files) Folder() string { return f.folder }

// Lines returns the lines of the file that a module names, and its absolute path, or nothing if it is not
// below the folder. Of the name as the compiler wrote it, the longest end that is there counts:
// /build/tool/src/parse.c may be src/parse.c.
func (f *Files) Lines(name string) (path string, lines []string) {
	known, ok := f.known[name]
	if !ok {
		known = f.read(name)
		f.known[name] = known
	}
	return known.path, known.lines
}

func (f *Files) read(name string) file {
	const most = 4 << 20
	root, err := os.OpenRoot(f.folder)
	if err != nil {
		return file{}
	}
	defer root.Close()
	for end, more := strings.TrimPrefix(path.Clean("/"+filepath.ToSlash(name)), "/"), true; more; _, end, more = strings.Cut(end, "/") {
		if len(end) > 4096 { // the longest path that there is; a name of a stranger may have a million parts
			continue
		}
		info, err := root.Stat(end)
		if err != nil || !info.Mode().IsRegular() || info.Size() > most {
			continue
		}
		opened, err := root.Open(end)
		if err != nil {
			continue
		}
		text, err := io.ReadAll(io.LimitReader(opened, most))
		opened.Close()
		if err == nil {
			return file{filepath.Join(f.folder, end), strings.Split(string(text), "\n")}
		}
	}
	return file{}
}
