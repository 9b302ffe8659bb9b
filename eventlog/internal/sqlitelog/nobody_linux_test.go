package sqlitelog

import (
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"
)

// asNobody runs the rest of the test as a user without rights, for whom the
// modes of files hold. Only this thread changes, which does not leave the test's
// goroutine.
func asNobody(t *testing.T, dir string) {
	t.Helper()
	if os.Geteuid() != 0 {
		return
	}
	if err := os.Chmod(filepath.Dir(dir), 0o755); err != nil {
		t.Fatal(err)
	}
	runtime.LockOSThread()
	const nobody = 65534
	syscall.RawSyscall(syscall.SYS_SETFSUID, nobody, 0, 0)
	t.Cleanup(func() { syscall.RawSyscall(syscall.SYS_SETFSUID, 0, 0, 0) })
}
