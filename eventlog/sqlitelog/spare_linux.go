package sqlitelog

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// allocate takes so many bytes of the disk for an empty file.
func allocate(f *os.File, n int64) error {
	for {
		err := unix.Fallocate(int(f.Fd()), 0, 0, n)
		switch {
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.EOPNOTSUPP):
			return scribble(f, n)
		default:
			return err
		}
	}
}
