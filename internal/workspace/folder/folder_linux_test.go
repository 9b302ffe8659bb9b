package folder

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/starling-host/starling/internal/workspace"
)

func TestWhatIsNoFileIsRefused(t *testing.T) {
	for name, make := range map[string]func(at string) error{
		"pipe":   func(at string) error { return syscall.Mkfifo(at, 0o666) },
		"socket": func(at string) error { l, err := net.Listen("unix", at); _ = l; return err },
	} {
		dir := t.TempDir()
		t.Chdir(dir) // the path of a socket must be short
		if err := errors.Join(os.Mkdir("d", 0o777), make("d/x")); err != nil {
			t.Fatal(err)
		}
		_, err := open(t, dir, "").Import(t.Context(), func([]workspace.Content) error { return nil })
		if err == nil || !strings.Contains(err.Error(), `"d/x": it is neither`) {
			t.Errorf("%s: %v", name, err)
		}
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "a\xff"), nil, 0o666); err != nil {
		t.Fatal(err)
	}
	_, err := open(t, dir, "").Import(t.Context(), func([]workspace.Content) error { return nil })
	if err == nil || !strings.Contains(err.Error(), `"a\xff": the name`) {
		t.Error(err)
	}
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(pipe, 0o666); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(pipe, ""); err == nil || !strings.Contains(err.Error(), "not a folder") {
		t.Error(err)
	}
}

// TestAPipeInPlaceOfAFile gives the reader a pipe where it saw a file, and the recovery one where
// its journal was.
func TestAPipeInPlaceOfAFile(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "f", "1234")
	f := open(t, dir, t.TempDir())
	was, err := f.root.Lstat("f")
	if err = errors.Join(err, os.Remove(filepath.Join(dir, "f")), syscall.Mkfifo(filepath.Join(dir, "f"), 0o666), syscall.Mkfifo(f.journal(), 0o600)); err != nil {
		t.Fatal(err)
	}
	if _, err := readFile(f.root, "f", was); !errors.Is(err, errChanged) {
		t.Error(err)
	}
	if _, err := f.parent("f/x"); !errors.Is(err, errChanged) {
		t.Error(err)
	}
	if _, err := f.Recover(t.Context()); err == nil || !strings.Contains(err.Error(), "not a regular file") {
		t.Error(err)
	}
}

func TestModes(t *testing.T) {
	old := syscall.Umask(0o027)
	defer syscall.Umask(old)
	s, f, dir, _, from, to := fixture(t)
	if err := errors.Join(os.Chmod(filepath.Join(dir, "a.txt"), 0o741), os.Chmod(filepath.Join(dir, "d"), 0o777)); err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteBack(t.Context(), s.get, from, to); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]fs.FileMode{"a.txt": 0o741, "created": 0o640, "made": 0o750, "made/y/z": 0o640, "d": 0o777, "d/c": 0o750} {
		if info, err := os.Stat(filepath.Join(dir, name)); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s has mode %v, %v; want %o", name, info.Mode(), err, want)
		}
	}
}

// TestAFolderThatMoves moves FOLDER, or turns the link that it was given as, before each change.
func TestAFolderThatMoves(t *testing.T) {
	useMemory(t)
	for n := range steps {
		s, dir, state := newStore(t), t.TempDir(), t.TempDir()
		home, other, link := filepath.Join(dir, "home"), filepath.Join(dir, "other"), filepath.Join(dir, "link")
		before.make(t, home)
		tree{"a.txt": "of the other"}.make(t, other)
		if err := os.Symlink(home, link); err != nil {
			t.Fatal(err)
		}
		f := open(t, link, state)
		i, late, done := 0, false, false
		f.before = func(change string) error {
			done = done || change == "save done"
			if i++; i == n+1 {
				late = done // after the last look
				if err := errors.Join(os.Rename(home, home+"2"), os.Rename(other, home)); err != nil {
					t.Fatal(err)
				}
			}
			return nil
		}
		_, err := f.WriteBack(t.Context(), s.get, s.imported(f), s.root(after))
		f.before = nil
		if i <= n {
			break
		}
		if err == nil && !late {
			t.Errorf("change %d: the folder was moved, and no error", n)
		}
		equal(t, "other folder", read(t, home), tree{"a.txt": "of the other"})
		if err != nil {
			equal(t, "moved folder", read(t, home+"2"), before)
		} else {
			equal(t, "moved folder", read(t, home+"2"), after)
		}
	}
}
