package treetest

import (
	"os"
	"testing"
)

// Count returns how often a test tries what it tries: before a commit, by day and at night. Where
// its seeds are fixed, the more often tries include the others.
func Count(short, day, night int) int {
	switch {
	case os.Getenv("STARLING_NIGHTLY") != "":
		return night
	case testing.Short():
		return short
	}
	return day
}
