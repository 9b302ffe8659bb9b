package image

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// mincore sets the lowest bit of there[n] when page n of b is in memory
// (mincore(2)).
func mincore(b, there []byte) error {
	_, _, errno := unix.Syscall(unix.SYS_MINCORE, uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)), uintptr(unsafe.Pointer(&there[0])))
	if errno != 0 {
		return errno
	}
	return nil
}
