package jail

import (
	"errors"
	"fmt"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// What Landlock can forbid, by the version of its interface from which on it
// can (Linux, Documentation/userspace-api/landlock.rst).
var accesses = []struct{ files, net, scope uint64 }{
	{files: 1<<13 - 1},
	{files: unix.LANDLOCK_ACCESS_FS_REFER},
	{files: unix.LANDLOCK_ACCESS_FS_TRUNCATE},
	{net: unix.LANDLOCK_ACCESS_NET_BIND_TCP | unix.LANDLOCK_ACCESS_NET_CONNECT_TCP},
	{files: unix.LANDLOCK_ACCESS_FS_IOCTL_DEV},
	{scope: unix.LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET | unix.LANDLOCK_SCOPE_SIGNAL},
}

// What a folder that is given allows.
const (
	reading = unix.LANDLOCK_ACCESS_FS_READ_FILE | unix.LANDLOCK_ACCESS_FS_READ_DIR
	writing = reading | unix.LANDLOCK_ACCESS_FS_WRITE_FILE | unix.LANDLOCK_ACCESS_FS_TRUNCATE |
		unix.LANDLOCK_ACCESS_FS_MAKE_REG | unix.LANDLOCK_ACCESS_FS_MAKE_DIR | unix.LANDLOCK_ACCESS_FS_REFER |
		unix.LANDLOCK_ACCESS_FS_REMOVE_FILE | unix.LANDLOCK_ACCESS_FS_REMOVE_DIR
)

// probeLandlock returns why there is no Landlock.
func probeLandlock() error {
	if _, err := landlockVersion(); err != nil {
		return err
	}
	if !reachesAllThreads() {
		return errCgo
	}
	return nil
}

func landlockVersion() (int, error) {
	v, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	switch errno {
	case 0:
		return int(v), nil
	case unix.ENOSYS, unix.EOPNOTSUPP:
		return 0, errors.New("this kernel does not have it (Linux 5.13), or it is switched off")
	}
	return 0, errno
}

// confineFiles forbids everything that this kernel's Landlock can forbid, but
// what the folders need.
func confineFiles(c Config) error {
	version, err := landlockVersion()
	if err != nil {
		return err
	}
	var forbidden unix.LandlockRulesetAttr
	for _, a := range accesses[:min(version, len(accesses))] {
		forbidden.Handled_access_fs |= a.files
		forbidden.Handled_access_net |= a.net
		forbidden.Scoped |= a.scope
	}
	rules, err := createRuleset(&forbidden)
	if err != nil {
		return err
	}
	defer unix.Close(rules)
	for _, folders := range []struct {
		paths  []string
		rights uint64
	}{{c.Read, reading}, {c.Write, writing}} {
		for _, path := range folders.paths {
			if err := allowFolder(rules, path, folders.rights&forbidden.Handled_access_fs); err != nil {
				return fmt.Errorf("%s: %w", path, err)
			}
		}
	}
	if _, _, errno := syscall.AllThreadsSyscall(unix.SYS_LANDLOCK_RESTRICT_SELF, uintptr(rules), 0, 0); errno != 0 {
		return errno
	}
	return nil
}

func createRuleset(forbidden *unix.LandlockRulesetAttr) (int, error) {
	fd, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, uintptr(unsafe.Pointer(forbidden)), unsafe.Sizeof(*forbidden), 0)
	if errno != 0 {
		return -1, errno
	}
	return int(fd), nil
}

func allowFolder(rules int, path string, rights uint64) error {
	fd, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	beneath := unix.LandlockPathBeneathAttr{Allowed_access: rights, Parent_fd: int32(fd)}
	_, _, errno := unix.Syscall6(unix.SYS_LANDLOCK_ADD_RULE, uintptr(rules), unix.LANDLOCK_RULE_PATH_BENEATH,
		uintptr(unsafe.Pointer(&beneath)), 0, 0, 0)
	if errno != 0 {
		return errno
	}
	return nil
}
