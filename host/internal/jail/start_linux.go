package jail

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// variable makes a process confine itself when it starts. Its value is the [Config].
const variable = "STARLING_HOST_JAIL"

func environment(c Config) ([]string, error) {
	text, err := json.Marshal(c)
	if err != nil {
		return nil, fmt.Errorf("jail: %w", err)
	}
	return []string{variable + "=" + string(text)}, nil
}

// Confines reports whether this system can confine a command: whether it has Landlock.
func Confines() bool { return probeLandlock() == nil }

// Confine makes a command confine itself before it becomes its program, which keeps the files of
// the config and has no network. Self is a program that imports this package, such as this one.
// Where [Confines] is false it changes nothing.
func Confine(cmd *exec.Cmd, self string, c Config) error {
	if !Confines() {
		return nil
	}
	c.Program = cmd.Path
	env, err := environment(c)
	cmd.Path, cmd.Env = self, append(cmd.Env, env...)
	return err
}

// init confines the first thread and executes the program again, with the same arguments
// and without the variable. It runs before most other packages are initialized, so it
// costs some milliseconds of a start.
func init() {
	text, is := os.LookupEnv(variable)
	if !is {
		return
	}
	fmt.Fprintln(os.Stderr, "jail:", startAgain(text))
	os.Exit(1)
}

// startAgain returns why it fails.
func startAgain(text string) error {
	runtime.LockOSThread() // the first thread: Go initializes packages on it
	var c Config
	if err := json.Unmarshal([]byte(text), &c); err != nil {
		return err
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("no_new_privs: %w", err)
	}
	if err := closeInherited(); err != nil {
		return err
	}
	if probeLandlock() == nil {
		if c.Program == "" {
			if err := pin(); err != nil {
				return err
			}
		}
		if err := confineFiles(c); err != nil {
			return fmt.Errorf("landlock: %w", err)
		}
	}
	env := slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, variable+"=") })
	if c.Program == "" {
		return syscall.Exec("/proc/self/exe", os.Args, env)
	}
	if probeSeccomp() == nil { // otherwise Landlock alone forbids connections, by TCP
		if err := apply(compile(noSockets, unix.SECCOMP_RET_ALLOW), 0); err != nil {
			return fmt.Errorf("seccomp: %w", err)
		}
	}
	return fmt.Errorf("%s: %w", c.Program, syscall.Exec(c.Program, os.Args, env))
}

// closeInherited has the system close all descriptors but the standard ones when the program
// starts again. The process that started the host may have left it a log or a lock, which the
// host passes on without knowing.
func closeInherited() error {
	open, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return err
	}
	for _, entry := range open {
		if fd, err := strconv.Atoi(entry.Name()); err == nil && fd > 2 {
			unix.CloseOnExec(fd)
		}
	}
	return nil
}

// pin opens the files of /proc that the program reads when it starts again, for as long as
// the process lives. Landlock's rules are for a file as the kernel has it in memory, and
// without this it could forget the file and make another one. It uses the free descriptors:
// the runtime holds some by now, such as its network poller's.
func pin() error {
	for _, path := range ownFiles {
		if _, err := unix.Open(path, unix.O_PATH, 0); err != nil && err != unix.ENOENT {
			return fmt.Errorf("%s: %w", path, err)
		}
	}
	return nil
}

var errNotStarted = errors.New("the process was not started for it")

// checkPrivileges keeps other processes from attaching to this one, and returns an
// error unless it was started without new privileges.
func checkPrivileges(Config) error {
	if on, err := unix.PrctlRetInt(unix.PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0); err != nil || on != 1 {
		return errors.Join(err, errNotStarted)
	}
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("dumpable: %w", err)
	}
	return nil
}
