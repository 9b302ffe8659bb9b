//go:build !linux

package logtest

import "os"

// SyncData makes the data written to f durable in the cheapest way.
func SyncData(f *os.File) error { return f.Sync() }
