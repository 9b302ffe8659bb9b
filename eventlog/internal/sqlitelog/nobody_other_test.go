//go:build !linux

package sqlitelog

import (
	"os"
	"testing"
)

// asNobody skips the test for a user for whom no mode holds.
func asNobody(t *testing.T, _ string) {
	t.Helper()
	if os.Geteuid() == 0 {
		t.Skip("SKIPPED: root can write every directory")
	}
}
