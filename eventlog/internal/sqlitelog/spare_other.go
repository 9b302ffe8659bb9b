//go:build !linux

package sqlitelog

import "os"

// allocate reserves n bytes of the disk for an empty file.
func allocate(f *os.File, n int64) error { return scribble(f, n) }

func reserveWAL(string) error { return nil }
