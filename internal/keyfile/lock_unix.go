//go:build unix

package keyfile

import (
	"errors"
	"os"
	"syscall"
)

// nonBlocking is for [Open].
const nonBlocking = syscall.O_NONBLOCK

// Lock waits until no other process, and no other caller, has the lock of a file, which it
// makes. The lock ends with the process, and the file remains.
func Lock(path string) (unlock func(), err error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	for {
		err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX)
		if err == nil {
			return func() { _ = f.Close() }, nil
		}
		if !errors.Is(err, syscall.EINTR) {
			_ = f.Close()
			return nil, &os.PathError{Op: "flock", Path: path, Err: err}
		}
	}
}
