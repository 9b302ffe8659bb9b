//go:build unix

package worker

import (
	"syscall"
	"testing"
)

// freezeWorkers stops every child of this process.
func freezeWorkers(t *testing.T) {
	t.Helper()
	for pid := range children(t) {
		if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
			t.Error(err)
		}
	}
}
