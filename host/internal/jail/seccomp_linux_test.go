//go:build linux && (amd64 || arm64)

package jail

import (
	"testing"

	"golang.org/x/sys/unix"
)

// TestFilter runs the filter's program as the kernel does, on calls with a
// known outcome.
func TestFilter(t *testing.T) {
	const pid = 4711
	const eperm = unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)
	none, write := rules(pid, false, false), rules(pid, true, true)
	tests := []struct {
		name  string
		rules []rule
		arch  uint32
		nr    uintptr
		args  [6]uint64
		want  uint32
	}{
		{"read", none, auditArch, unix.SYS_READ, [6]uint64{}, unix.SECCOMP_RET_ALLOW},
		{"the last rule", none, auditArch, unix.SYS_EXIT_GROUP, [6]uint64{}, unix.SECCOMP_RET_ALLOW},
		{"execve", none, auditArch, unix.SYS_EXECVE, [6]uint64{}, eperm},
		{"an unknown number", none, auditArch, 9999, [6]uint64{}, eperm},
		{"another architecture", none, auditArch ^ 1, unix.SYS_READ, [6]uint64{}, unix.SECCOMP_RET_KILL_PROCESS},
		{"the convention of x32", none, auditArch, unix.SYS_READ | x32, [6]uint64{}, unix.SECCOMP_RET_KILL_PROCESS},
		{"a thread", none, auditArch, unix.SYS_CLONE, [6]uint64{unix.CLONE_VM | unix.CLONE_THREAD}, unix.SECCOMP_RET_ALLOW},
		{"a process", none, auditArch, unix.SYS_CLONE, [6]uint64{uint64(unix.SIGCHLD)}, eperm},
		{"a process by clone3", none, auditArch, unix.SYS_CLONE3, [6]uint64{}, unix.SECCOMP_RET_ERRNO | uint32(unix.ENOSYS)},
		{"the ioctl", none, auditArch, unix.SYS_IOCTL, [6]uint64{3, pagemapScan}, unix.SECCOMP_RET_ALLOW},
		{"another ioctl", none, auditArch, unix.SYS_IOCTL, [6]uint64{3, unix.TIOCSTI}, eperm},
		{"the ioctl, with garbage above", none, auditArch, unix.SYS_IOCTL, [6]uint64{3, pagemapScan | 1<<40}, unix.SECCOMP_RET_ALLOW},
		{"a signal to itself", none, auditArch, unix.SYS_TGKILL, [6]uint64{pid, 1, 23}, unix.SECCOMP_RET_ALLOW},
		{"a signal to another", none, auditArch, unix.SYS_TGKILL, [6]uint64{1, 1, 9}, eperm},
		{"kill", none, auditArch, unix.SYS_KILL, [6]uint64{pid, 9}, eperm},
		{"openat without folders", none, auditArch, unix.SYS_OPENAT, [6]uint64{}, eperm},
		{"openat with folders", write, auditArch, unix.SYS_OPENAT, [6]uint64{}, unix.SECCOMP_RET_ALLOW},
		{"unlinkat with a folder to read", rules(pid, true, false), auditArch, unix.SYS_UNLINKAT, [6]uint64{}, eperm},
		{"socket", write, auditArch, unix.SYS_SOCKET, [6]uint64{}, eperm},
		{"ptrace", write, auditArch, unix.SYS_PTRACE, [6]uint64{}, eperm},
		{"a debugger's prctl", write, auditArch, unix.SYS_PRCTL, [6]uint64{unix.PR_SET_PTRACER}, eperm},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := execute(t, compile(tt.rules, refusal(unix.EPERM).K), tt.arch, tt.nr, tt.args); got != tt.want {
				t.Errorf("%#x, want %#x", got, tt.want)
			}
		})
	}
}

// execute interprets the few instructions that filters here are made of.
func execute(t *testing.T, program []unix.SockFilter, arch uint32, nr uintptr, args [6]uint64) uint32 {
	t.Helper()
	var a uint32
	for pc := 0; pc < len(program); pc++ {
		in := program[pc]
		var taken bool
		switch in.Code {
		case unix.BPF_LD | unix.BPF_W | unix.BPF_ABS:
			switch {
			case in.K == offsetNr:
				a = uint32(nr)
			case in.K == offsetArch:
				a = arch
			default:
				a = uint32(args[(in.K-offsetArgs)/8])
			}
			continue
		case unix.BPF_RET | unix.BPF_K:
			return in.K
		case unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K:
			taken = a == in.K
		case unix.BPF_JMP | unix.BPF_JGE | unix.BPF_K:
			taken = a >= in.K
		case unix.BPF_JMP | unix.BPF_JSET | unix.BPF_K:
			taken = a&in.K != 0
		default:
			t.Fatalf("instruction %d has code %#x", pc, in.Code)
		}
		if taken {
			pc += int(in.Jt)
		} else {
			pc += int(in.Jf)
		}
	}
	t.Fatal("the program has no end")
	return 0
}
