//go:build unix

package worker

import "syscall"

// setNice gives a worker and all its threads, which those that they start inherit, a
// nice value. That the worker has ended meanwhile is no matter.
func setNice(pid, nice int) {
	_ = syscall.Setpriority(syscall.PRIO_PGRP, pid, nice) // a worker leads a group of its own
}
