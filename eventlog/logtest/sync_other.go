//go:build !linux

package logtest

import "os"

// SyncData makes what was written to f durable, in the cheapest way that does.
func SyncData(f *os.File) error { return f.Sync() }
