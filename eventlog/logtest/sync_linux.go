package logtest

import (
	"os"
	"syscall"
)

// SyncData makes the data written to f durable in the cheapest way.
func SyncData(f *os.File) error { return syscall.Fdatasync(int(f.Fd())) }
