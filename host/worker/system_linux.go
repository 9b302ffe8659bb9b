package worker

import "syscall"

// attributes are what the system is told about a new worker: a process group of
// its own, so that Ctrl-C on a terminal does not reach it, and that it ends when
// the host does, however that ends.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
