package sqlitelog

import (
	"errors"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// allocate reserves n bytes of the disk for an empty file.
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

// reserveWAL reserves room on the disk for the WAL at path, whose length stays unchanged.
func reserveWAL(path string) error {
	f, err := os.OpenFile(path, os.O_RDWR|unix.O_NOFOLLOW, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for err = unix.EINTR; errors.Is(err, unix.EINTR); {
		err = unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_KEEP_SIZE, 0, walBytes)
	}
	if errors.Is(err, unix.EOPNOTSUPP) {
		err = nil
	}
	return errors.Join(err, f.Close())
}
