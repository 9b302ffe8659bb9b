//go:build unix

package pgtest

import (
	"fmt"
	"os"
	"os/user"
	"strconv"
	"syscall"
)

// owner gives dir to the user that the server will run as, which is this one unless
// it is root: PostgreSQL refuses to run as root. The processes have a group of their
// own, so that an interrupt at the terminal leaves the keeper to its duty.
func owner(dir string) (*syscall.SysProcAttr, error) {
	as := &syscall.SysProcAttr{Setpgid: true}
	if os.Geteuid() != 0 {
		return as, nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, errUID := strconv.Atoi(u.Uid)
		gid, errGID := strconv.Atoi(u.Gid)
		if errUID != nil || errGID != nil {
			continue
		}
		as.Credential = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
		return as, os.Chown(dir, uid, gid)
	}
	return nil, fmt.Errorf("%w: it does not run as root, and there is neither a user postgres nor nobody", ErrAbsent)
}
