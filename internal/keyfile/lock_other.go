//go:build !unix && !windows

package keyfile

import "errors"

// Lock fails: here files have no locks.
func Lock(string) (unlock func(), err error) { return nil, errors.ErrUnsupported }
