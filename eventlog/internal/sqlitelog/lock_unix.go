//go:build unix

package sqlitelog

import (
	"os"

	"golang.org/x/sys/unix"
)

// noFollow has a link refused where a file is opened.
const noFollow = unix.O_NOFOLLOW

// inUse reports whether another process has the database open. A connection in WAL mode holds
// a shared lock on these bytes for as long as it is open (SHARED_FIRST in os.h of SQLite).
func inUse(f *os.File) (bool, error) {
	lock := unix.Flock_t{Type: unix.F_WRLCK, Start: 0x40000002, Len: 510}
	err := unix.FcntlFlock(f.Fd(), unix.F_GETLK, &lock)
	return lock.Type != unix.F_UNLCK, err
}
