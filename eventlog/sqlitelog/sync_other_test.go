//go:build !linux

package sqlitelog

import "os"

func syncData(f *os.File) error { return f.Sync() }
