package folder

import (
	"cmp"
	"errors"
	"os"
)

// errChanged means that a file or a folder is not what it was a moment ago.
var errChanged = errors.New("it was changed meanwhile")

// Folder is an open folder of this machine. It must be closed.
type Folder struct {
	Info os.FileInfo // of the folder itself

	root   *os.Root
	except []os.FileInfo

	// LeaveOut is called with each new link that [Folder.WriteBack] leaves out because it can lead out of the
	// folder. Without it, such a link is an error.
	LeaveOut func(error)

	lock   *os.File                  // of a write-back
	before func(change string) error // for tests: it is called before each change of the machine, and can fail it
}

// Open opens a folder, which may be given as a link to one.
func Open(name string) (*Folder, error) {
	if name == "" {
		return nil, errors.New("the folder has no name")
	}
	if info, err := os.Stat(name); err != nil || !info.IsDir() { // to open a pipe would block
		return nil, cmp.Or(err, errors.New("it is not a folder"))
	}
	root, err := os.OpenRoot(name)
	if err != nil {
		return nil, err
	}
	info, err := root.Stat(".")
	if err != nil {
		return nil, errors.Join(err, root.Close())
	}
	return &Folder{Info: info, root: root}, nil
}

// Close closes the folder.
func (f *Folder) Close() { _ = f.root.Close() }

// Except leaves a file out of the import, whatever its names, if it exists.
func (f *Folder) Except(name string) {
	if info, err := os.Stat(name); err == nil {
		f.except = append(f.except, info)
	}
}

// enter opens a folder in a folder. It follows no link.
func enter(at *os.Root, name string) (*os.Root, error) {
	info, err := at.Lstat(name)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		return nil, errChanged
	}
	sub, err := at.OpenRoot(name)
	if err != nil {
		return nil, err
	}
	if now, err := sub.Stat("."); err != nil || !os.SameFile(now, info) {
		return nil, errors.Join(err, errChanged, sub.Close())
	}
	return sub, nil
}
