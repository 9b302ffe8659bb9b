package yaml

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
)

// ReadFile returns the content of a file for [Parse], or of one that such a file
// names. It opens nothing but a regular file of at most [MaxBytes]: to open a pipe or
// a device can block.
func ReadFile(path string) ([]byte, error) {
	info, err := os.Stat(path)
	switch e, ok := errors.AsType[*fs.PathError](err); {
	case ok: // a reader need not know by which call it was found out
		return nil, fmt.Errorf("%s: %w", path, e.Err)
	case err != nil:
		return nil, err
	case info.IsDir():
		return nil, fmt.Errorf("%s is a directory", path)
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("%s is not a regular file", path)
	case info.Size() > MaxBytes:
		return nil, fmt.Errorf("%s has %d bytes, which is more than %d", path, info.Size(), MaxBytes)
	}
	return os.ReadFile(path)
}
