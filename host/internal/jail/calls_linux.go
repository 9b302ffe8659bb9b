//go:build linux && (amd64 || arm64)

package jail

import "golang.org/x/sys/unix"

// pagemapScan is the request of the one ioctl, by which the sandbox asks for
// the pages that a guest has written (linux/fs.h).
const pagemapScan = 0xc0606610

// prSetVMA names memory, as Go's runtime does for debuggers.
const prSetVMA = 0x53564d41

// rules are the system calls that a worker with this process id needs, more of
// them when it has folders.
func rules(pid int, files, write bool) []rule {
	var all []rule
	add := func(calls ...uintptr) {
		for _, nr := range calls {
			all = append(all, rule{nr: nr})
		}
	}
	// What happens all the time comes first.
	add(unix.SYS_READ, unix.SYS_WRITE, unix.SYS_FUTEX, unix.SYS_EPOLL_PWAIT, unix.SYS_NANOSLEEP, unix.SYS_MADVISE,
		unix.SYS_SCHED_YIELD, unix.SYS_CLOCK_GETTIME)
	all = append(all,
		rule{nr: unix.SYS_IOCTL, arg: 1, values: []uint32{pagemapScan}},
		rule{nr: unix.SYS_TGKILL, arg: 0, values: []uint32{uint32(pid)}}, // by which Go interrupts its own threads
		rule{nr: unix.SYS_CLONE, arg: 0, bits: unix.CLONE_THREAD},        // threads, and no processes
		rule{nr: unix.SYS_CLONE3, errno: uint32(unix.ENOSYS)},            // its flags are in memory, where no filter sees them; libc falls back
		rule{nr: unix.SYS_FCNTL, arg: 1, values: []uint32{unix.F_GETFL, unix.F_SETFL, unix.F_GETFD, unix.F_SETFD, unix.F_ADD_SEALS, unix.F_GET_SEALS}},
		rule{nr: unix.SYS_PRCTL, arg: 0, values: []uint32{prSetVMA}},
	)
	add(unix.SYS_MMAP, unix.SYS_MUNMAP, unix.SYS_MPROTECT, unix.SYS_MREMAP, unix.SYS_BRK, unix.SYS_MEMFD_CREATE, unix.SYS_FTRUNCATE,
		unix.SYS_PREAD64, unix.SYS_PWRITE64, unix.SYS_CLOSE, unix.SYS_FSTAT, unix.SYS_LSEEK)
	add(unix.SYS_RT_SIGACTION, unix.SYS_RT_SIGPROCMASK, unix.SYS_RT_SIGRETURN, unix.SYS_SIGALTSTACK, unix.SYS_RESTART_SYSCALL)
	add(unix.SYS_GETPID, unix.SYS_GETTID, unix.SYS_SCHED_GETAFFINITY, unix.SYS_SET_ROBUST_LIST, unix.SYS_RSEQ, unix.SYS_MEMBARRIER)
	add(unix.SYS_CLOCK_NANOSLEEP, unix.SYS_GETTIMEOFDAY, unix.SYS_GETRANDOM, unix.SYS_TIMER_CREATE, unix.SYS_TIMER_SETTIME, unix.SYS_TIMER_DELETE)
	add(unix.SYS_EPOLL_CREATE1, unix.SYS_EPOLL_CTL, unix.SYS_EVENTFD2, unix.SYS_PIPE2)
	add(unix.SYS_EXIT, unix.SYS_EXIT_GROUP)
	if files {
		add(unix.SYS_OPENAT, fstatat, unix.SYS_STATX, unix.SYS_GETDENTS64, unix.SYS_READLINKAT, unix.SYS_FACCESSAT)
	}
	if write {
		add(unix.SYS_MKDIRAT, unix.SYS_UNLINKAT, unix.SYS_RENAMEAT, unix.SYS_RENAMEAT2, unix.SYS_FSYNC, unix.SYS_FDATASYNC)
	}
	return all
}
