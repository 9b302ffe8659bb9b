package keyfile

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"syscall"

	"github.com/starling-host/starling/internal/display"
)

// NotPrivateError means that users other than its owner may read, or change, a file with a key.
type NotPrivateError struct {
	What string // such as "master key file"
	Path string
	Mode fs.FileMode
}

// Error names the file.
func (e *NotPrivateError) Error() string {
	return fmt.Sprintf("%s %s has mode %04o: others than its owner may read it", e.What, e.Path, e.Mode)
}

// Advice implements [hint.Hinted].
func (e *NotPrivateError) Advice() string { return "chmod 600 " + display.ShellWord(e.Path) }

// Read returns the first bytes of a file with a key, no more than a key can have. What
// names the kind of file in errors. A file that others than its owner may read is a
// [*NotPrivateError].
func Read(what, path string) ([]byte, error) {
	f, err := Open(path)
	if errors.Is(err, ErrIrregular) || errors.Is(err, syscall.EISDIR) {
		return nil, fmt.Errorf("%s %s is %w", what, path, ErrIrregular)
	} else if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat() // of the open file, which cannot be exchanged in between
	switch {
	case err != nil:
		return nil, err
	case runtime.GOOS != "windows" && info.Mode().Perm()&0o077 != 0:
		return nil, &NotPrivateError{what, path, info.Mode().Perm()}
	}
	return io.ReadAll(io.LimitReader(f, 1024))
}

// Create writes a new file that only its owner may read. It is on the disk when Create
// returns. A file that exists is never overwritten: a key in it may be needed.
func Create(path string, content []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	if err = errors.Join(err, f.Sync(), f.Close(), SyncFolder(filepath.Dir(path))); err != nil {
		return errors.Join(err, os.Remove(path))
	}
	return nil
}

// Replace writes a file in one step: afterwards, and if the process dies here, the path has
// the old content or the new one. The new one is on the disk when Replace returns.
// perm is the mode of the new file.
func Replace(path string, content []byte, perm fs.FileMode) error {
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	if err = errors.Join(err, f.Chmod(perm), f.Sync(), f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return SyncFolder(filepath.Dir(path))
}

// SyncFolder makes the names in a folder durable, where the system can.
func SyncFolder(dir string) error {
	if runtime.GOOS == "windows" {
		return nil
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
