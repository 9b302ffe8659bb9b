//go:build !linux

package pgtest

// memory returns nothing: only Linux has a directory in memory at a known place.
func memory() string { return "" }
