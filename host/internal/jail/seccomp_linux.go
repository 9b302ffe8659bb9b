package jail

import (
	"errors"
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// rule is one system call that stays allowed, or that fails in its own way.
type rule struct {
	nr     uintptr
	arg    int      // the argument that decides, when values or bits is set
	values []uint32 // it must be one of these
	bits   uint32   // it must have all of these
	errno  uint32   // fail with this instead
}

// Offsets in struct seccomp_data, and where its arguments begin. Both
// architectures are little-endian: the lower half of an argument comes first.
const (
	offsetNr   = 0
	offsetArch = 4
	offsetArgs = 16
)

// x32 is the bit that calls of amd64's other convention have set.
const x32 = 0x40000000

// filterCalls makes the kernel fail every system call that the rules do not
// name, on all threads.
func filterCalls(c Config) error {
	return apply(compile(rules(os.Getpid(), len(c.Read)+len(c.Write) > 0, len(c.Write) > 0), refusal(unix.EPERM).K), unix.SECCOMP_FILTER_FLAG_TSYNC)
}

// noSockets are the calls that a compiler does not have. A ring could open sockets, too.
var noSockets = []rule{{nr: unix.SYS_SOCKET, errno: uint32(unix.EACCES)}, {nr: unix.SYS_IO_URING_SETUP, errno: uint32(unix.ENOSYS)}}

// apply puts a filter on the calling thread, or with a flag on all threads.
func apply(program []unix.SockFilter, flags uintptr) error {
	p := unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]}
	thread, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, flags, uintptr(unsafe.Pointer(&p)))
	switch {
	case errno != 0:
		return errno
	case thread != 0:
		return fmt.Errorf("thread %d did not take the filter", thread)
	}
	return nil
}

// probeSeccomp returns why calls cannot be filtered.
func probeSeccomp() error {
	if auditArch == 0 {
		return errors.New("there is no list of calls for this processor")
	}
	action := uint32(unix.SECCOMP_RET_ERRNO)
	_, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_GET_ACTION_AVAIL, 0, uintptr(unsafe.Pointer(&action)))
	if errno != 0 {
		return fmt.Errorf("this kernel does not have it, or something around this process forbids it: %w", errno)
	}
	return nil
}

// compile makes a program of rules (Linux, Documentation/userspace-api/
// seccomp_filter.rst): the architecture first, since numbers mean nothing
// without it; then the rules in their order; and in the end what happens to all other calls.
func compile(rules []rule, others uint32) []unix.SockFilter {
	p := []unix.SockFilter{
		load(offsetArch), jump(unix.BPF_JEQ, auditArch, 1, 0), ret(unix.SECCOMP_RET_KILL_PROCESS),
		load(offsetNr), jump(unix.BPF_JGE, x32, 0, 1), ret(unix.SECCOMP_RET_KILL_PROCESS),
	}
	for _, r := range rules {
		body := r.compile()
		p = append(p, jump(unix.BPF_JEQ, uint32(r.nr), 0, uint8(len(body))))
		p = append(p, body...)
	}
	return append(p, ret(others))
}

// compile returns the program for the case that the number is the rule's. It always returns.
func (r rule) compile() []unix.SockFilter {
	switch {
	case r.errno != 0:
		return []unix.SockFilter{refusal(unix.Errno(r.errno))}
	case r.bits != 0:
		return []unix.SockFilter{
			load(offsetArgs + 8*uint32(r.arg)), jump(unix.BPF_JSET, r.bits, 0, 1), ret(unix.SECCOMP_RET_ALLOW), refusal(unix.EPERM),
		}
	case r.values == nil:
		return []unix.SockFilter{ret(unix.SECCOMP_RET_ALLOW)}
	}
	p := []unix.SockFilter{load(offsetArgs + 8*uint32(r.arg))}
	for _, v := range r.values {
		p = append(p, jump(unix.BPF_JEQ, v, 0, 1), ret(unix.SECCOMP_RET_ALLOW))
	}
	return append(p, refusal(unix.EPERM))
}

func load(offset uint32) unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: offset}
}

// jump skips yes or no instructions.
func jump(test uint16, k uint32, yes, no uint8) unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_JMP | test | unix.BPF_K, Jt: yes, Jf: no, K: k}
}

func ret(action uint32) unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: action}
}

func refusal(errno unix.Errno) unix.SockFilter { return ret(unix.SECCOMP_RET_ERRNO | uint32(errno)) }
