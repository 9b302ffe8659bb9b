//go:build unix

package keyfile

import (
	"errors"
	"os"
	"syscall"
)

// nonBlocking is for [Open].
const nonBlocking = syscall.O_NONBLOCK

// The locks are flock(2) locks: they belong to the open file, not to the process, so two openings
// in one process exclude each other as well.

// TryLock takes the lock of an open file, and reports false if another opening has it. It ends with
// [Unlock], or when the file is closed.
func TryLock(f *os.File) (bool, error) {
	err := flock(f, syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return false, nil
	}
	return err == nil, err
}

// WaitForLock is [TryLock] that waits.
func WaitForLock(f *os.File) error { return flock(f, syscall.LOCK_EX) }

// Unlock gives the lock of an open file back.
func Unlock(f *os.File) error { return flock(f, syscall.LOCK_UN) }

func flock(f *os.File, how int) error {
	for {
		err := syscall.Flock(int(f.Fd()), how)
		if err == nil {
			return nil
		}
		if !errors.Is(err, syscall.EINTR) {
			return &os.PathError{Op: "flock", Path: f.Name(), Err: err}
		}
	}
}
