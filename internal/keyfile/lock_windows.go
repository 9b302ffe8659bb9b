package keyfile

import (
	"errors"
	"os"
	"syscall"

	"golang.org/x/sys/windows"
)

// nonBlocking is for [Open].
const nonBlocking = syscall.O_NONBLOCK

// The locks cover the first byte of their file and belong to its handle.

// TryLock takes the lock of an open file, and reports false if another opening has it. It ends with
// [Unlock], or when the file is closed.
func TryLock(f *os.File) (bool, error) {
	err := lockFileEx(f, windows.LOCKFILE_EXCLUSIVE_LOCK|windows.LOCKFILE_FAIL_IMMEDIATELY)
	if errors.Is(err, windows.ERROR_LOCK_VIOLATION) {
		return false, nil
	}
	return err == nil, err
}

// WaitForLock is [TryLock] that waits.
func WaitForLock(f *os.File) error { return lockFileEx(f, windows.LOCKFILE_EXCLUSIVE_LOCK) }

// Unlock gives the lock of an open file back.
func Unlock(f *os.File) error {
	return windows.UnlockFileEx(windows.Handle(f.Fd()), 0, 1, 0, new(windows.Overlapped))
}

func lockFileEx(f *os.File, flags uint32) error {
	err := windows.LockFileEx(windows.Handle(f.Fd()), flags, 0, 1, 0, new(windows.Overlapped))
	if err != nil {
		return &os.PathError{Op: "LockFileEx", Path: f.Name(), Err: err}
	}
	return nil
}
