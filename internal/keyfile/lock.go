package keyfile

import (
	"errors"
	"os"
)

// Lock waits until no other process, and no other caller, has the lock of a file, which it
// makes. The lock ends with the process, and the file remains.
func Lock(path string) (unlock func(), err error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if err := WaitForLock(f); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return func() { _ = f.Close() }, nil
}
