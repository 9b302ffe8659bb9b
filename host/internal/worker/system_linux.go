package worker

import (
	"fmt"
	"os"
	"strconv"
	"syscall"
	"time"
	"unsafe"
)

// endWithHost makes a new worker end when the host ends, for any reason.
func endWithHost(a *syscall.SysProcAttr) { a.Pdeathsig = syscall.SIGKILL }

// lowerPriority gives a worker the lowest priority, and all its threads the policy
// SCHED_IDLE (sched(7)): any other thread that wakes up takes the processor from them at
// once, and not at the end of a slice. Threads that they start inherit both. It is fine
// if the worker has ended meanwhile.
func lowerPriority(pid int) {
	setNice(pid, lowest)
	threads, _ := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	for _, thread := range threads {
		if id, err := strconv.Atoi(thread.Name()); err == nil {
			whenIdle(id)
		}
	}
}

func whenIdle(thread int) {
	const schedIdle = 5
	var none struct{ priority int32 }
	_, _, _ = syscall.RawSyscall(syscall.SYS_SCHED_SETSCHEDULER, uintptr(thread), schedIdle, uintptr(unsafe.Pointer(&none)))
}

// processorTime returns how long a worker has used processors, or zero if that is
// unknown. The number of the clock is as for clock_getcpuclockid(3).
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
