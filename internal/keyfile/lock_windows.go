package keyfile

import (
	"errors"
	"os"
	"syscall"
	"time"
)

// errShared is ERROR_SHARING_VIOLATION.
const errShared = syscall.Errno(32)

// nonBlocking is for [Open].
const nonBlocking = syscall.O_NONBLOCK

// Lock waits until no other process, and no other caller, has the lock of a file, which it
// makes. The lock ends with the process, and the file remains.
func Lock(path string) (unlock func(), err error) {
	name, err := syscall.UTF16PtrFromString(path)
	if err != nil {
		return nil, err
	}
	for { // a file that is open without sharing cannot be opened again
		h, err := syscall.CreateFile(name, syscall.GENERIC_READ|syscall.GENERIC_WRITE, 0, nil, syscall.OPEN_ALWAYS, syscall.FILE_ATTRIBUTE_NORMAL, 0)
		switch {
		case err == nil:
			return func() { _ = syscall.CloseHandle(h) }, nil
		case !errors.Is(err, errShared):
			return nil, &os.PathError{Op: "CreateFile", Path: path, Err: err}
		}
		time.Sleep(10 * time.Millisecond)
	}
}
