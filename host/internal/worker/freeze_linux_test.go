package worker

import (
	"testing"

	"golang.org/x/sys/unix"
)

// freezeWorkers stops every child of this process, and returns when none of their
// threads runs any more: the signal only asks for that.
func freezeWorkers(t *testing.T) {
	t.Helper()
	for pid := range children(t) {
		err := unix.Kill(pid, unix.SIGSTOP)
		if err == nil {
			err = waitStopped(pid)
		}
		if err != nil {
			t.Error(err)
		}
	}
}

// thawWorkers continues every frozen child that still exists.
func thawWorkers(t *testing.T) {
	t.Helper()
	for pid := range children(t) {
		if err := unix.Kill(pid, unix.SIGCONT); err != nil && err != unix.ESRCH {
			t.Error(err)
		}
	}
}

// waitStopped waits for the child to stop, and leaves its state to be read by others.
func waitStopped(pid int) error {
	for {
		err := unix.Waitid(unix.P_PID, pid, nil, unix.WSTOPPED|unix.WNOWAIT, nil)
		if err != unix.EINTR {
			return err
		}
	}
}
