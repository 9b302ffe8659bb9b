//go:build !unix && !windows

package keyfile

import "errors"

// nonBlocking is for [Open].
const nonBlocking = 0

// Lock fails: here files have no locks.
func Lock(string) (unlock func(), err error) { return nil, errors.ErrUnsupported }
