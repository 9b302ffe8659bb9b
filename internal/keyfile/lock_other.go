//go:build !unix && !windows

package keyfile

import (
	"errors"
	"os"
)

// nonBlocking is for [Open].
const nonBlocking = 0

// WaitForLock fails: here files have no locks.
func WaitForLock(*os.File) error { return errors.ErrUnsupported }
