//go:build unix

package sqlitelog

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// noFollow has a link refused where a file is opened.
const noFollow = unix.O_NOFOLLOW

// The locks are flock(2) locks: they belong to the open file, not to the
// process, so two logs in one process exclude each other as well.

func tryLockFile(f *os.File) (bool, error) {
	err := flock(f, unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return false, nil
	}
	return err == nil, err
}

func lockFile(f *os.File) error { return flock(f, unix.LOCK_EX) }

func unlockFile(f *os.File) error { return flock(f, unix.LOCK_UN) }

// inUse reports whether another process has the database open. A connection in WAL mode holds
// a shared lock on these bytes for as long as it is open (SHARED_FIRST in os.h of SQLite).
func inUse(f *os.File) (bool, error) {
	lock := unix.Flock_t{Type: unix.F_WRLCK, Start: 0x40000002, Len: 510}
	err := unix.FcntlFlock(f.Fd(), unix.F_GETLK, &lock)
	return lock.Type != unix.F_UNLCK, err
}

func flock(f *os.File, how int) error {
	for {
		err := unix.Flock(int(f.Fd()), how)
		if err == nil {
			return nil
		}
		if !errors.Is(err, unix.EINTR) {
			return &os.PathError{Op: "flock", Path: f.Name(), Err: err}
		}
	}
}
