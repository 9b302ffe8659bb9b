package sqlitelog

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
)

// spareBytes is the reserved room. Removing runs took 4 MiB in a trial, beside the
// existing WAL; a run with long events takes more.
const spareBytes = 32 << 20

// walBytes is the room that the WAL of an open database keeps. It is written from its
// beginning again after restartFrames, so a host renews its leases on a full disk.
const walBytes = 24 << 20

// SetAside keeps room on the disk of the database at path, in a file beside it, unless
// there is such a file. Nothing can be removed from a database on a full disk, since also
// that is written first; with the room that [GiveUp] gives it can. The last room of a disk
// is not set aside: as much again has to be free. On Linux the WAL keeps room as well.
func SetAside(path string) error {
	if err := reserveWAL(path + "-wal"); err != nil {
		return fmt.Errorf("sqlitelog: reserve room for the WAL: %w", err)
	}
	name := spareOf(path)
	if info, err := os.Lstat(name); err == nil && info.Mode().IsRegular() && info.Size() == spareBytes {
		return nil
	}
	// It is made under another name, so that an existing file of its name is not
	// written to: a link may lead to any file.
	part := name + ".part"
	_ = os.Remove(part) // of a process that died
	f, err := os.OpenFile(part, os.O_WRONLY|os.O_CREATE|os.O_EXCL, fileMode)
	if err != nil {
		return fmt.Errorf("sqlitelog: set room aside: %w", err)
	}
	err = allocate(f, 2*spareBytes)
	if err == nil {
		err = f.Truncate(spareBytes)
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(part, name)
	}
	if err != nil {
		return fmt.Errorf("sqlitelog: set room aside: %w", errors.Join(err, os.Remove(part)))
	}
	return nil
}

// GiveUp gives the room back that was set aside for the database at path, and reports
// whether there was any.
func GiveUp(path string) (given bool, err error) {
	err = os.Remove(spareOf(path))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

func spareOf(path string) string { return path + ".spare" }

// scribble writes what no file system stores in less room.
func scribble(f *os.File, n int64) error {
	_, err := io.CopyN(f, rand.Reader, n)
	return err
}
