package keyfile

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"
)

// ErrIrregular means that a path leads to a device, a pipe or a socket, where a file was expected.
var ErrIrregular = errors.New("not a regular file")

// MaxBytes bounds a file that is read as a whole and has no limit of its own.
const MaxBytes = 64 << 20

// Open opens a file for reading. It refuses everything but a regular file, also behind a link: to
// open a pipe can block without end, to open a device can have an effect, and neither has a size.
func Open(path string) (*os.File, error) {
	if err := regular(path, os.Stat); err != nil {
		return nil, err
	}
	// The path may lead elsewhere by now. nonBlocking makes opening a pipe return.
	f, err := os.OpenFile(path, os.O_RDONLY|nonBlocking, 0)
	if err != nil {
		return nil, err
	}
	if err := regular(path, func(string) (fs.FileInfo, error) { return f.Stat() }); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

func regular(path string, stat func(string) (fs.FileInfo, error)) error {
	info, err := stat(path)
	switch {
	case err != nil:
		return err
	case info.IsDir():
		return &fs.PathError{Op: "read", Path: path, Err: syscall.EISDIR}
	case !info.Mode().IsRegular():
		return fmt.Errorf("%s is %w", path, ErrIrregular)
	}
	return nil
}

// ReadFile returns the content of a regular file of at most so many bytes. See [Open].
func ReadFile(path string, most int64) ([]byte, error) {
	f, err := Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, most+1))
	if err == nil && int64(len(text)) > most {
		err = fmt.Errorf("%s has more than %d bytes", path, most)
	}
	if err != nil {
		return nil, err
	}
	return text, nil
}
