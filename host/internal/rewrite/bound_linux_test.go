package rewrite

import "syscall"

// boundData bounds the memory of this process. Where the system does not know
// how, it is not bounded.
func boundData(bytes uint64) {
	_ = syscall.Setrlimit(syscall.RLIMIT_DATA, &syscall.Rlimit{Cur: bytes, Max: bytes})
}
