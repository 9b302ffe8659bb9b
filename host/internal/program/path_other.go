//go:build !linux

package program

import "os"

// Path returns the file of the program that this process runs.
func Path() (string, error) { return os.Executable() }
