package folder

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/starling-host/starling/eventlog/canon"
	"github.com/starling-host/starling/internal/hint"
	"github.com/starling-host/starling/internal/keyfile"
)

// errChanged means that a file or a folder is not what it was a moment ago.
var errChanged = errors.New("it was changed meanwhile")

// Folder is an open folder of this machine. It must be closed.
type Folder struct {
	Path  string // real path: absolute, and without links
	given string // absolute path that the caller gave, which may be a link
	state string
	root  *os.Root
	info  fs.FileInfo

	// before is for tests: it is called before each change of the machine, and can fail it.
	before func(change string) error
}

// Open opens a folder, which may be given as a link to one. State is a folder for the journals of
// write-backs, private to the user, which is made when it is needed. Without one, "", the folder
// can only be imported.
func Open(name, state string) (*Folder, error) {
	given, err := filepath.Abs(name)
	if err != nil {
		return nil, err
	}
	real, err := filepath.EvalSymlinks(given)
	if err != nil {
		return nil, err
	}
	if info, err := os.Stat(real); err != nil || !info.IsDir() { // to open a pipe would block
		return nil, errors.Join(err, fmt.Errorf("%s is not a folder", name))
	}
	root, err := os.OpenRoot(real)
	if err != nil {
		return nil, err
	}
	info, err := root.Stat(".")
	if err != nil {
		return nil, errors.Join(err, root.Close())
	}
	return &Folder{Path: real, given: given, state: state, root: root, info: info}, nil
}

// Close closes the folder.
func (f *Folder) Close() error { return f.root.Close() }

// Contains reports whether a path is this folder or lies in it, also through links. The path need
// not exist.
func (f *Folder) Contains(name string) (bool, error) {
	at, err := filepath.Abs(name)
	if err != nil {
		return false, err
	}
	real, err := filepath.EvalSymlinks(at)
	for errors.Is(err, fs.ErrNotExist) && filepath.Dir(at) != at {
		at = filepath.Dir(at)
		real, err = filepath.EvalSymlinks(at)
	}
	for err == nil {
		var info fs.FileInfo
		if info, err = os.Stat(real); err == nil && os.SameFile(info, f.info) {
			return true, nil
		}
		if filepath.Dir(real) == real {
			break
		}
		real = filepath.Dir(real)
	}
	return false, err
}

// checkPlace returns an error if the path that the caller gave leads to another folder by now.
func (f *Folder) checkPlace() error {
	now, err := os.Stat(f.given)
	if err == nil && !os.SameFile(now, f.info) {
		err = errors.New("another folder is there")
	}
	if err != nil {
		return fmt.Errorf("folder %s was moved since it was opened: %w", f.given, err)
	}
	return nil
}

// lock waits until no other call reads or writes the folder. On Windows, and on filesystems without
// locks, only calls that write exclude each other, if they have the same folder for journals.
func (f *Folder) lock(ctx context.Context, write bool) (unlock func(), err error) {
	var files []*os.File
	unlock = func() {
		for _, file := range files {
			_ = file.Close()
		}
	}
	own, err := f.root.Open(".")
	if err != nil {
		return nil, err
	}
	files = append(files, own)
	if write {
		inside, err := f.Contains(f.state)
		switch {
		case f.state == "":
			err = errors.New("there is no folder for the journal of a write-back")
		case inside:
			err = fmt.Errorf("folder %s has the journals of write-backs in it, at %s", f.given, f.state)
		case err == nil:
			err = os.MkdirAll(f.state, 0o700)
		}
		var held *os.File
		if err == nil {
			held, err = os.OpenFile(f.journal()+".lock", os.O_RDWR|os.O_CREATE, 0o600)
		}
		if err != nil {
			unlock()
			return nil, err
		}
		files = append(files, held)
	}
	for _, file := range files {
		for {
			ok, err := keyfile.TryLock(file)
			if ok || err != nil && file == own {
				break // a filesystem need not have locks of folders
			}
			if err == nil {
				select {
				case <-ctx.Done():
					err = fmt.Errorf("wait for another call that uses folder %s: %w", f.given, ctx.Err())
				case <-time.After(20 * time.Millisecond):
					continue
				}
			}
			unlock()
			return nil, err
		}
	}
	return unlock, nil
}

// journal returns the path of the folder's journal.
func (f *Folder) journal() string {
	return filepath.Join(f.state, canon.Sum([]byte(f.Path)).String()[:32]+".journal")
}

// checkPending returns an error if a write-back did not end.
func (f *Folder) checkPending() error {
	if f.state == "" {
		return nil
	}
	_, err := os.Lstat(f.journal())
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	} else if err != nil {
		return err
	}
	return hint.New(fmt.Sprintf("folder %s is in the middle of a write-back that was interrupted", f.given),
		"a call that may write to the folder, with :rw, undoes it first")
}

// enter opens a folder in a folder. It follows no link.
func enter(at *os.Root, name string) (*os.Root, error) {
	info, err := at.Lstat(name)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() { // to open a pipe would block
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

// parent opens the folder that a path lies in. It follows no link, where os.Root would follow those
// that stay below it.
func (f *Folder) parent(p string) (*os.Root, error) {
	at, err := f.root.OpenRoot(".")
	if err != nil || !strings.Contains(p, "/") {
		return at, err
	}
	for name := range strings.SplitSeq(path.Dir(p), "/") {
		sub, err := enter(at, name)
		_ = at.Close()
		if err != nil {
			return nil, fmt.Errorf("%s: its folder %s: %w (%v)", p, name, errChanged, err)
		}
		at = sub
	}
	return at, nil
}

// sync makes the names in a folder durable, where the system can.
func (f *Folder) sync(dir string) error {
	if runtime.GOOS == "windows" {
		return nil
	}
	d, err := f.root.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
