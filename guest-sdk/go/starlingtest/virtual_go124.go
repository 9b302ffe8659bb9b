//go:build !go1.25 && !wasip1

package starlingtest

import "testing"

// virtually calls f. Go 1.24 has no virtual time.
func virtually(_ testing.TB, _ *world, f func()) { f() }
