//go:build unix

package worker

import "syscall"

// attributes are the system's attributes of a new worker: its own process group, so that
// Ctrl-C on a terminal does not reach it. When the host has ended, the worker sees the end
// of its input.
func attributes() *syscall.SysProcAttr {
	a := &syscall.SysProcAttr{Setpgid: true}
	endWithHost(a)
	return a
}

// setNice sets the nice value of a worker and all its threads; threads that they start
// inherit it. It fails only if the worker has ended meanwhile.
func setNice(pid, nice int) {
	_ = syscall.Setpriority(syscall.PRIO_PGRP, pid, nice) // a worker leads a group of its own
}
