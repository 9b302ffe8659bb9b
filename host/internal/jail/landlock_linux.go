package jail

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// accesses are the accesses that Landlock can forbid, by the version of its interface that
// introduced them (Linux, Documentation/userspace-api/landlock.rst).
var accesses = []struct{ files, net, scope uint64 }{
	{files: 1<<13 - 1},
	{files: unix.LANDLOCK_ACCESS_FS_REFER},
	{files: unix.LANDLOCK_ACCESS_FS_TRUNCATE},
	{net: unix.LANDLOCK_ACCESS_NET_BIND_TCP | unix.LANDLOCK_ACCESS_NET_CONNECT_TCP},
	{files: unix.LANDLOCK_ACCESS_FS_IOCTL_DEV},
	{scope: unix.LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET | unix.LANDLOCK_SCOPE_SIGNAL},
}

// The rights in a given folder or file.
const (
	loading = unix.LANDLOCK_ACCESS_FS_READ_FILE | unix.LANDLOCK_ACCESS_FS_EXECUTE
	reading = unix.LANDLOCK_ACCESS_FS_READ_FILE | unix.LANDLOCK_ACCESS_FS_READ_DIR
	writing = reading | unix.LANDLOCK_ACCESS_FS_WRITE_FILE | unix.LANDLOCK_ACCESS_FS_TRUNCATE |
		unix.LANDLOCK_ACCESS_FS_MAKE_REG | unix.LANDLOCK_ACCESS_FS_MAKE_DIR | unix.LANDLOCK_ACCESS_FS_REFER |
		unix.LANDLOCK_ACCESS_FS_REMOVE_FILE | unix.LANDLOCK_ACCESS_FS_REMOVE_DIR
)

// probeLandlock returns the reason why there is no Landlock.
func probeLandlock() error {
	_, err := landlockVersion()
	return err
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

// confineFiles forbids the calling thread everything that this kernel's Landlock can
// forbid, except the rights for the folders and executing the program again.
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
	fd, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, uintptr(unsafe.Pointer(&forbidden)), unsafe.Sizeof(forbidden), 0)
	if errno != 0 {
		return errno
	}
	rules := int(fd)
	defer unix.Close(rules)
	var program []string
	if c.Program == "" {
		if program, err = programFiles(); err != nil {
			return err
		}
	}
	for _, given := range []struct {
		paths    []string
		rights   uint64
		optional bool
	}{{c.Read, reading, false}, {c.Write, writing, false}, {c.Load, loading | reading, false}, {program, loading, true}, {startFiles, reading, true}} {
		for _, path := range given.paths {
			err := allow(rules, path, given.rights&forbidden.Handled_access_fs)
			if err != nil && !(given.optional && errors.Is(err, fs.ErrNotExist)) {
				return fmt.Errorf("%s: %w", path, err)
			}
		}
	}
	if _, _, errno := unix.Syscall(unix.SYS_LANDLOCK_RESTRICT_SELF, uintptr(rules), 0, 0); errno != 0 {
		return errno
	}
	return nil
}

// startFiles are read by a program that starts, before its main function: by the dynamic
// linker, Go's runtime and C's library.
var startFiles = append([]string{
	"/etc/ld.so.cache", "/etc/ld.so.preload", "/sys/kernel/mm/transparent_hugepage/hpage_pmd_size",
}, ownFiles...)

// ownFiles belong to the process itself. The sandbox reads its page map.
var ownFiles = []string{"/proc/self/maps", "/proc/self/pagemap"}

// programFiles returns the files that this process executes: the program, and if that is
// dynamically linked the linker and its libraries.
func programFiles() ([]string, error) {
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		return nil, err
	}
	files := []string{"/proc/self/exe"}             // it has another name, or none, if it was replaced
	for line := range strings.Lines(string(maps)) { // proc_pid_maps(5): address, permissions, offset, device, inode, path
		before, path, ok := strings.Cut(line, "/")
		if permissions := strings.Fields(before); ok && len(permissions) > 1 && strings.Contains(permissions[1], "x") {
			files = append(files, "/"+strings.TrimSuffix(path, "\n"))
		}
	}
	return files, nil
}

// checkFiles reports an error unless the process was started without the right to read
// folders that it was not given.
func checkFiles(Config) error {
	fd, err := unix.Open("/", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err == nil {
		unix.Close(fd)
		return errNotStarted
	}
	if err != unix.EACCES {
		return fmt.Errorf("opening /: %w", err)
	}
	return nil
}

// allow gives the rights to a folder and everything in it, or the applicable ones to a
// file.
func allow(rules int, path string, rights uint64) error {
	fd, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	var info unix.Stat_t
	if err := unix.Fstat(fd, &info); err != nil {
		return err
	}
	if info.Mode&unix.S_IFMT != unix.S_IFDIR {
		rights &= unix.LANDLOCK_ACCESS_FS_READ_FILE | unix.LANDLOCK_ACCESS_FS_EXECUTE | unix.LANDLOCK_ACCESS_FS_WRITE_FILE
	}
	beneath := unix.LandlockPathBeneathAttr{Allowed_access: rights, Parent_fd: int32(fd)}
	_, _, errno := unix.Syscall6(unix.SYS_LANDLOCK_ADD_RULE, uintptr(rules), unix.LANDLOCK_RULE_PATH_BENEATH,
		uintptr(unsafe.Pointer(&beneath)), 0, 0, 0)
	if errno != 0 {
		return errno
	}
	return nil
}
