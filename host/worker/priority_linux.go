package worker

import (
	"syscall"
	"time"
	"unsafe"
)

// lowerPriority gives a worker the lowest priority. It leads a group of its own,
// and the group means all its threads. That it has ended meanwhile is no matter.
func lowerPriority(pid int) {
	_ = syscall.Setpriority(syscall.PRIO_PGRP, pid, lowest)
}

// processorTime returns how long a worker has used processors, or zero if nobody
// knows. The number of the clock is that of clock_getcpuclockid(3).
func processorTime(pid int) time.Duration {
	const scheduler = 2 // CPUCLOCK_SCHED
	clock := ^uintptr(pid)<<3 | scheduler
	var ts syscall.Timespec
	_, _, errno := syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, clock, uintptr(unsafe.Pointer(&ts)), 0)
	if errno != 0 {
		return 0
	}
	return time.Duration(ts.Nano())
}
