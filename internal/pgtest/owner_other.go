//go:build !unix

package pgtest

import (
	"fmt"
	"syscall"
)

func owner(string) (*syscall.SysProcAttr, error) {
	return nil, fmt.Errorf("%w: it is started on Unix alone", ErrAbsent)
}
