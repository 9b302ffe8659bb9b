//go:build unix

package mcptool

import (
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"time"
)

// leads makes a process the leader of its own group. A server is often the child of a
// launcher, such as npx or a shell, which does not pass signals on.
func leads(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

// signalGroup asks the group of a leader to exit, or kills it.
func signalGroup(leader *os.Process, kill bool) {
	signal := syscall.SIGTERM
	if kill {
		signal = syscall.SIGKILL
	}
	_ = syscall.Kill(-leader.Pid, signal)
}

// endGroup kills the rest of the group after its leader has exited.
func endGroup(leader *os.Process) {
	signalGroup(leader, false)
	for range 50 {
		if syscall.Kill(-leader.Pid, 0) != nil {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
	signalGroup(leader, true)
}

// guard starts a process that kills the group when this process dies in any way: then the pipe to
// its input ends. PR_SET_PDEATHSIG is not enough: it depends on a thread, and does not reach the
// server behind a launcher. Without a shell, the group ends with its input.
func guard(group int) (release func()) {
	cmd := exec.Command("/bin/sh", "-c", "read x; kill -9 -"+strconv.Itoa(group))
	leads(cmd)
	stdin, err := cmd.StdinPipe()
	if err != nil || cmd.Start() != nil {
		return func() {}
	}
	return func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		stdin.Close()
	}
}
