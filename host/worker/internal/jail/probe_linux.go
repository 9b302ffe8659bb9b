package jail

import (
	"errors"
	"fmt"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// locks are the layers beside the limits. Each holds for all threads.
var locks = map[string]func(Config) error{
	layerPrivileges: dropPrivileges,
	layerLandlock:   confineFiles,
	layerSeccomp:    filterCalls,
}

// Probe says what this system offers, and confines nothing.
func Probe() Report {
	return Report{[]Layer{
		limits,
		{Name: layerPrivileges, On: true},
		layer(layerLandlock, probeLandlock()),
		layer(layerSeccomp, probeSeccomp()),
	}}
}

func layer(name string, err error) Layer {
	if err != nil {
		return Layer{Name: name, Why: err.Error()}
	}
	return Layer{Name: name, On: true}
}

// dropPrivileges makes the process refuse new privileges and debuggers. Where Go
// cannot reach all threads, seccomp hands the first part on to the others.
func dropPrivileges(Config) error {
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("dumpable: %w", err)
	}
	_, _, errno := syscall.AllThreadsSyscall6(unix.SYS_PRCTL, unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0, 0)
	switch errno {
	case 0:
		return nil
	case syscall.ENOTSUP:
		runtime.LockOSThread() // for good: the thread that filters calls must be this one
		return unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
	}
	return errno
}

// errCgo is why Landlock is left out.
var errCgo = errors.New("this program is linked with cgo: build it with CGO_ENABLED=0")

// reachesAllThreads reports whether Go can make a system call on every thread.
func reachesAllThreads() bool {
	_, _, errno := syscall.AllThreadsSyscall(unix.SYS_GETPID, 0, 0, 0)
	// Threads have the same process, so every one gives the same answer, as
	// they must.
	return errno == 0
}
