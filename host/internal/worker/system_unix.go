//go:build unix

package worker

import "syscall"

// attributes are what the system is told about a new worker: a process group of its own,
// so that Ctrl-C on a terminal does not reach it. When the host has ended, the worker sees
// the end of its input.
func attributes() *syscall.SysProcAttr {
	a := &syscall.SysProcAttr{Setpgid: true}
	endWithHost(a)
	return a
}

// setNice gives a worker and all its threads, which those that they start inherit, a nice
// value. It fails only if the worker has ended meanwhile.
func setNice(pid, nice int) {
	_ = syscall.Setpriority(syscall.PRIO_PGRP, pid, nice) // a worker leads a group of its own
}
